/* Every bar: a row each. Numbers and method come from a study of this design on several machines;
 * `must` is what a correct implementation of it reaches anywhere, `stretch` the best that was seen.
 */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "bench/attend_bar.h"
#include "bench/bar.h"
#include "bench/matmul_bar.h"
#include "bench/model_bar.h"
#include "bench/team_bar.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* ---- cases ---- */

#define GEMV(format, group)                                                                        \
    {                                                                                              \
        { format, group, 4096, 4096, 1 },                                                          \
        {                                                                                          \
            format, group, 11008, 4096, 1                                                          \
        }                                                                                          \
    }
static const struct matmul_case gemv_g32[] = GEMV(QUANT_INT4, 32);
static const struct matmul_case gemv_g128[] = GEMV(QUANT_INT4, 128);
static const struct matmul_case gemv_both[] = {
    { QUANT_INT4, 32, 4096, 4096, 1 },
    { QUANT_INT4, 128, 4096, 4096, 1 },
};
static const struct matmul_case gemv_cached[] = {
    { QUANT_INT4, 32, 0, 4096, 1 },
    { QUANT_INT4, 128, 0, 4096, 1 },
};

#define GEMM(format, group)                                                                        \
    {                                                                                              \
        { format, group, 1024, 4096, 16 }, { format, group, 1024, 4096, 48 },                      \
            { format, group, 1024, 4096, 96 }, { format, group, 1024, 4096, 192 },                 \
            { format, group, 1024, 4096, 512 },                                                    \
    }
static const struct matmul_case gemm_g32[] = GEMM(QUANT_INT4, 32);
static const struct matmul_case gemm_g64[] = GEMM(QUANT_INT4, 64);
static const struct matmul_case gemm_g128[] = GEMM(QUANT_INT4, 128);

#define GEMM_MIN(group)                                                                            \
    {                                                                                              \
        { QUANT_INT4_ASYM, group, 1024, 4096, 16 }, { QUANT_INT4_ASYM, group, 1024, 4096, 48 },    \
            { QUANT_INT4_ASYM, group, 1024, 4096, 192 },                                           \
            { QUANT_INT4_ASYM, group, 1024, 4096, 512 },                                           \
            { QUANT_INT4_MIN, group, 1024, 4096, 16 }, { QUANT_INT4_MIN, group, 1024, 4096, 48 },  \
            { QUANT_INT4_MIN, group, 1024, 4096, 192 },                                            \
            { QUANT_INT4_MIN, group, 1024, 4096, 512 },                                            \
    }
static const struct matmul_case gemm_min_g32[] = GEMM_MIN(32);
static const struct matmul_case gemm_min_g64[] = GEMM_MIN(64);
static const struct matmul_case gemm_min_g128[] = GEMM_MIN(128);

static const struct matmul_case gemm_wide_groups[] = {
    { QUANT_INT4, 64, 1024, 4096, 48 },   { QUANT_INT4, 64, 1024, 4096, 192 },
    { QUANT_INT4, 64, 1024, 4096, 512 },  { QUANT_INT4, 128, 1024, 4096, 48 },
    { QUANT_INT4, 128, 1024, 4096, 192 }, { QUANT_INT4, 128, 1024, 4096, 512 },
};
static const struct matmul_case gemm_shared[] = {
    { QUANT_INT4, 32, 1024, 4096, 48 },   { QUANT_INT4, 32, 1024, 4096, 192 },
    { QUANT_INT4, 32, 1024, 4096, 512 },  { QUANT_INT4, 128, 1024, 4096, 48 },
    { QUANT_INT4, 128, 1024, 4096, 192 }, { QUANT_INT4, 128, 1024, 4096, 512 },
};
static const struct matmul_case four_rows[] = {
    { QUANT_INT4, 32, 4096, 4096, 4 },
    { QUANT_INT4, 128, 4096, 4096, 4 },
};

#define LONG_CONTEXT(type)                                                                         \
    {                                                                                              \
        { type, 8, 4, 128, 4096, 1 },                                                              \
    }
