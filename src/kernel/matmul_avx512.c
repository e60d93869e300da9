/* Matrix products with AVX-512 VNNI.
 *
 * A line of a panel, 64 bytes, is 16 rows by 4 k (int8) or two times that (int4, low and high
 * nibbles): one register of unsigned weights against one 32-bit word of 4 signed activations, which
 * vpdpbusd takes from memory and broadcasts by itself. The dot is one line of inline assembly:
 * around the intrinsic one compiler adds copies of every accumulator and the other hoists the
 * broadcasts into registers that are not there.
 *
 * Few rows: 32 rows of weights at a time in stream order, high nibbles left where they are (they
 * sum to 16 times their value, shifted once per group). Many rows: 16 rows of weights against up to
 * 12 rows of activations, 12 integer and 12 float accumulators in registers. Zero points never
 * touch a weight: integer accumulators start at -zero x sum(q). */
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

LEAF_INLINE void ask_ahead(const uint8_t *at, uint32_t bytes, size_t ahead)
{
    for (uint32_t i = 0; i < bytes; i += LINE)
        _mm_prefetch((const char *)at + i + ahead, _MM_HINT_T0);
}

/* ---- one group of a tile ---- */

/* What the rows of a tile bring to one group of weights. */
struct group_view {
    const float *scales;
    const int32_t *sums;
    const int32_t *starts; // -8 x sums
    const float *scaled_sums;
};

/* Room for the sums of a group that is larger than what was packed. */
struct group_sums {
    _Alignas(64) int32_t sums[16];
    int32_t starts[16];
    float scaled[16];
};

/* Columns [k, k + 32 n_subs) of the tile. */
LEAF_INLINE struct group_view group_view(const struct tile *tile, uint32_t k, uint32_t n_subs,
                                         uint32_t size, struct group_sums *room)
{
    const size_t at = (size_t)(k / SUM_GROUP) * size;
    const float *const scales = tile->scales + at;
    const int32_t *const sums = tile->sums + at;
    if (n_subs == 1) {
        const int32_t *const starts = (const int32_t *)tile->starts + at;
        return (struct group_view){ scales, sums, starts, tile->scaled_sums + at };
    }
    __m512i sum = _mm512_loadu_si512(sums);
    for (uint32_t i = 1; i < n_subs; i++)
        sum = _mm512_add_epi32(sum, _mm512_loadu_si512(sums + (size_t)i * size));
    _mm512_store_si512(room->sums, sum);
    _mm512_store_si512(room->starts,
                       _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sum, 3)));
    _mm512_store_ps(room->scaled, _mm512_mul_ps(_mm512_loadu_ps(scales), _mm512_cvtepi32_ps(sum)));
    return (struct group_view){ scales, room->sums, room->starts, room->scaled };
}

/* What is taken from the stored values of 16 rows of weights, from `block`'s row `row` on. */
LEAF_INLINE __m512i zero_points(const uint8_t *block, uint32_t row, const enum quant_format format)
{
    if (format == QUANT_INT4_ASYM)
        return _mm512_cvtepu8_epi32(
            _mm_loadu_si128((const __m128i *)(const void *)(block + 64 + row)));
    return _mm512_set1_epi32(is_int8(format) ? 128 : format == QUANT_INT4 ? 8 : 0);
}

/* What an accumulator of row i begins with, 16 rows of weights from `block`'s row `row` on. */
LEAF_INLINE __m512i first_dot(const struct group_view *view, uint32_t i, const uint8_t *block,
                              uint32_t row, const enum quant_format format)
{
    if (format == QUANT_INT4_MIN)
        return _mm512_setzero_si512();
    if (is_int8(format)) // -128 x sum
        return _mm512_slli_epi32(_mm512_set1_epi32(view->starts[i]), 4);
    if (format == QUANT_INT4)
        return _mm512_set1_epi32(view->starts[i]);
    const __m512i zeros = zero_points(block, row, format);
    /* The sum fits 16 bits: the pair (z, 0) times (sum, sign) is one multiply. */
    return _mm512_sub_epi32(_mm512_setzero_si512(),
                            _mm512_madd_epi16(zeros, _mm512_set1_epi32(view->sums[i])));
}

