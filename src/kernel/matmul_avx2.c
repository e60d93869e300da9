/* Matrix products with AVX2: no dot instruction, one pipe that multiplies integers.
 *
 * A nibble times an int8, added pairwise by vpmaddubsw, is at most 2 x 15 x 127, so products are
 * summed in int16 and widened once per run instead of once per 4 k. A run of 32 k fits as it is
 * (30,480); a run of 64 k starts at -8 times the sums of the activations, so that its last value is
 * sum q (w - 8), at most 32,512, whatever wraps on the way. The start is packed with the
 * activations. int8 weights cannot be summed in 16 bits: |w| times q with w's sign, widened at
 * once; 2 x 128 x 127 fits.
 *
 * Few rows: up to four panels walked together, block by block, each line asked for ahead of time:
 * one stream alone gets half of the memory's rate on machines that have this rung as their best.
 * Many rows: 16 rows of weights against 4 of activations, unpacked in registers; the float
 * accumulators stay in the first-level cache. The step of a strip is one piece of inline assembly
 * because compilers hoist its broadcasts and then spill. */
#include <immintrin.h>
#include <string.h>

#include "kernel/fmath_avx2.h"
#include "kernel/kernel_internal.h"

/* How far ahead of a panel's walk lines are asked for; a property of the machines, not of the
 * format. */
#define PREFETCH_BYTES 512

enum { LINE = 64, EIGHT = 8, QUARTERS = 4, STRIP = 16, TILE_ROWS = 4 };

LEAF_INLINE bool is_int8(enum quant_format format)
{
    return format == QUANT_INT8 || format == QUANT_INT8_MIN;
}

LEAF_INLINE bool has_minimum(enum quant_format format)
{
    return format == QUANT_INT8_MIN || format == QUANT_INT4_MIN;
}

LEAF_INLINE uint32_t header_of(enum quant_format format)
{
    return has_minimum(format) || format == QUANT_INT4_ASYM ? 128 : 64;
}

LEAF_INLINE __m256i load_256(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

/* Four activations in every lane. */
LEAF_INLINE __m256i broadcast_word(const int8_t *q)
{
    int32_t word;
    memcpy(&word, q, sizeof(word));
    return _mm256_set1_epi32(word);
}

LEAF_INLINE __m256 f16_values(const uint8_t *at)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)at));
}

/* ---- activations ---- */

static __m256i magnitudes(const float *x, uint32_t n, uint32_t k)
{
    const __m256 v = k < n ? load8(x + k, n - k) : _mm256_setzero_ps();
    return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}

/* Magnitudes are compared as integers: they order alike, and what is not finite is largest. */
static bool measure(const float *x, uint32_t n, float maxima[CHUNK_SUBS])
{
    __m256i m[CHUNK_SUBS];
    for (uint32_t i = 0; i < CHUNK_SUBS; i++) {
        const uint32_t k = i * SUM_GROUP;
        m[i] =
            _mm256_max_epu32(_mm256_max_epu32(magnitudes(x, n, k), magnitudes(x, n, k + 8)),
                             _mm256_max_epu32(magnitudes(x, n, k + 16), magnitudes(x, n, k + 24)));
    }
    /* Four registers of 8 become one of 4, like a transposition. */
    const __m256i m01 =
        _mm256_max_epu32(_mm256_unpacklo_epi32(m[0], m[1]), _mm256_unpackhi_epi32(m[0], m[1]));
    const __m256i m23 =
        _mm256_max_epu32(_mm256_unpacklo_epi32(m[2], m[3]), _mm256_unpackhi_epi32(m[2], m[3]));
    const __m256i all =
        _mm256_max_epu32(_mm256_unpacklo_epi64(m01, m23), _mm256_unpackhi_epi64(m01, m23));
    const __m128i by4 =
        _mm_max_epu32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    _mm_storeu_si128((__m128i *)(void *)maxima, by4);
    const __m128i is_bad = _mm_cmpgt_epi32(by4, _mm_set1_epi32(0x7f7fffff));
    return _mm_movemask_epi8(is_bad) == 0;
}

