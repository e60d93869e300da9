/* What this processor can run: CPUID says what it has, XGETBV what the operating system saves. */
#ifndef CASCADIA_KERNEL_CPU_H
#define CASCADIA_KERNEL_CPU_H

#include <stdbool.h>

struct cpu_features {
    bool avx2;   // AVX2, FMA and F16C
    bool avx512; // the above and AVX-512 F, BW, DQ, VL, VNNI
};

/* Asks the processor anew at each call; any thread. */
struct cpu_features cpu_detect(void);

#endif