static const struct attend_case attend_f16[] = LONG_CONTEXT(KV_F16);
static const struct attend_case attend_q8[] = LONG_CONTEXT(KV_Q8);

/* ---- cases of machines without VNNI ---- */

#define SHAPES(format, group)                                                                      \
    { format, group, 4096, 4096, 1 },                                                              \
    {                                                                                              \
        format, group, 576, 1536, 1                                                                \
    }
static const struct matmul_case gemv_narrow[] = { SHAPES(QUANT_INT4, 32),
                                                  SHAPES(QUANT_INT4_MIN, 32),
                                                  SHAPES(QUANT_INT8, 32) };
static const struct matmul_case gemv_short[] = {
    SHAPES(QUANT_INT4, 128),
    { QUANT_INT4, 32, 49152, 576, 1 },
    { QUANT_INT4, 128, 49152, 576, 1 },
    { QUANT_INT4_MIN, 32, 49152, 576, 1 },
    { QUANT_INT8, 32, 49152, 576, 1 },
};
static const struct matmul_case cached_min[] = { { QUANT_INT4_MIN, 32, 0, 4096, 1 } };
static const struct matmul_case cached_int8[] = { { QUANT_INT8, 32, 0, 4096, 1 } };

#define FOURS(format, group, cols)                                                                 \
    {                                                                                              \
        { format, group, 1024, cols, 4 }, { format, group, 1024, cols, 16 },                       \
            { format, group, 1024, cols, 48 }, { format, group, 1024, cols, 192 },                 \
            { format, group, 1024, cols, 512 },                                                    \
    }
static const struct matmul_case fours_g32[] = FOURS(QUANT_INT4, 32, 1536);
static const struct matmul_case fours_g128[] = FOURS(QUANT_INT4, 128, 1536);
static const struct matmul_case fours_g128_short[] = FOURS(QUANT_INT4, 128, 576);
static const struct matmul_case fours_min[] = FOURS(QUANT_INT4_MIN, 32, 1536);
static const struct matmul_case fours_asym[] = FOURS(QUANT_INT4_ASYM, 32, 1536);
static const struct matmul_case fours_int8[] = FOURS(QUANT_INT8, 32, 1536);
static const struct matmul_case many_g32[] = {
    { QUANT_INT4, 32, 1024, 576, 48 },
    { QUANT_INT4, 32, 1024, 576, 512 },
    { QUANT_INT4, 32, 1024, 4096, 48 },
    { QUANT_INT4, 32, 1024, 4096, 512 },
};

static const struct attend_case attend_512[] = { { KV_F16, 3, 3, 64, 512, 1 },
                                                 { KV_F16, 8, 4, 128, 512, 1 } };
static const struct attend_case attend_4096[] = { { KV_F16, 3, 3, 64, 4096, 1 },
                                                  { KV_F16, 8, 4, 128, 4096, 1 } };
static const struct attend_case attend_prefill[] = { { KV_F16, 3, 3, 64, 512, 512 } };

/* ---- rows ---- */

#define SPEC(of, on, rounding, n_threads, list)                                                    \
    .measure = matmul_bar_measure, .spec = &(const struct matmul_spec)                             \
    {                                                                                              \
        .yardstick = (of), .rung = (on), .mode = (rounding), .threads = (n_threads),               \
        .n_cases = COUNT(list), .cases = (list)                                                    \
    }
#define MATMUL(of, on, n_threads, list) SPEC(of, on, ACTIVATION_G128, n_threads, list)
#define DOT MATMUL_OF_DOT

#define ATTEND(of, on, peak, n_threads, list)                                                      \
    .measure = attend_bar_measure, .spec = &(const struct attend_spec)                             \
    {                                                                                              \
        .yardstick = (of), .rung = (on), .threads = (n_threads), .n_cases = COUNT(list),           \
        .cases = (list),                                                                           \
    }

/* Which machines a bar is stated for, by the rung under test. */
#define VNNI .stated_for = BAR_FOR_VNNI
#define VNNI_ONLY .stated_for = BAR_FOR_VNNI, .is_replaced = true
#define AVX2 .stated_for = BAR_FOR_AVX2

