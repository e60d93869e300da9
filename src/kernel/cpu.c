/* A feature counts only when the processor has it and the operating system saves the registers it
 * needs: a hypervisor or a kernel option may hide either. Features come in the bundles that the
 * rungs use; a processor with half of a bundle gets the rung below. */
#include "kernel/cpu.h"

#include <cpuid.h>
#include <stdint.h>

enum {
    XCR0_YMM = 0x06, // SSE and AVX state
    XCR0_ZMM = 0xe6, // the above, mask registers and both halves of the ZMM file
};

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

struct cpu_features cpu_detect(void)
{
    struct cpu_features found = { 0 };
    uint32_t eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE))
        return found;
    const bool vex = (ecx & bit_AVX) && (ecx & bit_FMA) && (ecx & bit_F16C);
    const uint64_t xcr0 = read_xcr0();
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        return found;
    found.avx2 = vex && (ebx & bit_AVX2) && (xcr0 & XCR0_YMM) == XCR0_YMM;
    found.avx512 = found.avx2 && (ebx & bit_AVX512F) && (ebx & bit_AVX512BW) &&
                   (ebx & bit_AVX512DQ) && (ebx & bit_AVX512VL) && (ecx & bit_AVX512VNNI) &&
                   (xcr0 & XCR0_ZMM) == XCR0_ZMM;
    return found;
}
