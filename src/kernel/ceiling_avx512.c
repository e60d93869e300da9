/* Ceilings with AVX-512 VNNI: reads by 64 bytes, the dot-product instruction in both widths, FMA.
 * Assembly for the reasons of ceiling_avx2.c; enough accumulators to hide the latency of two pipes.
 */
#include "kernel/ceiling_internal.h"

#include <immintrin.h>

#include "kernel/cpu.h"

#define FEATURES (CPU_AVX2 | CPU_AVX512F | CPU_AVX512VL | CPU_AVX512_VNNI)

/* ---- reads ---- */

static inline __attribute__((always_inline)) uint64_t read_streams(const uint8_t *data,
                                                                   size_t bytes, uint32_t streams)
{
    enum { LOADS = 4, STEP = LOADS * 64 };
    const size_t part = bytes / streams;
    __m512i sums[LOADS];
    for (uint32_t i = 0; i < LOADS; i++)
        sums[i] = _mm512_setzero_si512();
    for (size_t at = 0; at < part; at += STEP) {
        for (uint32_t s = 0; s < streams; s++) {
            const uint8_t *const from = data + s * part + at;
            for (uint32_t i = 0; i < LOADS; i++)
                sums[i] = _mm512_xor_si512(sums[i], _mm512_load_si512(from + 64 * i));
        }
    }
    sums[0] =
        _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]));
    return (uint64_t)_mm512_reduce_add_epi64(sums[0]);
}

static uint64_t read_avx512(const uint8_t *data, size_t bytes, uint32_t streams)
{
    return streams == 1   ? read_streams(data, bytes, 1)
           : streams == 2 ? read_streams(data, bytes, 2)
                          : read_streams(data, bytes, 4);
}

const struct ceiling_read ceiling_read_avx512 = {
    .name = "64-byte",
    .features = FEATURES,
    .run = read_avx512,
};

/* ---- dots ---- */

#define CLOBBERS                                                                                   \
    "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

/* Twelve accumulators; the sources are 14 and 15. */
#define TWELVE(op, reg)                                                                            \
    OP(op, reg, "0")                                                                               \
    OP(op, reg, "1")                                                                               \
    OP(op, reg, "2")                                                                               \
    OP(op, reg, "3")                                                                               \
    OP(op, reg, "4")                                                                               \
    OP(op, reg, "5")                                                                               \
    OP(op, reg, "6")                                                                               \
    OP(op, reg, "7")                                                                               \
    OP(op, reg, "8")                                                                               \
    OP(op, reg, "9")                                                                               \
    OP(op, reg, "10")                                                                              \
    OP(op, reg, "11")
#define OP(op, reg, acc) op " %%" reg "14, %%" reg "15, %%" reg acc "\n"

#define LOOP(op, reg)                                                                              \
    __asm__ volatile("vzeroall\n"                                                                  \
                     "1:\n" TWELVE(op, reg) "dec %0\n"                                             \
                                            "jnz 1b\n"                                             \
                                            "vzeroupper"                                           \
                     : "+r"(steps)                                                                 \
                     :                                                                             \
                     : CLOBBERS)

static void vnni_zmm(uint64_t steps)
{
    LOOP("vpdpbusd", "zmm");
}

static void vnni_ymm(uint64_t steps)
{
    LOOP("%{evex%} vpdpbusd", "ymm");
}

static void fma_zmm(uint64_t steps)
{
    LOOP("vfmadd231ps", "zmm");
}

const struct ceiling_dot ceiling_vnni_avx512 = {
    .name = "vpdpbusd zmm",
    .features = FEATURES,
    .ops_per_step = 12 * 64 * 2,
    .run = vnni_zmm,
};

const struct ceiling_dot ceiling_vnni_ymm_avx512 = {
    .name = "vpdpbusd ymm",
    .features = FEATURES,
    .ops_per_step = 12 * 32 * 2,
    .run = vnni_ymm,
};

const struct ceiling_dot ceiling_fma_avx512 = {
    .name = "fma f32 zmm",
    .features = FEATURES,
    .ops_per_step = 12 * 16 * 2,
    .run = fma_zmm,
};
