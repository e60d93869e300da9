/* Matrix products with AVX-512 VNNI.
 *
 * A line of a panel, 64 bytes, is 16 rows by 4 k (int8) or two times that (int4, low and high
 * nibbles): one register of unsigned weights against one 32-bit word of 4 signed activations, which
 * vpdpbusd takes from memory and broadcasts by itself. The dot is one line of inline assembly:
 * around the intrinsic one compiler adds copies of every accumulator and the other hoists the
 * broadcasts into registers that are not there.
 *
 * One to eight rows: 32 rows of weights in stream order, block by block over the panels that are
 * walked together, asked for ahead of time as the tuning says. With one row or two, high nibbles
 * are left where they are (they sum to 16 times their value, shifted once per dot). More rows: 16
 * rows of weights against up to 16 rows of activations. Float accumulators live in the first-level
 * cache: they are touched once per dot, and the registers hold 16 integer ones instead. Zero points
 * never touch a weight: integer accumulators start at -zero x sum(q).
 *
 * What a strip costs besides dots: 16 x 16 outputs with groups of 32 are 128 dots, 12 steps of
 * unpacking, and 48 of conversion, scale and fma (64 with a minimum, 32 with one scale a row);
 * groups of 128 have 512 dots, 48 and 48. On Zen 4, whose dots use two of four ports, the rest is
 * nearly free; on Sapphire and Emerald Rapids all 512-bit steps share two ports, and if each took a
 * slot of its own 0.67 (groups of 32) and 0.84 (128) of the dot's rate would be left. A bare loop
 * of this shape, everything in the first-level cache, gave 0.73 and 0.86 of the measured peak on
 * Emerald Rapids, so that count is near the truth, a little on the dark side. With 4096 columns,
 * whose activations come from the second level, the kernels reach 0.59 and 0.77 at 512 rows, gcc
 * and clang alike: what is left to win is a walk in blocks of k that keeps them in the first. */
#include <immintrin.h>
#include <string.h>

#include "kernel/fmath_avx512.h"
#include "kernel/kernel_internal.h"

enum { LINE = 64, STRIP = 16 };

/* Four activations, as memory of any type. */
struct word {
    int8_t q[4];
};

/* acc += sum over 4 of weights (unsigned) x word (signed, the same for 16 rows). */
#define DOT(acc, weights, at)                                                                      \
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"                                                         \
            : "+v"(acc)                                                                            \
            : "v"(weights), "m"(*(const struct word *)(const void *)(at)))

LEAF_INLINE bool is_int8(enum quant_format format)
{
    return format == QUANT_INT8 || format == QUANT_INT8_MIN;
}

LEAF_INLINE bool has_minimum(enum quant_format format)
{
    return format == QUANT_INT8_MIN || format == QUANT_INT4_MIN;
}

/* ---- activations ---- */

static __m512i magnitudes(const float *x, uint32_t n, uint32_t k)
{
    const __m512 v = _mm512_maskz_loadu_ps(mask16(n > k ? n - k : 0), x + k);
    return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
}

/* Magnitudes are compared as integers: they order alike, and what is not finite is largest. */
static bool measure(const float *x, uint32_t n, float maxima[CHUNK_SUBS])
{
    __m512i m[CHUNK_SUBS];
    for (uint32_t i = 0; i < CHUNK_SUBS; i++)
        m[i] = _mm512_max_epu32(magnitudes(x, n, 32 * i), magnitudes(x, n, 32 * i + 16));
    /* Four registers of 16 become one of 4, like a transposition. */
    const __m512i m01 =
        _mm512_max_epu32(_mm512_unpacklo_epi32(m[0], m[1]), _mm512_unpackhi_epi32(m[0], m[1]));
    const __m512i m23 =
        _mm512_max_epu32(_mm512_unpacklo_epi32(m[2], m[3]), _mm512_unpackhi_epi32(m[2], m[3]));
    const __m512i all =
        _mm512_max_epu32(_mm512_unpacklo_epi64(m01, m23), _mm512_unpackhi_epi64(m01, m23));
    const __m256i by8 =
        _mm256_max_epu32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    const __m128i by4 =
        _mm_max_epu32(_mm256_castsi256_si128(by8), _mm256_extracti128_si256(by8, 1));
    _mm_storeu_si128((__m128i *)(void *)maxima, by4);
    return _mm_cmpge_epu32_mask(by4, _mm_set1_epi32(0x7f800000)) == 0;
}