static void quantise(const float *x, uint32_t n, const float factors[CHUNK_SUBS],
                     int8_t q[ACTIVATION_CHUNK])
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); // undoes the packs' lanes
    for (uint32_t sub = 0; sub < CHUNK_SUBS; sub++) {
        const __m256 factor = _mm256_set1_ps(factors[sub]);
        __m256i r[4];
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t k = sub * SUM_GROUP + j * EIGHT;
            const __m256 v = k < n ? load8(x + k, n - k) : _mm256_setzero_ps();
            r[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v, factor));
        }
        const __m256i bytes =
            _mm256_packs_epi16(_mm256_packs_epi32(r[0], r[1]), _mm256_packs_epi32(r[2], r[3]));
        _mm256_storeu_si256((__m256i *)(void *)(q + sub * SUM_GROUP),
                            _mm256_permutevar8x32_epi32(bytes, order));
    }
}

static const struct activation_leaves activation_leaves = {
    .measure = measure,
    .quantise = quantise,
    .starts = STARTS_HALVES,
};

static bool pack(struct activation *a, uint32_t first, uint32_t end)
{
    return activation_pack(a, first, end, &activation_leaves);
}

/* ---- one group of a tile ---- */

/* The rows of a tile at one group of weights. */
struct group_view {
    const int8_t *q;
    const uint32_t *starts; // [subs][size]
    const int32_t *sums;    // [subs][size]
    const float *scaled_sums;
    const float *scales;
    uint32_t n_subs; // runs of 32 k; fewer than the group has when the matrix ends
};

LEAF_INLINE struct group_view group_view(const struct panel_job *job, uint32_t k, uint32_t size)
{
    const struct tile *const tile = job->tile;
    const uint32_t left = min_u32(job->cols - k, job->dot_group);
    const size_t at = (size_t)(k / SUM_GROUP) * size;
    return (struct group_view){
        .q = tile->q + (size_t)k * size,
        .starts = tile->runs[0].starts + at,
        .sums = tile->runs[0].sums + at,
        .scaled_sums = tile->runs[0].scaled + at,
        .scales = tile->scales + at,
        .n_subs = (left + SUM_GROUP - 1) / SUM_GROUP,
    };
}

LEAF_INLINE int32_t group_sum(const struct group_view *view, uint32_t i, uint32_t size)
{
    int32_t sum = view->sums[i];
    for (uint32_t sub = 1; sub < view->n_subs; sub++)
        sum += view->sums[sub * size + i];
    return sum;
}

/* What is taken from the stored values of 8 rows of weights, from `block`'s row `row` on. */
LEAF_INLINE __m256i zero_points(const uint8_t *block, uint32_t row, const enum quant_format format)
{
    if (format == QUANT_INT4_ASYM)
        return _mm256_cvtepu8_epi32(
            _mm_loadl_epi64((const __m128i *)(const void *)(block + 64 + row)));
    return _mm256_set1_epi32(is_int8(format) ? 128 : format == QUANT_INT4 ? 8 : 0);
}

/* Whether runs of 64 k start at -8 x sums; runs of a group of 32 without a fixed zero point of 8
 * fit uncentred. */
LEAF_INLINE bool is_centred(enum quant_format format, uint32_t group)
{
    return format == QUANT_INT4 || group > SUM_GROUP;
}

/* What row i's int16 sums start with, for the run of n_subs x 32 k from `sub` on. */
LEAF_INLINE __m256i first_sums(const struct group_view *view, uint32_t sub, uint32_t n_subs,
                               uint32_t i, uint32_t size, bool centred)
{
    if (!centred)
        return _mm256_setzero_si256();
    const __m256i one = _mm256_set1_epi32((int)view->starts[sub * size + i]);
    if (n_subs == 1)
        return one;
    return _mm256_add_epi16(one, _mm256_set1_epi32((int)view->starts[(sub + 1) * size + i]));
}

/* What the zero point adds to the dot of 8 rows of weights with row i: the sums are of w - 8 if
 * centred, of w if not. */