const struct bar bars[] = {
    { "K1", "GEMV g32, 1 thread: GB/s of a paired read's", 0.88, 0.93, false, VNNI,
      MATMUL(MATMUL_OF_READ, NULL, 1, gemv_g32) },
    { "K1", "GEMV g128, 1 thread: GB/s of a paired read's", 0.88, 0.93, false, VNNI,
      MATMUL(MATMUL_OF_READ, NULL, 1, gemv_g128) },
    { "K2", "GEMV g32, 2 threads: GB/s of a paired read's", 0.86, 0.93, false, VNNI,
      MATMUL(MATMUL_OF_READ, NULL, 2, gemv_g32) },
    { "K2", "GEMV g128, 2 threads: GB/s of a paired read's", 0.86, 0.93, false, VNNI,
      MATMUL(MATMUL_OF_READ, NULL, 2, gemv_g128) },
    { "K3", "GEMV, rung avx2, 1 thread: GB/s of a paired read's", 0.82, 0.90, false, VNNI_ONLY,
      MATMUL(MATMUL_OF_READ, "avx2", 1, gemv_both) },
    { "K3", "GEMV, rung avxvnni, 1 thread: GB/s of a paired read's", 0.85, 0.90, false, VNNI_ONLY,
      MATMUL(MATMUL_OF_READ, "avxvnni", 1, gemv_both) },
    { "K3a", "GEMV g32, 1 thread: GB/s of a paired read's", 0.92, 1.08, false, AVX2,
      MATMUL(MATMUL_OF_READ, NULL, 1, gemv_narrow) },
    { "K3a", "GEMV g32, 2 threads: GB/s of a paired read's", 0.88, 1.0, false, AVX2,
      MATMUL(MATMUL_OF_READ, NULL, 2, gemv_narrow) },
    { "K3b", "GEMV g128, short rows, 1 thread: GB/s of a paired read's", 0.86, 1.0, false, AVX2,
      MATMUL(MATMUL_OF_READ, NULL, 1, gemv_short) },
    { "K3b", "GEMV g128, short rows, 2 threads: GB/s of a paired read's", 0.84, 0.95, false, AVX2,
      MATMUL(MATMUL_OF_READ, NULL, 2, gemv_short) },
    { "K4", "GEMV in L2: GB/s of a read's", 0.52, 0.60, false, VNNI_ONLY,
      MATMUL(MATMUL_OF_CACHE_READ, NULL, 1, gemv_cached) },
    { "K4", "GEMV in L2, rung avx2: GB/s of a read's", 0.34, 0.42, false, VNNI_ONLY,
      MATMUL(MATMUL_OF_CACHE_READ, "avx2", 1, gemv_cached) },
    { "K4a", "GEMV in L2: GOPS of maddubs+madd+add's", 0.90, 1.10, false, AVX2,
      MATMUL(DOT, NULL, 1, gemv_cached) },
    { "K4a", "GEMV in L2, int4-min: GOPS of maddubs+madd+add's", 0.82, 1.00, false, AVX2,
      MATMUL(DOT, NULL, 1, cached_min) },
    { "K4a", "GEMV in L2, int8: GOPS of maddubs+madd+add's", 0.60, 0.72, false, AVX2,
      MATMUL(DOT, NULL, 1, cached_int8) },
    { "K5", "GEMM g32, a scale a row: GOPS of the dot product's", 0.84, 0.90, false, VNNI,
      SPEC(DOT, NULL, ACTIVATION_ROW, 1, gemm_g32) },
    { "K5", "GEMM g64, a scale a row: GOPS of the dot product's", 0.90, 0.95, false, VNNI,
      SPEC(DOT, NULL, ACTIVATION_ROW, 1, gemm_g64) },
    { "K5", "GEMM g128, a scale a row: GOPS of the dot product's", 0.93, 0.97, false, VNNI,
      SPEC(DOT, NULL, ACTIVATION_ROW, 1, gemm_g128) },
    { "K6", "GEMM g32: GOPS of the dot product's", 0.76, 0.82, false, VNNI,
      MATMUL(DOT, NULL, 1, gemm_g32) },
    { "K6", "GEMM g64: GOPS of the dot product's", 0.84, 0.88, false, VNNI,
      MATMUL(DOT, NULL, 1, gemm_g64) },
    { "K6", "GEMM g128: GOPS of the dot product's", 0.90, 0.94, false, VNNI,
      MATMUL(DOT, NULL, 1, gemm_g128) },
    { "K7", "GEMM asym and min g32: GOPS of the dot product's", 0.67, 0.72, false, VNNI,
      MATMUL(DOT, NULL, 1, gemm_min_g32) },
    { "K7", "GEMM asym and min g64: GOPS of the dot product's", 0.79, 0.83, false, VNNI,
      MATMUL(DOT, NULL, 1, gemm_min_g64) },
    { "K7", "GEMM asym and min g128: GOPS of the dot product's", 0.86, 0.90, false, VNNI,
      MATMUL(DOT, NULL, 1, gemm_min_g128) },
    { "K9", "GEMM g64 and g128, rung avx2: GOPS of maddubs+madd+add's", 1.15, 1.35, false,
      VNNI_ONLY, MATMUL(DOT, "avx2", 1, gemm_wide_groups) },
    { "K9a", "GEMM g32: GOPS of maddubs+madd+add's", 1.28, 1.45, false, AVX2,
      MATMUL(DOT, NULL, 1, fours_g32) },
    { "K9a", "GEMM g32, many rows, 2 threads: GOPS of maddubs+madd+add's", 1.28, 1.45, false, AVX2,
      MATMUL(DOT, NULL, 2, many_g32) },
    { "K9b", "GEMM g128: GOPS of maddubs+madd+add's", 1.48, 1.68, false, AVX2,
      MATMUL(DOT, NULL, 1, fours_g128) },
    { "K9b", "GEMM g128, 576 columns: GOPS of maddubs+madd+add's", 1.38, 1.60, false, AVX2,
      MATMUL(DOT, NULL, 1, fours_g128_short) },
    { "K9c", "GEMM int4-min g32: GOPS of maddubs+madd+add's", 1.18, 1.38, false, AVX2,
      MATMUL(DOT, NULL, 1, fours_min) },
    { "K9c", "GEMM int4-asym g32: GOPS of maddubs+madd+add's", 1.10, 1.28, false, AVX2,
      MATMUL(DOT, NULL, 1, fours_asym) },
    { "K9c", "GEMM int8 g32: GOPS of maddubs+madd+add's", 0.72, 0.82, false, AVX2,
      MATMUL(DOT, NULL, 1, fours_int8) },
    { "K10", "GEMM on 2 threads: GOPS of 1 thread's", 1.85, 1.95, false,
      MATMUL(MATMUL_OF_ONE_THREAD, NULL, 2, gemm_shared) },
    { "K11", "4 rows, 2 threads: time of the limit's", 1.4, 1.2, true, VNNI,
      MATMUL(MATMUL_OF_LIMIT, NULL, 2, four_rows) },
    { "A1", "decode attention, f16, 2 threads: GB/s of a read's", 0.70, 0.88, false, VNNI_ONLY,
      ATTEND(ATTEND_OF_READ, NULL, NULL, 2, attend_f16) },
    { "A1", "decode attention, q8, 2 threads: GB/s of a read's", 0.70, 0.88, false, VNNI_ONLY,
      ATTEND(ATTEND_OF_READ, NULL, NULL, 2, attend_q8) },
    { "A1a", "decode attention at 512, 1 thread: GB/s of a read's", 0.62, 0.75, false, AVX2,
      ATTEND(ATTEND_OF_READ, NULL, NULL, 1, attend_512) },
    { "A1a", "decode attention at 4096, 1 thread: GB/s of a read's", 0.68, 0.82, false, AVX2,
      ATTEND(ATTEND_OF_READ, NULL, NULL, 1, attend_4096) },
    { "A1a", "decode attention at 512, 2 threads: GB/s of a read's", 0.62, 0.75, false, AVX2,
      ATTEND(ATTEND_OF_READ, NULL, NULL, 2, attend_512) },
    { "A1a", "decode attention at 4096, 2 threads: GB/s of a read's", 0.68, 0.82, false, AVX2,
      ATTEND(ATTEND_OF_READ, NULL, NULL, 2, attend_4096) },
    { "A2", "decode attention: speed of one call a query head's", 1.8, 2.5, false,
      ATTEND(ATTEND_OF_UNSHARED, NULL, NULL, 2, attend_f16) },
    { "A3a", "prefill attention, 512 rows: GFLOPS of FMA's", 0.45, 0.60, false, AVX2,
      ATTEND(ATTEND_OF_DOT, NULL, "fma f32 ymm", 1, attend_prefill) },
    { "T1", "empty loop in a list of them: microseconds", 0.25, 0.1, true,
      .measure = team_bar_empty },
    { "T2", "loops of a decode step, if empty: % of its time", 3, 1, true,
      .measure = model_bar_sync },
    { "T3", "beside a busy thread, 2 threads: speed of alone", 0.45, 0.6, false,
      .measure = team_bar_beside },
    { "L1", "opening a shard, 0 bytes copied: ms a GiB", 50, 5, true, .measure = model_bar_open },
};

