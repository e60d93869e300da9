/* The ladder: every rung, slowest first, with what it asks of the CPU. Reading it from top to
 * bottom is the rule of dispatch: the last usable row wins. */
#include "kernel/kernel.h"

#include <string.h>

#include "kernel/cpu.h"
#include "kernel/kernel_internal.h"

#define AVX2_FEATURES (CPU_AVX2 | CPU_FMA | CPU_F16C)
#define AVX512_FEATURES                                                                            \
    (AVX2_FEATURES | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512DQ | CPU_AVX512VL | CPU_AVX512_VNNI)

static const struct kernel rung_scalar = {
    .name = "scalar",
    .summary = "plain C for any x86-64; the definition of every result",
    .vec = &vec_scalar,
    .matmul = &matmul_scalar,
    .attend = &attend_scalar,
};

static const struct kernel rung_avx2 = {
    .name = "avx2",
    .summary = "AVX2, FMA, F16C: int8 products summed in 16 bits",
    .features = AVX2_FEATURES,
    .vec = &vec_avx2,
    .matmul = &matmul_avx2,
    .attend = &attend_avx2,
};

static const struct kernel rung_avxvnni = {
    .name = "avxvnni",
    .summary = "AVX2 and AVX-VNNI: 256-bit int8 dot products",
    .features = AVX2_FEATURES | CPU_AVX_VNNI,
    .vec = &vec_avx2,
    .matmul = &matmul_avxvnni,
    .attend = &attend_avx2,
};

static const struct kernel rung_avx512 = {
    .name = "avx512",
    .summary = "AVX-512 F, BW, DQ, VL, VNNI: 512-bit int8 dot products",
    .features = AVX512_FEATURES,
    .vec = &vec_avx512,
    .matmul = &matmul_avx512,
    .attend = &attend_avx512,
};

const struct kernel *const kernels[] = { &rung_scalar, &rung_avx2, &rung_avxvnni, &rung_avx512,
                                         NULL };

bool kernel_usable(const struct kernel *kernel)
{
    const struct cpu cpu = cpu_detect();
    return cpu_has(&cpu, kernel->features);
}

const struct kernel *kernel_best_of(const struct cpu *cpu)
{
    const struct kernel *best = kernels[0];
    for (uint32_t i = 1; kernels[i]; i++) {
        if (cpu_has(cpu, kernels[i]->features))
            best = kernels[i];
    }
    return best;
}

const struct kernel *kernel_best(void)
{
    const struct cpu cpu = cpu_detect();
    return kernel_best_of(&cpu);
}

const struct kernel *kernel_find(const char *name)
{
    for (uint32_t i = 0; kernels[i]; i++) {
        if (strcmp(kernels[i]->name, name) == 0)
            return kernel_usable(kernels[i]) ? kernels[i] : NULL;
    }
    return NULL;
}