LEAF_INLINE __m256i correct(__m256i dot, const struct group_view *view, const uint8_t *zeros,
                            uint32_t i, uint32_t size, const enum quant_format format, bool centred)
{
    const int32_t offset = centred ? 8 : 0;
    if (format == QUANT_INT4_MIN && centred)
        return _mm256_add_epi32(dot, _mm256_set1_epi32(8 * group_sum(view, i, size)));
    if (format != QUANT_INT4_ASYM)
        return dot;
    /* The sum fits 16 bits: the pair (offset - z, anything) times (sum, 0) is one multiply. */
    const __m256i z = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)zeros));
    const __m256i sum = _mm256_set1_epi32(group_sum(view, i, size) & 0xffff);
    return _mm256_add_epi32(dot,
                            _mm256_madd_epi16(_mm256_sub_epi32(_mm256_set1_epi32(offset), z), sum));
}

/* acc after one group: rule 2. */
LEAF_INLINE __m256 fold(__m256 acc, __m256i dot, const uint8_t *block, uint32_t row,
                        const struct group_view *view, uint32_t i, uint32_t size,
                        const enum quant_format format)
{
    const __m256 x_scale = _mm256_set1_ps(view->scales[i]);
    const __m256 scale = _mm256_mul_ps(f16_values(block + row * 2), x_scale);
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, acc);
    if (has_minimum(format)) {
        const float scaled = view->n_subs == 1 ? view->scaled_sums[i]
                                               : view->scales[i] * (float)group_sum(view, i, size);
        acc = _mm256_fmadd_ps(f16_values(block + 64 + row * 2), _mm256_set1_ps(scaled), acc);
    }
    return acc;
}