LEAF_INLINE __m512 f16_values(const uint8_t *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)at));
}

/* acc after one group: rule 2. */
LEAF_INLINE __m512 fold(__m512 acc, __m512i dot, __m512 weight_scale, __m512 minimum,
                        const struct group_view *view, uint32_t i, const enum quant_format format)
{
    const __m512 scale = _mm512_mul_ps(weight_scale, _mm512_set1_ps(view->scales[i]));
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, acc);
    if (has_minimum(format))
        acc = _mm512_fmadd_ps(minimum, _mm512_set1_ps(view->scaled_sums[i]), acc);
    return acc;
}

/* ---- strips: 16 rows of weights, 6, 8 or 12 rows of activations ---- */

/* 32 k of 16 rows. */
LEAF_INLINE void strip_dots(const uint8_t *lines, const int8_t *q, __m512i *dots,
                            const enum quant_format format, const uint32_t size)
{
    const __m512i low = _mm512_set1_epi8(15);
    if (is_int8(format)) {
        for (uint32_t j = 0; j < 8; j++) {
            const __m512i w = _mm512_loadu_si512(lines + j * LINE);
            UNROLL_12(i, size, DOT(dots[i], w, q + i * 4);)
            q += 4 * size;
        }
        return;
    }
    for (uint32_t j = 0; j < 4; j++) {
        const __m512i w = _mm512_loadu_si512(lines + j * LINE);
        const __m512i w0 = _mm512_and_si512(w, low);
        const __m512i w1 = _mm512_and_si512(_mm512_srli_epi16(w, 4), low);
        UNROLL_12(i, size, DOT(dots[i], w0, q + i * 4);)
        q += 4 * size;
        UNROLL_12(i, size, DOT(dots[i], w1, q + i * 4);)
        q += 4 * size;
    }
}

LEAF_INLINE void strip_tile(const struct panel_job *job, uint32_t half, float *out,
                            const enum quant_format format, const uint32_t size)
{
    const uint32_t header = has_minimum(format) || format == QUANT_INT4_ASYM ? 128 : 64;
    const uint32_t sub_bytes = is_int8(format) ? 8 * LINE : 4 * LINE;
    const uint32_t half_bytes = job->group / SUM_GROUP * sub_bytes;
    const uint32_t to_lines = header + half * half_bytes;
    const uint8_t *block = job->data, *lines = block + to_lines;
    const int8_t *q = job->tile->q;
    struct group_sums room;
    __m512 acc[TILE_ROWS_CAP];
    UNROLL_12(i, size, acc[i] = _mm512_setzero_ps();)
    for (uint32_t k = 0; k < job->cols; k += job->dot_group) {
        if (k > 0 && k % job->group == 0) {
            block += header + 2 * half_bytes;
            lines = block + to_lines;
        }
        const uint32_t n_subs =
            (min_u32(job->cols - k, job->dot_group) + SUM_GROUP - 1) / SUM_GROUP;
        const struct group_view view = group_view(job->tile, k, n_subs, size, &room);
        if (job->is_first && k % job->group == 0)
            ask_ahead(block, header + 2 * half_bytes, job->tuning->prefetch_bytes);
        __m512i dots[TILE_ROWS_CAP];
        UNROLL_12(i, size, dots[i] = first_dot(&view, i, block, half * STRIP, format);)
        for (uint32_t sub = 0; sub < n_subs; sub++) {
            strip_dots(lines, q, dots, format, size);
            lines += sub_bytes;
            q += SUM_GROUP * size;
        }
        const __m512 scale = f16_values(block + half * STRIP * 2);
        const __m512 minimum =
            has_minimum(format) ? f16_values(block + 64 + half * STRIP * 2) : scale;
        UNROLL_12(i, size, acc[i] = fold(acc[i], dots[i], scale, minimum, &view, i, format);)
    }
    UNROLL_12(i, size, _mm512_storeu_ps(out + i * STRIP, acc[i]);)
}

