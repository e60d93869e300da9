/* The rows of ceiling.h's tables, a file an instruction set. */
#ifndef CASCADIA_KERNEL_CEILING_INTERNAL_H
#define CASCADIA_KERNEL_CEILING_INTERNAL_H

#include "kernel/ceiling.h"

extern const struct ceiling_read ceiling_read_scalar, ceiling_read_avx2, ceiling_read_avx512;
extern const struct ceiling_dot ceiling_madd_avx2, ceiling_addw_avx2, ceiling_fma_avx2;
extern const struct ceiling_dot ceiling_vnni_avxvnni;
extern const struct ceiling_dot ceiling_vnni_avx512, ceiling_vnni_ymm_avx512, ceiling_fma_avx512;

#endif
