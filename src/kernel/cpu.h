/* What the processor is and what it can run: CPUID says what it has, XGETBV what the operating
 * system saves.
 *
 * Reading and meaning are apart: cpu_read asks this processor and cpu_decode turns what it was
 * told into a description, so the description of any chip can be made from its leaves. Plain data,
 * no state, any thread. */
#ifndef CASCADIA_KERNEL_CPU_H
#define CASCADIA_KERNEL_CPU_H

#include <stdbool.h>
#include <stdint.h>

enum cpu_vendor { CPU_VENDOR_OTHER, CPU_VENDOR_INTEL, CPU_VENDOR_AMD };

/* Cores that share what a kernel is tuned for. A hybrid chip goes by its large core. Chips of a
 * line that differ in nothing but their package or their clock share a name. */
enum cpu_microarch {
    CPU_MICROARCH_UNKNOWN,
    CPU_ZEN1, // and Zen+
    CPU_ZEN2,
    CPU_ZEN3,
    CPU_ZEN4,
    CPU_ZEN5,
    CPU_HASWELL,
    CPU_BROADWELL,
    CPU_SKYLAKE,      // client: Skylake, Kaby Lake, Coffee Lake, Comet Lake
    CPU_SKYLAKE_SP,   // server, AVX-512 without VNNI
    CPU_CASCADE_LAKE, // Skylake-SP with VNNI; and Cooper Lake
    CPU_ICE_LAKE,     // client: Ice Lake, Tiger Lake, Rocket Lake
    CPU_ICE_LAKE_SP,
    CPU_GRACEMONT, // small cores alone: Alder Lake-N
    CPU_ALDER_LAKE,
    CPU_RAPTOR_LAKE,
    CPU_METEOR_LAKE,
    CPU_ARROW_LAKE,
    CPU_LUNAR_LAKE,
    CPU_PANTHER_LAKE,
    CPU_SAPPHIRE_RAPIDS,
    CPU_EMERALD_RAPIDS,
    CPU_GRANITE_RAPIDS,
    CPU_CRESTMONT_SP, // Sierra Forest, Grand Ridge
    CPU_MICROARCH_COUNT
};

/* One bit each. A feature is set only when the operating system saves the registers it works on. */
enum cpu_feature {
    CPU_AVX2 = 1 << 0,
    CPU_FMA = 1 << 1,
    CPU_F16C = 1 << 2,
    CPU_AVX512F = 1 << 3,
    CPU_AVX512BW = 1 << 4,
    CPU_AVX512DQ = 1 << 5,
    CPU_AVX512VL = 1 << 6,
    CPU_AVX512_VNNI = 1 << 7,
    CPU_AVX512_BF16 = 1 << 8,
    CPU_AVX_VNNI = 1 << 9, // the 256-bit dot products in VEX encoding
    CPU_AMX_TILE = 1 << 10,
    CPU_AMX_INT8 = 1 << 11,
    CPU_HYBRID = 1 << 12, // cores of several kinds in one package
};

#define CPU_FEATURE_COUNT 13u

struct cpu_registers {
    uint32_t eax, ebx, ecx, edx;
};

/* What a processor answers; zeros where it has no such leaf. */
struct cpu_leaves {
    struct cpu_registers vendor;   // leaf 0
    struct cpu_registers version;  // leaf 1
    struct cpu_registers features; // leaf 7, subleaf 0
    struct cpu_registers more;     // leaf 7, subleaf 1
    struct cpu_registers brand[3]; // leaves 0x80000002 .. 4
    uint64_t xcr0;                 // 0 when XGETBV is not to be used
};

struct cpu {
    enum cpu_vendor vendor;
    uint32_t family, model, stepping;
    enum cpu_microarch microarch; // by vendor, family and model; a hypervisor may hide features
    uint32_t features;            // of enum cpu_feature
    char brand[49];               // as the chip calls itself, without outer spaces; may be ""
};

/* Asks the processor at hand. Under a hypervisor each leaf may cost microseconds: for start-up. */
struct cpu_leaves cpu_read(void);

struct cpu cpu_decode(const struct cpu_leaves *leaves);

/* cpu_decode of cpu_read. */
struct cpu cpu_detect(void);

/* True when the processor has all of `features`. */
bool cpu_has(const struct cpu *cpu, uint32_t features);

/* "Zen 4", "Sapphire Rapids"; "unknown". */
const char *cpu_microarch_name(enum cpu_microarch microarch);

/* Of one bit, as /proc/cpuinfo writes it: "avx512_vnni". */
const char *cpu_feature_name(enum cpu_feature feature);

#endif