#define STRIP_FUNCTION(name, format)                                                               \
    static void name(const struct panel_job *job, uint32_t half, float *out)                       \
    {                                                                                              \
        if (job->tile->size == 12)                                                                 \
            strip_tile(job, half, out, format, 12);                                                \
        else if (job->tile->size == 8)                                                             \
            strip_tile(job, half, out, format, 8);                                                 \
        else                                                                                       \
            strip_tile(job, half, out, format, 6);                                                 \
    }

STRIP_FUNCTION(strip_int8, QUANT_INT8)
STRIP_FUNCTION(strip_int8_min, QUANT_INT8_MIN)
STRIP_FUNCTION(strip_int4, QUANT_INT4)
STRIP_FUNCTION(strip_int4_asym, QUANT_INT4_ASYM)
STRIP_FUNCTION(strip_int4_min, QUANT_INT4_MIN)

/* ---- panels: 32 rows of weights in stream order, 1 to 4 rows of activations ---- */

/* 4 or 8 k of 16 rows. `high` gets 16 times the high nibbles' part when there is one row or two, so
 * that no weight is shifted; with more rows the shift is shared and `high` is not used. */
LEAF_INLINE void panel_line(const uint8_t *line, const int8_t *q, __m512i *dots, __m512i *high,
                            size_t ahead, const enum quant_format format, const uint32_t size)
{
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i w = _mm512_loadu_si512(line);
    ask_ahead(line, LINE, ahead);
    if (is_int8(format)) {
        UNROLL_4(i, size, DOT(dots[i], w, q + i * 4);)
        return;
    }
    const __m512i w0 = _mm512_and_si512(w, low);
    UNROLL_4(i, size, DOT(dots[i], w0, q + i * 4);)
    q += 4 * size;
    if (size <= 2) {
        const __m512i w1 = _mm512_andnot_si512(low, w);
        UNROLL_4(i, size, DOT(high[i], w1, q + i * 4);)
    } else {
        const __m512i w1 = _mm512_and_si512(_mm512_srli_epi16(w, 4), low);
        UNROLL_4(i, size, DOT(dots[i], w1, q + i * 4);)
    }
}

LEAF_INLINE void panel_tile(const uint8_t *block, const struct panel_job *job, float *out,
                            const enum quant_format format, const uint32_t size)
{
    const uint32_t header = has_minimum(format) || format == QUANT_INT4_ASYM ? 128 : 64;
    const uint32_t sub_lines = is_int8(format) ? 8 : 4, line_k = is_int8(format) ? 4 : 8;
    const uint32_t half_bytes = job->group / SUM_GROUP * sub_lines * LINE;
    const bool split = !is_int8(format) && size <= 2;
    const size_t ahead = job->tuning->prefetch_bytes;
    const uint8_t *line = block + header;
    const int8_t *q = job->tile->q;
    struct group_sums room;
    __m512 acc[2][4];
    UNROLL_2(half, 2, UNROLL_4(i, size, acc[half][i] = _mm512_setzero_ps();))
    for (uint32_t k = 0; k < job->cols; k += job->dot_group) {
        if (k > 0 && k % job->group == 0) {
            block += header + 2 * half_bytes;
            line = block + header;
        }
        if (k % job->group == 0)
            ask_ahead(block, header, ahead);
        const uint32_t n_subs =
            (min_u32(job->cols - k, job->dot_group) + SUM_GROUP - 1) / SUM_GROUP;
        const struct group_view view = group_view(job->tile, k, n_subs, size, &room);
        __m512i dots[2][4], high[2][4];
        UNROLL_2(half, 2,
                 UNROLL_4(i, size, high[half][i] = _mm512_setzero_si512();
                          dots[half][i] = first_dot(&view, i, block, half * STRIP, format);))
        for (uint32_t j = 0; j < n_subs * sub_lines; j += 4) {
            UNROLL_4(step, 4, {
                panel_line(line, q, dots[0], high[0], ahead, format, size);
                panel_line(line + half_bytes, q, dots[1], high[1], ahead, format, size);
                line += LINE;
                q += line_k * size;
            })
        }
        UNROLL_2(half, 2, {
            const __m512 scale = f16_values(block + half * STRIP * 2);
            const __m512 minimum =
                has_minimum(format) ? f16_values(block + 64 + half * STRIP * 2) : scale;
            UNROLL_4(i, size, {
                __m512i dot = dots[half][i];
                if (split)
                    dot = _mm512_add_epi32(dot, _mm512_srai_epi32(high[half][i], 4));
                acc[half][i] = fold(acc[half][i], dot, scale, minimum, &view, i, format);
            })
        })
    }
    UNROLL_2(half, 2,
             UNROLL_4(i, size,
                      _mm512_storeu_ps(out + i * QUANT_PANEL_ROWS + half * STRIP, acc[half][i]);))
}