static void quantise(const float *x, uint32_t n, const float factors[CHUNK_SUBS],
                     int8_t q[ACTIVATION_CHUNK])
{
    for (uint32_t k = 0; k < ACTIVATION_CHUNK; k += 16) {
        const __m512 v = _mm512_maskz_loadu_ps(mask16(n > k ? n - k : 0), x + k);
        const __m512 factor = _mm512_set1_ps(factors[k / SUM_GROUP]);
        const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(v, factor));
        _mm_storeu_si128((__m128i *)(void *)(q + k), _mm512_cvtsepi32_epi8(rounded));
    }
}

static const struct activation_leaves activation_leaves = {
    .measure = measure,
    .quantise = quantise,
    .starts = STARTS_SUM,
};

static bool pack(struct activation *a, uint32_t first, uint32_t end)
{
    return activation_pack(a, first, end, &activation_leaves);
}

/* ---- one dot of a tile ---- */

LEAF_INLINE uint32_t header_bytes(enum quant_format format)
{
    return has_minimum(format) || format == QUANT_INT4_ASYM ? 2 * LINE : LINE;
}

/* Bytes of 32 columns of 16 rows. */
LEAF_INLINE uint32_t sub_bytes(enum quant_format format)
{
    return is_int8(format) ? 8 * LINE : 4 * LINE;
}

LEAF_INLINE void ask_ahead(const uint8_t *at, uint32_t bytes, const struct matmul_tuning *tuning)
{
    const char *const ahead = (const char *)at + tuning->prefetch_bytes;
    if (tuning->prefetch_bytes == 0)
        return;
    if (tuning->hint == MATMUL_HINT_T0) {
        for (uint32_t i = 0; i < bytes; i += LINE)
            _mm_prefetch(ahead + i, _MM_HINT_T0);
    } else if (tuning->hint == MATMUL_HINT_T1) {
        for (uint32_t i = 0; i < bytes; i += LINE)
            _mm_prefetch(ahead + i, _MM_HINT_T1);
    } else {
        for (uint32_t i = 0; i < bytes; i += LINE)
            _mm_prefetch(ahead + i, _MM_HINT_NTA);
    }
}

/* A walk along k, dot by dot: where it is in the panel, and what the rows of the tile bring. */
struct walk {
    const uint8_t *block;
    uint32_t in_block;     // columns of the block behind it
    const int8_t *q;       // [columns/4][size][4]
    const float *scales;   // [size]
    const int32_t *sums;   // [size]
    const int32_t *starts; // [size]: -8 x sums
    const float *scaled;   // [size]
};

LEAF_INLINE struct walk walk_begin(const struct panel_job *job)
{
    const struct run_sums *const runs = &job->tile->runs[run_width(job->dot_group)];
    return (struct walk){
        .block = job->data,
        .q = job->tile->q,
        .scales = job->tile->scales,
        .sums = runs->sums,
        .starts = (const int32_t *)runs->starts,
        .scaled = runs->scaled,
    };
}

LEAF_INLINE void walk_on(struct walk *walk, const struct panel_job *job, uint32_t block_bytes,
                         const uint32_t size)
{
    walk->q += (size_t)job->dot_group * size;
    walk->scales += job->dot_group / SUM_GROUP * size;
    walk->sums += size;
    walk->starts += size;
    walk->scaled += size;
    walk->in_block += job->dot_group;
    if (walk->in_block == job->group) {
        walk->in_block = 0;
        walk->block += block_bytes;
    }
}

/* 32s of the dot at column k: the last one may be short. */
LEAF_INLINE uint32_t dot_subs(const struct panel_job *job, uint32_t k)
{
    return (min_u32(job->cols - k, job->dot_group) + SUM_GROUP - 1) / SUM_GROUP;
}

/* What is taken from the stored values of 16 rows of weights, from `block`'s row `row` on. */
LEAF_INLINE __m512i zero_points(const uint8_t *block, uint32_t row, const enum quant_format format)
{
    if (format == QUANT_INT4_ASYM)
        return _mm512_cvtepu8_epi32(
            _mm_loadu_si128((const __m128i *)(const void *)(block + 64 + row)));
    return _mm512_set1_epi32(is_int8(format) ? 128 : format == QUANT_INT4 ? 8 : 0);
}

/* What accumulators of 16 rows of weights begin with: -zero x sum. A sum fits 16 bits, so that the
 * pair (-z, 0) times (sum, its sign) is one instruction. */