const uint32_t n_bars = COUNT(bars);

/* ---- judging ---- */

static bool is_avx2(const struct kernel *kernel)
{
    return strcmp(kernel->name, "avx2") == 0;
}

bool bar_is_listed(const struct bar *bar, const struct kernel *kernel)
{
    return bar->stated_for == BAR_FOR_AVX2 ? is_avx2(kernel)
                                           : !(bar->is_replaced && is_avx2(kernel));
}

bool bar_measure(const struct bar *bar, struct bench *bench, struct bar_result *result,
                 struct err *err)
{
    *result = (struct bar_result){ .state = BAR_MEASURED };
    const char *const rung = bench->options.kernel->name;
    const bool has_vnni = strcmp(rung, "scalar") != 0 && strcmp(rung, "avx2") != 0;
    if (bar->stated_for == BAR_FOR_VNNI && !has_vnni) {
        result->state = BAR_NOT_HERE;
        snprintf(result->why, sizeof(result->why), "stated for rungs with VNNI, not %s", rung);
        return true;
    }
    if (!bar->measure(bar, bench, result, err))
        return false;
    for (uint32_t i = 0; i < result->n_cases; i++) {
        const double figure = result->cases[i].figure;
        if (i == 0 || (bar->is_time ? figure > result->figure : figure < result->figure))
            result->figure = figure;
    }
    return true;
}

const char *bar_verdict(const struct bar *bar, const struct bar_result *result)
{
    if (result->state == BAR_NOT_HERE)
        return "not on this CPU";
    if (result->state == BAR_NOT_ASKED)
        return "not asked";
    const double sign = bar->is_time ? -1.0 : 1.0;
    return sign * result->figure >= sign * bar->stretch ? "stretch"
           : sign * result->figure >= sign * bar->must  ? "pass"
                                                        : "miss";
}

static bool has_digit(struct str word)
{
    for (size_t i = 0; i < word.size; i++) {
        if (word.data[i] >= '0' && word.data[i] <= '9')
            return true;
    }
    return false;
}

/* "K1" is the bar K1 and not K10; "K3" also K3a; "K" all that begin so. */
bool bar_is_named(const struct bar *bar, const char *list)
{
    struct str rest = str_from(list), word;
    const struct str id = str_from(bar->id);
    while (str_split(&rest, ',', &word)) {
        if (word.size == 0 || !str_starts(id, word))
            continue;
        const char next = bar->id[word.size]; // the NUL when the word is the whole id
        if (!has_digit(word) || next < '0' || next > '9')
            return true;
    }
    return false;
}
