/* The ladder: every rung, slowest first, with what it asks of the CPU. Reading it from top to
 * bottom is the rule of dispatch: the last usable row wins. */
#include "kernel/kernel.h"

#include <string.h>

#include "kernel/cpu.h"
#include "kernel/kernel_internal.h"

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
    .vec = &vec_avx2,
    .matmul = &matmul_avx2,
    .attend = &attend_avx2,
};

static const struct kernel rung_avx512 = {
    .name = "avx512",
    .summary = "AVX-512 F, BW, DQ, VL, VNNI: 512-bit int8 dot products",
    .vec = &vec_avx512,
    .matmul = &matmul_avx512,
    .attend = &attend_avx512,
};

const struct kernel *const kernels[] = { &rung_scalar, &rung_avx2, &rung_avx512, NULL };

bool kernel_usable(const struct kernel *kernel)
{
    const struct cpu_features cpu = cpu_detect();
    if (kernel == &rung_avx512)
        return cpu.avx512;
    return kernel == &rung_avx2 ? cpu.avx2 : true;
}

const struct kernel *kernel_best(void)
{
    const struct kernel *best = kernels[0];
    for (uint32_t i = 1; kernels[i]; i++) {
        if (kernel_usable(kernels[i]))
            best = kernels[i];
    }
    return best;
}

const struct kernel *kernel_find(const char *name)
{
    for (uint32_t i = 0; kernels[i]; i++) {
        if (strcmp(kernels[i]->name, name) == 0)
            return kernel_usable(kernels[i]) ? kernels[i] : NULL;
    }
    return NULL;
}