#define PANELS_FUNCTION(name, format)                                                              \
    static void name(const struct panel_job *job, float *out)                                      \
    {                                                                                              \
        const uint8_t *panel = job->data;                                                          \
        for (uint32_t i = 0; i < job->n_panels; i++) {                                             \
            if (job->tile->size == 1)                                                              \
                panel_tile(panel, job, out, format, 1);                                            \
            else if (job->tile->size == 2)                                                         \
                panel_tile(panel, job, out, format, 2);                                            \
            else if (job->tile->size == 3)                                                         \
                panel_tile(panel, job, out, format, 3);                                            \
            else                                                                                   \
                panel_tile(panel, job, out, format, 4);                                            \
            panel += job->panel_bytes;                                                             \
            out += (size_t)job->tile->size * QUANT_PANEL_ROWS;                                     \
        }                                                                                          \
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

/* 32 rows of weights, `size` rows of activations (at least the tile's). */
LEAF_INLINE void float_tile(const uint8_t *panel, const struct panel_job *job, float *out,
                            const enum quant_format format, const uint32_t size)
{
    const float *x[TILE_ROWS_CAP];
    __m512 acc[TILE_ROWS_CAP][2];
    UNROLL_12(i, size, x[i] = tile_x(job->tile, i); acc[i][0] = acc[i][1] = _mm512_setzero_ps();)
    for (uint32_t k = 0; k < job->cols; k++) {
        const size_t at = (size_t)k * QUANT_PANEL_ROWS;
        const __m512 w0 = float_values(panel, at, format);
        const __m512 w1 = float_values(panel, at + STRIP, format);
        UNROLL_12(i, size, {
            const __m512 v = _mm512_set1_ps(x[i][k]);
            acc[i][0] = _mm512_fmadd_ps(w0, v, acc[i][0]);
            acc[i][1] = _mm512_fmadd_ps(w1, v, acc[i][1]);
        })
    }
    UNROLL_12(i, size, {
        _mm512_storeu_ps(out + i * QUANT_PANEL_ROWS, acc[i][0]);
        _mm512_storeu_ps(out + i * QUANT_PANEL_ROWS + STRIP, acc[i][1]);
    })
}

/* 16 rows of a quantised panel as the floats that they mean, column by column. */
LEAF_INLINE void widened_half(const uint8_t *block, const struct panel_job *job, uint32_t half,
                              float *out, const enum quant_format format, const uint32_t size)
{
    const uint32_t header = has_minimum(format) || format == QUANT_INT4_ASYM ? 128 : 64;
    const uint32_t line_k = is_int8(format) ? 4 : 8;
    const uint32_t half_bytes = job->group / line_k * LINE;
    const __m512i mask = _mm512_set1_epi32(is_int8(format) ? 255 : 15);
    const float *x[TILE_ROWS_CAP];
    __m512 acc[TILE_ROWS_CAP];
    UNROLL_12(i, size, x[i] = tile_x(job->tile, i); acc[i] = _mm512_setzero_ps();)
    for (uint32_t k = 0; k < job->cols; block += header + 2 * half_bytes) {
        const uint32_t n = min_u32(job->group, job->cols - k);
        const uint8_t *const lines = block + header + half * half_bytes;
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
            UNROLL_12(i, size, acc[i] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[i][k]), acc[i]);)
        }
    }
    UNROLL_12(i, size, _mm512_storeu_ps(out + i * QUANT_PANEL_ROWS + half * STRIP, acc[i]);)
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
            else                                                                                   \
                kind(panel, job, out, format, 12);                                                 \
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
    .tuning = { .prefetch_bytes = 4096, .n_panels = 1 },
    .panels_rows = 4,
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
