/* Every bar: a row each. Numbers and method come from a study of this design on several machines;
 * `must` is what a correct implementation of it reaches anywhere, `stretch` the best that was seen.
 */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "bench/bar.h"
#include "bench/matmul_bar.h"

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

/* ---- rows ---- */

#define SPEC(of, on, rounding, n_threads, list)                                                    \
    .measure = matmul_bar_measure, .spec = &(const struct matmul_spec)                             \
    {                                                                                              \
        .yardstick = (of), .rung = (on), .mode = (rounding), .threads = (n_threads),               \
        .n_cases = COUNT(list), .cases = (list)                                                    \
    }
#define MATMUL(of, on, n_threads, list) SPEC(of, on, ACTIVATION_G128, n_threads, list)
#define DOT MATMUL_OF_DOT

const struct bar bars[] = {
    { "K1", "GEMV g32, 1 thread: GB/s of a paired read's", 0.88, 0.93, false,
      MATMUL(MATMUL_OF_READ, NULL, 1, gemv_g32) },
    { "K1", "GEMV g128, 1 thread: GB/s of a paired read's", 0.88, 0.93, false,
      MATMUL(MATMUL_OF_READ, NULL, 1, gemv_g128) },
    { "K2", "GEMV g32, 2 threads: GB/s of a paired read's", 0.86, 0.93, false,
      MATMUL(MATMUL_OF_READ, NULL, 2, gemv_g32) },
    { "K2", "GEMV g128, 2 threads: GB/s of a paired read's", 0.86, 0.93, false,
      MATMUL(MATMUL_OF_READ, NULL, 2, gemv_g128) },
    { "K3", "GEMV, rung avx2, 1 thread: GB/s of a paired read's", 0.82, 0.90, false,
      MATMUL(MATMUL_OF_READ, "avx2", 1, gemv_both) },
    { "K3", "GEMV, rung avxvnni, 1 thread: GB/s of a paired read's", 0.85, 0.90, false,
      MATMUL(MATMUL_OF_READ, "avxvnni", 1, gemv_both) },
    { "K4", "GEMV in L2: GB/s of a read's", 0.52, 0.60, false,
      MATMUL(MATMUL_OF_CACHE_READ, NULL, 1, gemv_cached) },
    { "K4", "GEMV in L2, rung avx2: GB/s of a read's", 0.34, 0.42, false,
      MATMUL(MATMUL_OF_CACHE_READ, "avx2", 1, gemv_cached) },
    { "K5", "GEMM g32, a scale a row: GOPS of the dot product's", 0.84, 0.90, false,
      SPEC(DOT, NULL, ACTIVATION_ROW, 1, gemm_g32) },
    { "K5", "GEMM g64, a scale a row: GOPS of the dot product's", 0.90, 0.95, false,
      SPEC(DOT, NULL, ACTIVATION_ROW, 1, gemm_g64) },
    { "K5", "GEMM g128, a scale a row: GOPS of the dot product's", 0.93, 0.97, false,
      SPEC(DOT, NULL, ACTIVATION_ROW, 1, gemm_g128) },
    { "K6", "GEMM g32: GOPS of the dot product's", 0.76, 0.82, false,
      MATMUL(DOT, NULL, 1, gemm_g32) },
    { "K6", "GEMM g64: GOPS of the dot product's", 0.84, 0.88, false,
      MATMUL(DOT, NULL, 1, gemm_g64) },
    { "K6", "GEMM g128: GOPS of the dot product's", 0.90, 0.94, false,
      MATMUL(DOT, NULL, 1, gemm_g128) },
    { "K7", "GEMM asym and min g32: GOPS of the dot product's", 0.67, 0.72, false,
      MATMUL(DOT, NULL, 1, gemm_min_g32) },
    { "K7", "GEMM asym and min g64: GOPS of the dot product's", 0.79, 0.83, false,
      MATMUL(DOT, NULL, 1, gemm_min_g64) },
    { "K7", "GEMM asym and min g128: GOPS of the dot product's", 0.86, 0.90, false,
      MATMUL(DOT, NULL, 1, gemm_min_g128) },
    { "K9", "GEMM g64 and g128, rung avx2: GOPS of maddubs+madd+add's", 1.15, 1.35, false,
      MATMUL(DOT, "avx2", 1, gemm_wide_groups) },
    { "K10", "GEMM on 2 threads: GOPS of 1 thread's", 1.85, 1.95, false,
      MATMUL(MATMUL_OF_ONE_THREAD, NULL, 2, gemm_shared) },
    { "K11", "4 rows, 2 threads: time of the limit's", 1.4, 1.2, true,
      MATMUL(MATMUL_OF_LIMIT, NULL, 2, four_rows) },
};

const uint32_t n_bars = COUNT(bars);

/* ---- judging ---- */

void bar_settle(const struct bar *bar, struct bar_result *result)
{
    for (uint32_t i = 0; i < result->n_cases; i++) {
        const double figure = result->cases[i].figure;
        if (i == 0 || (bar->is_time ? figure > result->figure : figure < result->figure))
            result->figure = figure;
    }
}

const char *bar_verdict(const struct bar *bar, const struct bar_result *result)
{
    if (result->state == BAR_NOT_HERE)
        return "not on this CPU";
    if (result->state == BAR_NOT_BUILT)
        return "not built";
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