/* 4 k of 8 rows of int8 weights (already signed) times a word, as int32. */
LEAF_INLINE __m256i dot_int8(__m256i w, __m256i magnitude, __m256i word)
{
    const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(word, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* ---- panels: 32 rows of weights in stream order, 1 or 2 rows of activations ---- */

/* Half a block, 16 rows, int4: dots[quarter][row]. */
LEAF_INLINE void half_block_int4(const uint8_t *lines, const struct group_view *view,
                                 __m256i (*dots)[2], const uint32_t size, bool centred)
{
    const __m256i low = _mm256_set1_epi8(15);
    uint32_t sub = 0;
    do { // a group has at least one run
        const uint32_t n_subs = view->n_subs - sub >= 2 ? 2 : 1;
        const int8_t *q = view->q + (size_t)sub * SUM_GROUP * size;
        __m256i sums[2][2];
        UNROLL_2(i, size,
                 sums[0][i] = sums[1][i] = first_sums(view, sub, n_subs, i, size, centred);)
        for (uint32_t j = 0; j < 4 * n_subs; j++) {
            const __m256i w[2] = { load_256(lines), load_256(lines + LINE / 2) };
            _mm_prefetch((const char *)lines + PREFETCH_BYTES, _MM_HINT_T0);
            UNROLL_2(i, size, {
                const __m256i x0 = broadcast_word(q + i * 4);
                const __m256i x1 = broadcast_word(q + (size + i) * 4);
                UNROLL_2(n, 2, {
                    const __m256i w0 = _mm256_and_si256(w[n], low);
                    const __m256i w1 = _mm256_and_si256(_mm256_srli_epi16(w[n], 4), low);
                    const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(w0, x0),
                                                           _mm256_maddubs_epi16(w1, x1));
                    sums[n][i] = _mm256_add_epi16(sums[n][i], pairs);
                })
            })
            lines += LINE;
            q += 8 * size;
        }
        UNROLL_2(i, size, { UNROLL_2(n, 2, {
                     const __m256i wide = _mm256_madd_epi16(sums[n][i], _mm256_set1_epi16(1));
                     dots[n][i] = sub ? _mm256_add_epi32(dots[n][i], wide) : wide;
                 }) })
        sub += 2;
    } while (sub < view->n_subs);
}

LEAF_INLINE void half_block_int8(const uint8_t *lines, const struct group_view *view,
                                 __m256i (*dots)[2], const uint32_t size)
{
    const int8_t *q = view->q;
    UNROLL_2(i, size, dots[0][i] = dots[1][i] = _mm256_setzero_si256();)
    for (uint32_t j = 0; j < 8 * view->n_subs; j++) {
        _mm_prefetch((const char *)lines + PREFETCH_BYTES, _MM_HINT_T0);
        UNROLL_2(n, 2, {
            const __m256i w =
                _mm256_xor_si256(load_256(lines + n * (LINE / 2)), _mm256_set1_epi8(-128));
            const __m256i magnitude = _mm256_abs_epi8(w);
            UNROLL_2(i, size,
                     dots[n][i] = _mm256_add_epi32(
                         dots[n][i], dot_int8(w, magnitude, broadcast_word(q + i * 4)));)
        })
        lines += LINE;
        q += 4 * size;
    }
}

/* Where the lines of half `half` begin for the dot that begins at column k of the panel. */
LEAF_INLINE const uint8_t *lines_at(const uint8_t *block, const struct panel_job *job, uint32_t k,
                                    uint32_t half, const enum quant_format format)
{
    const uint32_t column_bytes = is_int8(format) ? 2 : 1; // halves of a byte, 16 rows
    const uint32_t columns = half * job->group + k % job->group;
    return block + header_of(format) + columns * (STRIP / 2) * column_bytes;
}

/* The dots at column k into acc[size][32]. */
LEAF_INLINE void block_panel(const uint8_t *block, const struct panel_job *job, uint32_t k,
                             const struct group_view *view, float *acc,
                             const enum quant_format format, const uint32_t size)
{
    const bool centred = is_centred(format, job->dot_group);
    for (uint32_t at = 0; at < header_of(format) && k % job->group == 0; at += LINE)
        _mm_prefetch((const char *)block + at + PREFETCH_BYTES, _MM_HINT_T0);
    for (uint32_t half = 0; half < 2; half++) {
        const uint8_t *const lines = lines_at(block, job, k, half, format);
        __m256i dots[2][2];
        if (is_int8(format))
            half_block_int8(lines, view, dots, size);
        else
            half_block_int4(lines, view, dots, size, centred);
        UNROLL_2(n, 2, {
            const uint32_t row = half * STRIP + n * EIGHT;
            UNROLL_2(i, size, {
                float *const to = acc + i * QUANT_PANEL_ROWS + row;
                const __m256i dot =
                    correct(dots[n][i], view, block + 64 + row, i, size, format, centred);
                _mm256_store_ps(to,
                                fold(_mm256_load_ps(to), dot, block, row, view, i, size, format));
            })
        })
    }
}

/* All panels of the job, `together` at a time, block by block. */
LEAF_INLINE void panels_walk(const struct panel_job *job, float *out,
                             const enum quant_format format, const uint32_t size)
{
    const uint32_t together = is_int8(format) || job->group > 64 ? 2 : PANELS_CAP;
    const size_t panel_floats = (size_t)size * QUANT_PANEL_ROWS;
    const size_t block_step =
        header_of(format) + (size_t)job->group * QUANT_PANEL_ROWS / (is_int8(format) ? 1 : 2);
    memset(out, 0, job->n_panels * panel_floats * sizeof(float));
    for (uint32_t first = 0; first < job->n_panels; first += together) {
        const uint32_t left = job->n_panels - first, n = left < together ? left : together;
        const uint8_t *block = job->data + first * job->panel_bytes;
        for (uint32_t k = 0; k < job->cols; k += job->dot_group) {
            block += k > 0 && k % job->group == 0 ? block_step : 0;
            const struct group_view view = group_view(job, k, size);
            for (uint32_t i = 0; i < n; i++)
                block_panel(block + i * job->panel_bytes, job, k, &view,
                            out + (first + i) * panel_floats, format, size);
        }
    }
}

#define PANELS_FUNCTION(name, format)                                                              \
    static void name(const struct panel_job *job, float *out)                                      \
    {                                                                                              \
        if (job->tile->size == 1)                                                                  \
            panels_walk(job, out, format, 1);                                                      \
        else                                                                                       \
            panels_walk(job, out, format, 2);                                                      \
    }

PANELS_FUNCTION(panels_int8, QUANT_INT8)
PANELS_FUNCTION(panels_int8_min, QUANT_INT8_MIN)
PANELS_FUNCTION(panels_int4, QUANT_INT4)
PANELS_FUNCTION(panels_int4_asym, QUANT_INT4_ASYM)
PANELS_FUNCTION(panels_int4_min, QUANT_INT4_MIN)

/* ---- strips: 16 rows of weights, 2 to 4 rows of activations ---- */

struct word {
    int8_t q[4];
};

/* sums[0..1] += the pairs of w0, w1 (8 rows each) times one word. */
#define STEP(sums, w0, w1, at)                                                                     \
    do {                                                                                           \
        __m256i word_, pairs_;                                                                     \
        __asm__ volatile("vpbroadcastd %4, %2\n\t"                                                 \
                         "vpmaddubsw %2, %5, %3\n\t"                                               \
                         "vpmaddubsw %2, %6, %2\n\t"                                               \
                         "vpaddw %3, %0, %0\n\t"                                                   \
                         "vpaddw %2, %1, %1"                                                       \
                         : "+x"((sums)[0]), "+x"((sums)[1]), "=&x"(word_), "=&x"(pairs_)           \
                         : "m"(*(const struct word *)(const void *)(at)), "x"(w0), "x"(w1));       \
    } while (0)

LEAF_INLINE void strip_run_int4(const uint8_t *lines, const int8_t *q, uint32_t n_lines,
                                __m256i (*sums)[2], const uint32_t size)
{
    const __m256i low = _mm256_set1_epi8(15);
    for (uint32_t j = 0; j < n_lines; j++) {
        __m256i w0 = _mm256_and_si256(load_256(lines), low);
        __m256i w1 = _mm256_and_si256(load_256(lines + LINE / 2), low);
        UNROLL_4(i, size, STEP(sums[i], w0, w1, q + i * 4);)
        w0 = _mm256_and_si256(_mm256_srli_epi16(load_256(lines), 4), low);
        w1 = _mm256_and_si256(_mm256_srli_epi16(load_256(lines + LINE / 2), 4), low);
        UNROLL_4(i, size, STEP(sums[i], w0, w1, q + (size + i) * 4);)
        lines += LINE;
        q += 8 * size;
    }
}

/* dots[row][quarter] of one group. */
LEAF_INLINE void strip_group_int4(const uint8_t *lines, const struct group_view *view,
                                  __m256i (*dots)[2], const uint32_t size, bool centred)
{
    uint32_t sub = 0;
    do { // a group has at least one run
        const uint32_t n_subs = view->n_subs - sub >= 2 ? 2 : 1;
        __m256i sums[TILE_ROWS][2];
        UNROLL_4(i, size,
                 sums[i][0] = sums[i][1] = first_sums(view, sub, n_subs, i, size, centred);)
        strip_run_int4(lines + (size_t)sub * 4 * LINE, view->q + (size_t)sub * SUM_GROUP * size,
                       4 * n_subs, sums, size);
        UNROLL_4(i, size, { UNROLL_2(n, 2, {
                     const __m256i wide = _mm256_madd_epi16(sums[i][n], _mm256_set1_epi16(1));
                     dots[i][n] = sub ? _mm256_add_epi32(dots[i][n], wide) : wide;
                 }) })
        sub += 2;
    } while (sub < view->n_subs);
}

LEAF_INLINE void strip_group_int8(const uint8_t *lines, const struct group_view *view,
                                  __m256i (*dots)[2], const uint32_t size)
{
    const int8_t *q = view->q;
    UNROLL_4(i, size, dots[i][0] = dots[i][1] = _mm256_setzero_si256();)
    for (uint32_t j = 0; j < 8 * view->n_subs; j++) {
        __m256i w[2], magnitude[2];
        UNROLL_2(n, 2, {
            w[n] = _mm256_xor_si256(load_256(lines + n * (LINE / 2)), _mm256_set1_epi8(-128));
            magnitude[n] = _mm256_abs_epi8(w[n]);
        })
        UNROLL_4(i, size, {
            const __m256i word = broadcast_word(q + i * 4);
            UNROLL_2(n, 2,
                     dots[i][n] = _mm256_add_epi32(dots[i][n], dot_int8(w[n], magnitude[n], word));)
        })
        lines += LINE;
        q += 4 * size;
    }
}

LEAF_INLINE void strip_tile(const struct panel_job *job, uint32_t half, float *acc,
                            const enum quant_format format, const uint32_t size)
{
    const uint32_t block_step =
        header_of(format) + job->group * QUANT_PANEL_ROWS / (is_int8(format) ? 1 : 2);
    const bool centred = is_centred(format, job->dot_group);
    const uint8_t *block = job->data;
    memset(acc, 0, size * STRIP * sizeof(float));
    for (uint32_t k = 0; k < job->cols; k += job->dot_group) {
        const bool is_begun = k % job->group != 0;
        block += k > 0 && !is_begun ? block_step : 0;
        const struct group_view view = group_view(job, k, size);
        const uint8_t *const lines = lines_at(block, job, k, half, format);
        for (uint32_t at = 0; job->is_first && !is_begun && at < block_step; at += LINE)
            _mm_prefetch((const char *)block + at + PREFETCH_BYTES, _MM_HINT_T0);
        __m256i dots[TILE_ROWS][2];
        if (is_int8(format))
            strip_group_int8(lines, &view, dots, size);
        else
            strip_group_int4(lines, &view, dots, size, centred);
        UNROLL_4(i, size, { UNROLL_2(n, 2, {
                     const uint32_t row = half * STRIP + n * EIGHT;
                     float *const to = acc + i * STRIP + n * EIGHT;
                     const __m256i dot =
                         correct(dots[i][n], &view, block + 64 + row, i, size, format, centred);
                     _mm256_store_ps(
                         to, fold(_mm256_load_ps(to), dot, block, row, &view, i, size, format));
                 }) })
    }
}

#define STRIP_FUNCTION(name, format)                                                               \
    static void name(const struct panel_job *job, uint32_t half, float *acc)                       \
    {                                                                                              \
        if (job->tile->size == 4)                                                                  \
            strip_tile(job, half, acc, format, 4);                                                 \
        else if (job->tile->size == 3)                                                             \
            strip_tile(job, half, acc, format, 3);                                                 \
        else                                                                                       \
            strip_tile(job, half, acc, format, 2);                                                 \
    }

STRIP_FUNCTION(strip_int8, QUANT_INT8)
STRIP_FUNCTION(strip_int8_min, QUANT_INT8_MIN)
STRIP_FUNCTION(strip_int4, QUANT_INT4)
STRIP_FUNCTION(strip_int4_asym, QUANT_INT4_ASYM)
STRIP_FUNCTION(strip_int4_min, QUANT_INT4_MIN)

/* ---- float panels ---- */

LEAF_INLINE __m256 float_values(const uint8_t *panel, size_t index, const enum quant_format format)
{
    if (format == QUANT_F32)
        return _mm256_loadu_ps((const float *)(const void *)panel + index);
    if (format == QUANT_F16)
        return f16_values(panel + index * 2);
    const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(panel + index * 2));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/* n_quarters x 8 rows of weights from `row` on, `size` rows of activations. */
LEAF_INLINE void float_rows(const uint8_t *panel, const struct panel_job *job, uint32_t row,
                            float *out, const enum quant_format format, const uint32_t size,
                            const uint32_t n_quarters)
{
    const float *x[TILE_ROWS];
    __m256 acc[TILE_ROWS][QUARTERS];
    UNROLL_4(i, size, {
        x[i] = tile_x(job->tile, i);
        UNROLL_4(n, n_quarters, acc[i][n] = _mm256_setzero_ps();)
    })
    for (uint32_t k = 0; k < job->cols; k++) {
        __m256 w[QUARTERS];
        UNROLL_4(n, n_quarters,
                 w[n] =
                     float_values(panel, (size_t)k * QUANT_PANEL_ROWS + row + n * EIGHT, format);)
        UNROLL_4(i, size, {
            const __m256 v = _mm256_set1_ps(x[i][k]);
            UNROLL_4(n, n_quarters, acc[i][n] = _mm256_fmadd_ps(w[n], v, acc[i][n]);)
        })
    }
    UNROLL_4(i, size, {
        UNROLL_4(n, n_quarters,
                 _mm256_store_ps(out + i * QUANT_PANEL_ROWS + row + n * EIGHT, acc[i][n]);)
    })
}

/* 8 rows of a quantised panel from `row` on as the floats that they mean, column by column. */
LEAF_INLINE void widened_rows(const uint8_t *block, const struct panel_job *job, uint32_t row,
                              float *out, const enum quant_format format, const uint32_t size)
{
    const uint32_t line_k = is_int8(format) ? 4 : 8;
    const __m256i mask = _mm256_set1_epi32(is_int8(format) ? 255 : 15);
    const float *x[TILE_ROWS];
    __m256 acc[TILE_ROWS];
    UNROLL_4(i, size, x[i] = tile_x(job->tile, i); acc[i] = _mm256_setzero_ps();)
    for (uint32_t k = 0; k < job->cols;) {
        const uint32_t n = min_u32(job->group, job->cols - k);
        const uint8_t *const lines = lines_at(block, job, 0, row / STRIP, format) + row % STRIP * 4;
        const __m256i zero = zero_points(block, row, format);
        const __m256 scale = f16_values(block + row * 2);
        const __m256 minimum = has_minimum(format) ? f16_values(block + 64 + row * 2) : scale;
        for (uint32_t j = 0; j < n; j++, k++) {
            const uint32_t shift = j % 4 * 8 + (!is_int8(format) && j % 8 >= 4 ? 4 : 0);
            const __m256i line = load_256(lines + (size_t)(j / line_k) * LINE);
            const __m256i q = _mm256_sub_epi32(
                _mm256_and_si256(_mm256_srl_epi32(line, _mm_cvtsi32_si128((int)shift)), mask),
                zero);
            __m256 w = _mm256_cvtepi32_ps(q);
            w = has_minimum(format) ? _mm256_fmadd_ps(w, scale, minimum) : _mm256_mul_ps(w, scale);
            UNROLL_4(i, size, acc[i] = _mm256_fmadd_ps(w, _mm256_set1_ps(x[i][k]), acc[i]);)
        }
        block += header_of(format) + job->group * QUANT_PANEL_ROWS / (is_int8(format) ? 1 : 2);
    }
    UNROLL_4(i, size, _mm256_store_ps(out + i * QUANT_PANEL_ROWS + row, acc[i]);)
}

LEAF_INLINE void widened_tile(const uint8_t *panel, const struct panel_job *job, float *out,
                              const enum quant_format format, const uint32_t size)
{
    for (uint32_t row = 0; row < QUANT_PANEL_ROWS; row += EIGHT)
        widened_rows(panel, job, row, out, format, size);
}

LEAF_INLINE void float_tile(const uint8_t *panel, const struct panel_job *job, float *out,
                            const enum quant_format format, const uint32_t size)
{
    if (size == 1) {
        float_rows(panel, job, 0, out, format, 1, QUARTERS);
    } else {
        float_rows(panel, job, 0, out, format, size, 2);
        float_rows(panel, job, STRIP, out, format, size, 2);
    }
}

/* Rows past the tile's size are computed and then overwritten by the next panel or never read: the
 * buffer has room for full tiles. */
#define FLOATS_FUNCTION(name, kind, format)                                                        \
    static void name(const struct panel_job *job, float *out)                                      \
    {                                                                                              \
        const uint8_t *panel = job->data;                                                          \
        for (uint32_t i = 0; i < job->n_panels; i++) {                                             \
            if (job->tile->size == 1)                                                              \
                kind(panel, job, out, format, 1);                                                  \
            else                                                                                   \
                kind(panel, job, out, format, TILE_ROWS);                                          \
            panel += job->panel_bytes;                                                             \
            out += (size_t)job->tile->size * QUANT_PANEL_ROWS;                                     \
        }                                                                                          \
    }

FLOATS_FUNCTION(floats_f32, float_tile, QUANT_F32)
FLOATS_FUNCTION(floats_f16, float_tile, QUANT_F16)
FLOATS_FUNCTION(floats_bf16, float_tile, QUANT_BF16)
FLOATS_FUNCTION(floats_int8, widened_tile, QUANT_INT8)
FLOATS_FUNCTION(floats_int8_min, widened_tile, QUANT_INT8_MIN)
FLOATS_FUNCTION(floats_int4, widened_tile, QUANT_INT4)
FLOATS_FUNCTION(floats_int4_asym, widened_tile, QUANT_INT4_ASYM)
FLOATS_FUNCTION(floats_int4_min, widened_tile, QUANT_INT4_MIN)

/* ---- results ---- */

static void finish(const struct finish_job *job)
{
    const struct matmul_part *const part = job->part;
    for (uint32_t c = 0; c < job->n; c += EIGHT) {
        const uint32_t left = job->n - c, column = job->column + c;
        for (uint32_t i = 0; i < job->tile->count; i++) {
            float *const out = part->out + (job->tile->row + i) * part->out_stride + column;
            const size_t at = (size_t)i * job->width + c;
            __m256 value = _mm256_load_ps(job->acc + at);
            const __m256 of_x = _mm256_set1_ps(job->row_scales ? job->row_scales[i] : 1.0f);
            if (job->row_scales)
                value = _mm256_mul_ps(value, of_x);
            if (part->bias)
                value = _mm256_add_ps(value, load8(part->bias + column, left));
            if (part->epilogue == MATMUL_ADD) {
                value = _mm256_add_ps(load8(out, left), value);
            } else if (part->epilogue == MATMUL_SILU_MUL) {
                __m256 up = _mm256_load_ps(job->up_acc + at);
                if (job->row_scales)
                    up = _mm256_mul_ps(up, of_x);
                if (part->up_bias)
                    up = _mm256_add_ps(up, load8(part->up_bias + column, left));
                value = _mm256_mul_ps(silu8(value), up);
            }
            store8(out, left, value);
        }
    }
}

static const struct matmul_leaves leaves = {
    .tuning = { .prefetch_bytes = PREFETCH_BYTES, .n_panels = PANELS_CAP },
    .panels_rows = 2,
    .panels = {
        [QUANT_INT8] = panels_int8,
        [QUANT_INT8_MIN] = panels_int8_min,
        [QUANT_INT4] = panels_int4,
        [QUANT_INT4_ASYM] = panels_int4_asym,
        [QUANT_INT4_MIN] = panels_int4_min,
    },
    .strip = {
        [QUANT_INT8] = strip_int8,
        [QUANT_INT8_MIN] = strip_int8_min,
        [QUANT_INT4] = strip_int4,
        [QUANT_INT4_ASYM] = strip_int4_asym,
        [QUANT_INT4_MIN] = strip_int4_min,
    },
    .floats = {
        [QUANT_F32] = floats_f32,
        [QUANT_F16] = floats_f16,
        [QUANT_BF16] = floats_bf16,
        [QUANT_INT8] = floats_int8,
        [QUANT_INT8_MIN] = floats_int8_min,
        [QUANT_INT4] = floats_int4,
        [QUANT_INT4_ASYM] = floats_int4_asym,
        [QUANT_INT4_MIN] = floats_int4_min,
    },
    .finish = finish,
};

static void run(const struct matmul *mm, uint32_t first, uint32_t end)
{
    matmul_drive(mm, first, end, &leaves);
}

const struct matmul_ops matmul_avx2 = {
    .tile_rows = TILE_ROWS,
    .pack = pack,
    .run = run,
};
