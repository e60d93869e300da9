/* Ceilings with AVX2: reads by 32 bytes, and the chains that stand for a dot product where there is
 * no instruction for one. The loops are assembly: a compiler would see that nobody needs the sums.
 * All registers start at zero, since denormal garbage would slow the float chain several times. */
#include "kernel/ceiling_internal.h"

#include <immintrin.h>

#include "kernel/cpu.h"

/* ---- reads ---- */

static inline __attribute__((always_inline)) uint64_t read_streams(const uint8_t *data,
                                                                   size_t bytes, uint32_t streams)
{
    enum { LOADS = 8, STEP = LOADS * 32 };
    const size_t part = bytes / streams;
    __m256i sums[LOADS];
    for (uint32_t i = 0; i < LOADS; i++)
        sums[i] = _mm256_setzero_si256();
    for (size_t at = 0; at < part; at += STEP) {
        for (uint32_t s = 0; s < streams; s++) {
            const __m256i *const from = (const __m256i *)(const void *)(data + s * part + at);
            for (uint32_t i = 0; i < LOADS; i++)
                sums[i] = _mm256_xor_si256(sums[i], _mm256_load_si256(from + i));
        }
    }
    for (uint32_t i = 1; i < LOADS; i++)
        sums[0] = _mm256_xor_si256(sums[0], sums[i]);
    _Alignas(32) uint64_t words[4];
    _mm256_store_si256((__m256i *)(void *)words, sums[0]);
    return words[0] ^ words[1] ^ words[2] ^ words[3];
}

static uint64_t read_avx2(const uint8_t *data, size_t bytes, uint32_t streams)
{
    return streams == 1   ? read_streams(data, bytes, 1)
           : streams == 2 ? read_streams(data, bytes, 2)
                          : read_streams(data, bytes, 4);
}

const struct ceiling_read ceiling_read_avx2 = {
    .name = "32-byte",
    .features = CPU_AVX2 | CPU_FMA,
    .run = read_avx2,
};

/* ---- dots ---- */

#define CLOBBERS                                                                                   \
    "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

/* STEP(accumulator, temporary) for eight accumulators, ymm0 .. ymm7. */
#define EIGHT(STEP)                                                                                \
    STEP("0", "8")                                                                                 \
    STEP("1", "9")                                                                                 \
    STEP("2", "10")                                                                                \
    STEP("3", "11")                                                                                \
    STEP("4", "12")                                                                                \
    STEP("5", "13")                                                                                \
    STEP("6", "8")                                                                                 \
    STEP("7", "9")

#define LOOP(STEP)                                                                                 \
    __asm__ volatile("vzeroall\n"                                                                  \
                     "1:\n" EIGHT(STEP) "dec %0\n"                                                 \
                                        "jnz 1b\n"                                                 \
                                        "vzeroupper"                                               \
                     : "+r"(steps)                                                                 \
                     :                                                                             \
                     : CLOBBERS)

#define MADD(acc, t)                                                                               \
    "vpmaddubsw %%ymm14, %%ymm15, %%ymm" t "\n"                                                    \
    "vpmaddwd %%ymm14, %%ymm" t ", %%ymm" t "\n"                                                   \
    "vpaddd %%ymm" t ", %%ymm" acc ", %%ymm" acc "\n"

#define ADDW(acc, t)                                                                               \
    "vpmaddubsw %%ymm14, %%ymm15, %%ymm" t "\n"                                                    \
    "vpaddw %%ymm" t ", %%ymm" acc ", %%ymm" acc "\n"

static void madd(uint64_t steps)
{
    LOOP(MADD);
}

static void addw(uint64_t steps)
{
    LOOP(ADDW);
}

#define FMA(acc) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" acc "\n"

static void fma_ymm(uint64_t steps)
{
    __asm__ volatile("vzeroall\n"
                     "1:\n" FMA("0") FMA("1") FMA("2") FMA("3") FMA("4") FMA("5") FMA("6") FMA("7")
                         FMA("8") FMA("9") FMA("10") FMA("11") "dec %0\n"
                                                               "jnz 1b\n"
                                                               "vzeroupper"
                     : "+r"(steps)
                     :
                     : CLOBBERS);
}

const struct ceiling_dot ceiling_madd_avx2 = {
    .name = "maddubs+madd+add ymm",
    .features = CPU_AVX2 | CPU_FMA,
    .ops_per_step = 8 * 32 * 2,
    .run = madd,
};

const struct ceiling_dot ceiling_addw_avx2 = {
    .name = "maddubs+addw ymm",
    .features = CPU_AVX2 | CPU_FMA,
    .ops_per_step = 8 * 32 * 2,
    .run = addw,
};

const struct ceiling_dot ceiling_fma_avx2 = {
    .name = "fma f32 ymm",
    .features = CPU_AVX2 | CPU_FMA,
    .ops_per_step = 12 * 8 * 2,
    .run = fma_ymm,
};