LEAF_INLINE void first_dots(const struct walk *walk, uint32_t row, __m512i *dots,
                            const enum quant_format format, const uint32_t size)
{
    if (format == QUANT_INT4_MIN) {
        UNROLL_16(i, size, dots[i] = _mm512_setzero_si512();)
    } else if (format == QUANT_INT4) {
        UNROLL_16(i, size, dots[i] = _mm512_set1_epi32(walk->starts[i]);)
    } else {
        const __m512i minus =
            _mm512_sub_epi32(_mm512_setzero_si512(), zero_points(walk->block, row, format));
        const __m512i pairs = _mm512_and_si512(minus, _mm512_set1_epi32(0xffff));
        UNROLL_16(i, size, dots[i] = _mm512_madd_epi16(pairs, _mm512_set1_epi32(walk->sums[i]));)
    }
}

LEAF_INLINE __m512 f16_values(const uint8_t *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)at));
}

/* acc[size][width] after one dot of 16 rows of weights, rule 2. is_plain: all scales are 1. */
LEAF_INLINE void fold(float *acc, uint32_t width, const struct walk *walk, uint32_t row,
                      const __m512i *dots, const enum quant_format format, const uint32_t size,
                      const bool is_plain)
{
    const __m512 weight_scale = f16_values(walk->block + row * 2);
    const __m512 minimum =
        has_minimum(format) ? f16_values(walk->block + 64 + row * 2) : weight_scale;
    UNROLL_16(i, size, {
        const __m512 scale =
            is_plain ? weight_scale : _mm512_mul_ps(weight_scale, _mm512_set1_ps(walk->scales[i]));
        __m512 sum =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i]), scale, _mm512_load_ps(acc + i * width));
        if (has_minimum(format))
            sum = _mm512_fmadd_ps(minimum, _mm512_set1_ps(walk->scaled[i]), sum);
        _mm512_store_ps(acc + i * width, sum);
    })
}

/* ---- strips: 16 rows of weights, 6 to 16 rows of activations ---- */

/* 32 k of 16 rows. */
LEAF_INLINE void strip_dots(const uint8_t *lines, const int8_t *q, __m512i *dots,
                            const enum quant_format format, const uint32_t size)
{
    const __m512i low = _mm512_set1_epi8(15);
    if (is_int8(format)) {
        UNROLL_8(j, 8, {
            const __m512i w = _mm512_loadu_si512(lines + j * LINE);
            UNROLL_16(i, size, DOT(dots[i], w, q + (j * size + i) * 4);)
        })
        return;
    }
    UNROLL_4(j, 4, {
        const __m512i w = _mm512_loadu_si512(lines + j * LINE);
        const __m512i w0 = _mm512_and_si512(w, low);
        const __m512i w1 = _mm512_and_si512(_mm512_srli_epi16(w, 4), low);
        UNROLL_16(i, size, DOT(dots[i], w0, q + (2 * j * size + i) * 4);)
        UNROLL_16(i, size, DOT(dots[i], w1, q + ((2 * j + 1) * size + i) * 4);)
    })
}

LEAF_INLINE void strip_tile(const struct panel_job *job, uint32_t half, float *acc,
                            const enum quant_format format, const uint32_t size,
                            const bool is_plain)
{
    const uint32_t half_bytes = job->group / SUM_GROUP * sub_bytes(format);
    const uint32_t block_bytes = header_bytes(format) + 2 * half_bytes;
    struct walk walk = walk_begin(job);
    UNROLL_16(i, size, _mm512_store_ps(acc + i * STRIP, _mm512_setzero_ps());)
    for (uint32_t k = 0; k < job->cols; k += job->dot_group) {
        const uint8_t *lines = walk.block + header_bytes(format) + half * half_bytes +
                               walk.in_block / SUM_GROUP * sub_bytes(format);
        const int8_t *q = walk.q;
        if (job->is_first && walk.in_block == 0)
            ask_ahead(walk.block, block_bytes, job->tuning);
        __m512i dots[TILE_ROWS_CAP];
        first_dots(&walk, half * STRIP, dots, format, size);
        uint32_t subs = dot_subs(job, k);
        do { // a dot has at least one
            strip_dots(lines, q, dots, format, size);
            lines += sub_bytes(format);
            q += SUM_GROUP * size;
        } while (--subs);
        fold(acc, STRIP, &walk, half * STRIP, dots, format, size, is_plain);
        walk_on(&walk, job, block_bytes, size);
    }
}

