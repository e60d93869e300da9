/* The ceiling of AVX-VNNI: the 256-bit dot product in VEX encoding. Assembly for the reasons of
 * ceiling_avx2.c; enough accumulators to hide the latency of two pipes. */
#include "kernel/ceiling_internal.h"
#include "kernel/cpu.h"

#define DOT(sum) "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm" sum "\n"

static void vnni_ymm(uint64_t steps)
{
    __asm__ volatile("vzeroall\n"
                     "1:\n" DOT("0") DOT("1") DOT("2") DOT("3") DOT("4") DOT("5") DOT("6") DOT("7")
                         DOT("8") DOT("9") DOT("10") DOT("11") "dec %0\n"
                                                               "jnz 1b\n"
                                                               "vzeroupper"
                     : "+r"(steps)
                     :
                     : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

const struct ceiling_dot ceiling_vnni_avxvnni = {
    .name = "vpdpbusd ymm vex",
    .features = CPU_AVX2 | CPU_AVX_VNNI,
    .ops_per_step = 12 * 32 * 2,
    .run = vnni_ymm,
};