#define STRIP_FUNCTION(name, format)                                                               \
    static void name(const struct panel_job *job, uint32_t half, float *acc)                       \
    {                                                                                              \
        if (job->is_plain && job->tile->size == 16)                                                \
            strip_tile(job, half, acc, format, 16, true);                                          \
        else if (job->tile->size == 16)                                                            \
            strip_tile(job, half, acc, format, 16, false);                                         \
        else if (job->tile->size == 12)                                                            \
            strip_tile(job, half, acc, format, 12, false);                                         \
        else if (job->tile->size == 8)                                                             \
            strip_tile(job, half, acc, format, 8, false);                                          \
        else                                                                                       \
            strip_tile(job, half, acc, format, 6, false);                                          \
    }

STRIP_FUNCTION(strip_int8, QUANT_INT8)
STRIP_FUNCTION(strip_int8_min, QUANT_INT8_MIN)
STRIP_FUNCTION(strip_int4, QUANT_INT4)
STRIP_FUNCTION(strip_int4_asym, QUANT_INT4_ASYM)
STRIP_FUNCTION(strip_int4_min, QUANT_INT4_MIN)

/* ---- panels: 32 rows of weights in stream order, 1 to 8 rows of activations ---- */

/* 4 or 8 k of 16 rows. `high` gets 16 times the high nibbles' part when there is one row or two, so
 * that no weight is shifted; with more rows the shift is shared and `high` is not used. */
LEAF_INLINE void panel_line(const uint8_t *line, const int8_t *q, __m512i *dots, __m512i *high,
                            const enum quant_format format, const uint32_t size)
{
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i w = _mm512_loadu_si512(line);
    if (is_int8(format)) {
        UNROLL_8(i, size, DOT(dots[i], w, q + i * 4);)
        return;
    }
    const __m512i w0 = _mm512_and_si512(w, low);
    UNROLL_8(i, size, DOT(dots[i], w0, q + i * 4);)
    q += 4 * size;
    if (size <= 2) {
        const __m512i w1 = _mm512_andnot_si512(low, w);
        UNROLL_8(i, size, DOT(high[i], w1, q + i * 4);)
    } else {
        const __m512i w1 = _mm512_and_si512(_mm512_srli_epi16(w, 4), low);
        UNROLL_8(i, size, DOT(dots[i], w1, q + i * 4);)
    }
}

/* One dot of one panel into acc[size][32]. */
LEAF_INLINE void panel_dot(const struct panel_job *job, const struct walk *walk, uint32_t subs,
                           float *acc, const enum quant_format format, const uint32_t size)
{
    const uint32_t half_bytes = job->group / SUM_GROUP * sub_bytes(format);
    const uint32_t line_k = is_int8(format) ? 4 : 8;
    const bool split = !is_int8(format) && size <= 2;
    const uint8_t *line =
        walk->block + header_bytes(format) + walk->in_block / SUM_GROUP * sub_bytes(format);
    const int8_t *q = walk->q;
    __m512i dots[2][8], high[2][8];
    if (walk->in_block == 0)
        ask_ahead(walk->block, header_bytes(format), job->tuning);
    UNROLL_2(half, 2, {
        first_dots(walk, half * STRIP, dots[half], format, size);
        UNROLL_8(i, size, high[half][i] = _mm512_setzero_si512();)
    })
    subs *= sub_bytes(format) / (4 * LINE);
    do { // a dot has at least one
        ask_ahead(line, 4 * LINE, job->tuning);
        ask_ahead(line + half_bytes, 4 * LINE, job->tuning);
        UNROLL_4(step, 4, {
            panel_line(line, q, dots[0], high[0], format, size);
            panel_line(line + half_bytes, q, dots[1], high[1], format, size);
            line += LINE;
            q += line_k * size;
        })
    } while (--subs);
    UNROLL_2(half, 2, {
        if (split) {
            UNROLL_8(i, size,
                     dots[half][i] =
                         _mm512_add_epi32(dots[half][i], _mm512_srai_epi32(high[half][i], 4));)
        }
        fold(acc + half * STRIP, QUANT_PANEL_ROWS, walk, half * STRIP, dots[half], format, size,
             false);
    })
}

/* All panels of the job side by side, dot by dot. */
LEAF_INLINE void panels_walk(const struct panel_job *job, float *acc,
                             const enum quant_format format, const uint32_t size)
{
    const uint32_t block_bytes =
        header_bytes(format) + 2 * (job->group / SUM_GROUP * sub_bytes(format));
    struct walk walk = walk_begin(job);
    memset(acc, 0, job->n_panels * size * QUANT_PANEL_ROWS * sizeof(float));
    for (uint32_t k = 0; k < job->cols; k += job->dot_group) {
        const uint32_t subs = dot_subs(job, k);
        const uint8_t *const block = walk.block;
        for (uint32_t i = 0; i < job->n_panels; i++) {
            panel_dot(job, &walk, subs, acc + i * size * QUANT_PANEL_ROWS, format, size);
            walk.block += job->panel_bytes;
        }
        walk.block = block;
        walk_on(&walk, job, block_bytes, size);
    }
}

#define PANELS_FUNCTION(name, format)                                                              \
    static void name(const struct panel_job *job, float *acc)                                      \
    {                                                                                              \
        if (job->tile->size == 1)                                                                  \
            panels_walk(job, acc, format, 1);                                                      \
        else if (job->tile->size == 2)                                                             \
            panels_walk(job, acc, format, 2);                                                      \
        else if (job->tile->size == 3)                                                             \
            panels_walk(job, acc, format, 3);                                                      \
        else if (job->tile->size == 4)                                                             \
            panels_walk(job, acc, format, 4);                                                      \
        else if (job->tile->size == 6)                                                             \
            panels_walk(job, acc, format, 6);                                                      \
        else                                                                                       \
            panels_walk(job, acc, format, 8);                                                      \
    }

PANELS_FUNCTION(panels_int8, QUANT_INT8)
PANELS_FUNCTION(panels_int8_min, QUANT_INT8_MIN)
PANELS_FUNCTION(panels_int4, QUANT_INT4)
PANELS_FUNCTION(panels_int4_asym, QUANT_INT4_ASYM)
PANELS_FUNCTION(panels_int4_min, QUANT_INT4_MIN)

/* ---- float panels ---- */

LEAF_INLINE __m512 float_values(const uint8_t *panel, size_t index, const enum quant_format format)
{
    if (format == QUANT_F32)
        return _mm512_loadu_ps((const float *)(const void *)panel + index);
    if (format == QUANT_F16)
        return f16_values(panel + index * 2);
    const __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)(panel + index * 2));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* 16 or 32 rows of weights from `row` on, n = 1 or 2, `size` rows of activations (at least the
 * tile's). */
LEAF_INLINE void float_rows(const uint8_t *panel, const struct panel_job *job, uint32_t row,
                            float *out, const enum quant_format format, const uint32_t size,
                            const uint32_t n)
{
    const uint32_t value_bytes = format == QUANT_F32 ? 4 : 2;
    const float *x[TILE_ROWS_CAP];
    __m512 acc[TILE_ROWS_CAP][2];
    UNROLL_16(i, size, x[i] = tile_x(job->tile, i); acc[i][0] = acc[i][1] = _mm512_setzero_ps();)
    for (uint32_t k = 0; k < job->cols; k++) {
        const size_t at = (size_t)k * QUANT_PANEL_ROWS;
        __m512 w[2];
        if (row == 0)
            ask_ahead(panel + at * value_bytes, QUANT_PANEL_ROWS * value_bytes, job->tuning);
        UNROLL_2(j, n, w[j] = float_values(panel, at + row + j * STRIP, format);)
        UNROLL_16(i, size, {
            const __m512 v = _mm512_set1_ps(x[i][k]);
            UNROLL_2(j, n, acc[i][j] = _mm512_fmadd_ps(w[j], v, acc[i][j]);)
        })
    }
    UNROLL_16(i, size, {
        UNROLL_2(j, n, _mm512_store_ps(out + i * QUANT_PANEL_ROWS + row + j * STRIP, acc[i][j]);)
    })
}

LEAF_INLINE void float_tile(const uint8_t *panel, const struct panel_job *job, float *out,
                            const enum quant_format format, const uint32_t size)
{
    if (size <= 8) {
        float_rows(panel, job, 0, out, format, size, 2);
        return;
    }
    for (uint32_t row = 0; row < QUANT_PANEL_ROWS; row += STRIP)
        float_rows(panel, job, row, out, format, size, 1);
}

/* 16 rows of a quantised panel as the floats that they mean, column by column. */
LEAF_INLINE void widened_half(const uint8_t *block, const struct panel_job *job, uint32_t half,
                              float *out, const enum quant_format format, const uint32_t size)
{
    const uint32_t line_k = is_int8(format) ? 4 : 8;
    const uint32_t half_bytes = job->group / line_k * LINE;
    const __m512i mask = _mm512_set1_epi32(is_int8(format) ? 255 : 15);
    const float *x[TILE_ROWS_CAP];
    __m512 acc[TILE_ROWS_CAP];
    UNROLL_16(i, size, x[i] = tile_x(job->tile, i); acc[i] = _mm512_setzero_ps();)
    for (uint32_t k = 0; k < job->cols; block += header_bytes(format) + 2 * half_bytes) {
        const uint32_t n = min_u32(job->group, job->cols - k);
        const uint8_t *const lines = block + header_bytes(format) + half * half_bytes;
        const __m512i zero = zero_points(block, half * STRIP, format);
        const __m512 scale = f16_values(block + half * STRIP * 2);
        const __m512 minimum =
            has_minimum(format) ? f16_values(block + 64 + half * STRIP * 2) : scale;
        for (uint32_t j = 0; j < n; j++, k++) {
            const uint32_t shift = j % 4 * 8 + (!is_int8(format) && j % 8 >= 4 ? 4 : 0);
            const __m512i line = _mm512_loadu_si512(lines + (size_t)(j / line_k) * LINE);
            const __m512i q = _mm512_sub_epi32(
                _mm512_and_si512(_mm512_srl_epi32(line, _mm_cvtsi32_si128((int)shift)), mask),
                zero);
            __m512 w = _mm512_cvtepi32_ps(q);
            w = has_minimum(format) ? _mm512_fmadd_ps(w, scale, minimum) : _mm512_mul_ps(w, scale);
            UNROLL_16(i, size, acc[i] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[i][k]), acc[i]);)
        }
    }
    UNROLL_16(i, size, _mm512_store_ps(out + i * QUANT_PANEL_ROWS + half * STRIP, acc[i]);)
}

LEAF_INLINE void widened_tile(const uint8_t *panel, const struct panel_job *job, float *out,
                              const enum quant_format format, const uint32_t size)
{
    for (uint32_t half = 0; half < 2; half++)
        widened_half(panel, job, half, out, format, size);
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
            else if (job->tile->size <= 4)                                                         \
                kind(panel, job, out, format, 4);                                                  \
            else if (job->tile->size <= 8)                                                         \
                kind(panel, job, out, format, 8);                                                  \
            else                                                                                   \
                kind(panel, job, out, format, 16);                                                 \
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
    for (uint32_t c = 0; c < job->n; c += 16) {
        const __mmask16 mask = mask16(job->n - c);
        const uint32_t column = job->column + c;
        const __m512 bias =
            part->bias ? _mm512_maskz_loadu_ps(mask, part->bias + column) : _mm512_setzero_ps();
        const __m512 up_bias = part->up_bias ? _mm512_maskz_loadu_ps(mask, part->up_bias + column)
                                             : _mm512_setzero_ps();
        for (uint32_t i = 0; i < job->tile->count; i++) {
            float *const out = part->out + (job->tile->row + i) * part->out_stride + column;
            const size_t at = (size_t)i * job->width + c;
            __m512 value = _mm512_loadu_ps(job->acc + at);
            const __m512 of_x = _mm512_set1_ps(job->row_scales ? job->row_scales[i] : 1.0f);
            if (job->row_scales)
                value = _mm512_mul_ps(value, of_x);
            if (part->bias)
                value = _mm512_add_ps(value, bias);
            if (part->epilogue == MATMUL_ADD) {
                value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), value);
            } else if (part->epilogue == MATMUL_SILU_MUL) {
                __m512 up = _mm512_loadu_ps(job->up_acc + at);
                if (job->row_scales)
                    up = _mm512_mul_ps(up, of_x);
                if (part->up_bias)
                    up = _mm512_add_ps(up, up_bias);
                value = _mm512_mul_ps(silu16(value), up);
            }
            _mm512_mask_storeu_ps(out, mask, value);
        }
    }
}

static const struct matmul_leaves leaves = {
    .tuning = { .prefetch_bytes = 2048, .hint = MATMUL_HINT_T0, .n_panels = 4 },
    .panels_rows = 8,
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

const struct matmul_ops matmul_avx512 = {
    .tile_rows = TILE_ROWS_CAP,
    .pack = pack,
    .run = run,
};
