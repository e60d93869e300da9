/* Matrix products with AVX2: no dot instruction, and on many machines one pipe that multiplies
 * integers.
 *
 * A nibble times an int8, added pairwise by vpmaddubsw, is at most 2 x 15 x 127, so products are
 * summed in int16 and widened once per run instead of once per 4 k. A run of 32 k fits as it is
 * (30,480); a run of 64 k starts at -8 times the sums of the activations, so that its last value is
 * sum q (w - 8), at most 32,512, whatever wraps on the way. The start is packed with the
 * activations. int8 weights cannot be summed in 16 bits: |w| times q with w's sign, widened at
 * once; 2 x 128 x 127 fits.
 *
 * The step of a strip is one piece of inline assembly because compilers hoist its broadcasts and
 * then spill. Panels are walked four together and half a kilobyte ahead by default: one stream
 * alone gets half of the memory's rate on machines that have this rung as their best.
 *
 * The float products, the rounding of activations and the epilogues are those of AVX-VNNI too. */
#define STRIP_ROWS 4 // 8 registers of sums; two weights, a word, a product, and room for compilers
#include "kernel/matmul_256.h"

#include <immintrin.h>
#include <string.h>

#include "kernel/fmath_avx2.h"

enum {
    QUARTERS = 4,
    FLOAT_ROWS = 4, // of a float tile
    RUN_SUBS = 2,   // runs of 32 k that int16 sums hold
};

/* ---- activations ---- */

static __m256i magnitudes(const float *x, uint32_t n, uint32_t k)
{
    const __m256 v = k < n ? load8(x + k, n - k) : _mm256_setzero_ps();
    return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}

/* Magnitudes are compared as integers: they order alike, and what is not finite is largest. */
bool measure_avx2(const float *x, uint32_t n, float maxima[CHUNK_SUBS])
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

void quantise_avx2(const float *x, uint32_t n, const float factors[CHUNK_SUBS],
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

/* ---- dots ---- */

LEAF_INLINE int32_t dots_offset(enum quant_format format, uint32_t dot_group)
{
    if (is_int8(format))
        return 128;
    return format == QUANT_INT4 || dot_group > SUM_GROUP ? 8 : 0; // centred, or fits as it is
}

LEAF_INLINE uint32_t start_columns(uint32_t dot_group)
{
    return min_u32(dot_group, RUN_SUBS * SUM_GROUP);
}

/* What row i's int16 sums start with, for the run that begins at `sub`. */
LEAF_INLINE __m256i first_sums(const struct group_view *view, uint32_t sub, uint32_t i,
                               bool is_centred)
{
    const uint32_t *const starts = view->starts + sub / RUN_SUBS * view->size;
    return is_centred ? _mm256_set1_epi32((int)starts[i]) : _mm256_setzero_si256();
}

/* int16 pairs as int32 sums. */
LEAF_INLINE __m256i widen(__m256i pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* Four k of 8 rows of int8 weights (signed) times a word. */
LEAF_INLINE __m256i dot_int8(__m256i w, __m256i magnitude, __m256i word)
{
    return widen(_mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(word, w)));
}

LEAF_INLINE void panel_dots_int4(const uint8_t *lines, const struct panel_job *job,
                                 const struct group_view *view, __m256i (*dots)[2],
                                 const uint32_t rows, bool is_centred)
{
    const __m256i low = _mm256_set1_epi8(15);
    const int8_t *q = view->q;
    uint32_t sub = 0;
    do { // a group has at least one run
        const uint32_t n_subs = view->n_subs - sub >= RUN_SUBS ? RUN_SUBS : 1;
        __m256i sums[2][2];
        UNROLL_2(i, rows, sums[0][i] = sums[1][i] = first_sums(view, sub, i, is_centred);)
        for (uint32_t j = 0; j < 4 * n_subs; j++) {
            const __m256i w[2] = { load_256(lines), load_256(lines + LINE / 2) };
            ask_ahead(lines, job->tuning);
            UNROLL_2(i, rows, {
                const __m256i x0 = broadcast_word(q + i * QUAD);
                const __m256i x1 = broadcast_word(q + (rows + i) * QUAD);
                UNROLL_2(n, 2, {
                    const __m256i w0 = _mm256_and_si256(w[n], low);
                    const __m256i w1 = _mm256_and_si256(_mm256_srli_epi16(w[n], 4), low);
                    const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(w0, x0),
                                                           _mm256_maddubs_epi16(w1, x1));
                    sums[n][i] = _mm256_add_epi16(sums[n][i], pairs);
                })
            })
            lines += LINE;
            q += 2 * QUAD * rows;
        }
        UNROLL_2(i, rows, UNROLL_2(n, 2, {
                     const __m256i wide = widen(sums[n][i]);
                     dots[n][i] = sub ? _mm256_add_epi32(dots[n][i], wide) : wide;
                 }))
        sub += RUN_SUBS;
    } while (sub < view->n_subs);
}

LEAF_INLINE void panel_dots_int8(const uint8_t *lines, const struct panel_job *job,
                                 const struct group_view *view, __m256i (*dots)[2],
                                 const uint32_t rows)
{
    const int8_t *q = view->q;
    UNROLL_2(i, rows, dots[0][i] = dots[1][i] = _mm256_setzero_si256();)
    for (uint32_t j = 0; j < SUM_GROUP / QUAD * view->n_subs; j++) {
        ask_ahead(lines, job->tuning);
        UNROLL_2(n, 2, {
            const __m256i w =
                _mm256_xor_si256(load_256(lines + n * (LINE / 2)), _mm256_set1_epi8(-128));
            const __m256i magnitude = _mm256_abs_epi8(w);
            UNROLL_2(i, rows,
                     dots[n][i] = _mm256_add_epi32(
                         dots[n][i], dot_int8(w, magnitude, broadcast_word(q + i * QUAD)));)
        })
        lines += LINE;
        q += QUAD * rows;
    }
}

LEAF_INLINE void panel_dots(const uint8_t *lines, const struct panel_job *job,
                            const struct group_view *view, __m256i (*dots)[2],
                            const enum quant_format format, const uint32_t rows)
{
    if (is_int8(format))
        panel_dots_int8(lines, job, view, dots, rows);
    else
        panel_dots_int4(lines, job, view, dots, rows, dots_offset(format, job->dot_group) == 8);
}

struct word {
    int8_t q[QUAD];
};

/* sums[0..1] += the pairs of w0, w1 (8 rows each, bytes that are nibbles) times one word. */
#define STEP_INT4(sums, w0, w1, at)                                                                \
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

LEAF_INLINE void strip_dots_int4(const uint8_t *lines, const struct group_view *view,
                                 __m256i (*dots)[2], const uint32_t rows, bool is_centred)
{
    const size_t step = (size_t)view->size * QUAD;
    const int8_t *q = view->q;
    uint32_t sub = 0;
    do { // a group has at least one run
        const uint32_t n_subs = view->n_subs - sub >= RUN_SUBS ? RUN_SUBS : 1;
        __m256i sums[STRIP_ROWS][2];
        UNROLL_4(i, rows, sums[i][0] = sums[i][1] = first_sums(view, sub, i, is_centred);)
        for (uint32_t j = 0; j < SUM_GROUP / QUAD / 2 * n_subs; j++) {
            UNROLL_2(pair, 2, {
                const __m256i w0 = load_256(lines), w1 = load_256(lines + LINE / 2);
                UNROLL_4(i, rows, STEP_INT4(sums[i], w0, w1, q + i * QUAD);)
                lines += LINE;
                q += step;
            })
        }
        UNROLL_4(i, rows, UNROLL_2(n, 2, {
                     const __m256i wide = widen(sums[i][n]);
                     dots[i][n] = sub ? _mm256_add_epi32(dots[i][n], wide) : wide;
                 }))
        sub += RUN_SUBS;
    } while (sub < view->n_subs);
}

LEAF_INLINE void strip_dots_int8(const uint8_t *lines, const struct group_view *view,
                                 __m256i (*dots)[2], const uint32_t rows)
{
    const size_t step = (size_t)view->size * QUAD;
    const int8_t *q = view->q;
    UNROLL_4(i, rows, dots[i][0] = dots[i][1] = _mm256_setzero_si256();)
    for (uint32_t j = 0; j < SUM_GROUP / QUAD * view->n_subs; j++) {
        __m256i w[2], magnitude[2];
        UNROLL_2(n, 2, {
            w[n] = _mm256_xor_si256(load_256(lines + n * (LINE / 2)), _mm256_set1_epi8(-128));
            magnitude[n] = _mm256_abs_epi8(w[n]);
        })
        UNROLL_4(i, rows, {
            const __m256i word = broadcast_word(q + i * QUAD);
            UNROLL_2(n, 2,
                     dots[i][n] = _mm256_add_epi32(dots[i][n], dot_int8(w[n], magnitude[n], word));)
        })
        lines += LINE;
        q += step;
    }
}

LEAF_INLINE void strip_dots(const uint8_t *lines, const struct panel_job *job,
                            const struct group_view *view, __m256i (*dots)[2],
                            const enum quant_format format, const uint32_t rows)
{
    if (is_int8(format))
        strip_dots_int8(lines, view, dots, rows);
    else
        strip_dots_int4(lines, view, dots, rows, dots_offset(format, job->dot_group) == 8);
}

/* What is taken from the stored values of 8 rows of weights, from `block`'s row `row` on. */
LEAF_INLINE __m256i zero_points(const uint8_t *block, uint32_t row, const enum quant_format format)
{
    if (format == QUANT_INT4_ASYM)
        return _mm256_cvtepu8_epi32(
            _mm_loadl_epi64((const __m128i *)(const void *)(block + 64 + row)));
    return _mm256_set1_epi32(is_int8(format) ? 128 : format == QUANT_INT4 ? 8 : 0);
}

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

/* n_quarters x 8 rows of weights from `row` on, rows [first, first + rows) of the tile. */
LEAF_INLINE void float_rows(const uint8_t *panel, const struct panel_job *job, uint32_t row,
                            uint32_t first, float *out, const enum quant_format format,
                            const uint32_t rows, const uint32_t n_quarters)
{
    const float *x[FLOAT_ROWS];
    __m256 acc[FLOAT_ROWS][QUARTERS];
    UNROLL_4(i, rows, {
        x[i] = tile_x(job->tile, first + i);
        UNROLL_4(n, n_quarters, acc[i][n] = _mm256_setzero_ps();)
    })
    for (uint32_t k = 0; k < job->cols; k++) {
        __m256 w[QUARTERS];
        UNROLL_4(n, n_quarters,
                 w[n] =
                     float_values(panel, (size_t)k * QUANT_PANEL_ROWS + row + n * EIGHT, format);)
        UNROLL_4(i, rows, {
            const __m256 v = _mm256_set1_ps(x[i][k]);
            UNROLL_4(n, n_quarters, acc[i][n] = _mm256_fmadd_ps(w[n], v, acc[i][n]);)
        })
    }
    out += first * QUANT_PANEL_ROWS + row;
    UNROLL_4(i, rows, {
        UNROLL_4(n, n_quarters, _mm256_store_ps(out + i * QUANT_PANEL_ROWS + n * EIGHT, acc[i][n]);)
    })
}

LEAF_INLINE void float_tile(const uint8_t *panel, const struct panel_job *job, uint32_t first,
                            float *out, const enum quant_format format, const uint32_t rows)
{
    if (rows == 1) {
        float_rows(panel, job, 0, first, out, format, 1, QUARTERS);
    } else {
        float_rows(panel, job, 0, first, out, format, rows, 2);
        float_rows(panel, job, STRIP, first, out, format, rows, 2);
    }
}

/* 8 rows of a quantised panel from `row` on as the floats that they mean, column by column. */
LEAF_INLINE void widened_rows(const uint8_t *block, const struct panel_job *job, uint32_t row,
                              uint32_t first, float *out, const enum quant_format format,
                              const uint32_t rows)
{
    const uint32_t line_k = is_int8(format) ? 4 : 8;
    const __m256i mask = _mm256_set1_epi32(is_int8(format) ? 255 : 15);
    const float *x[FLOAT_ROWS];
    __m256 acc[FLOAT_ROWS];
    UNROLL_4(i, rows, x[i] = tile_x(job->tile, first + i); acc[i] = _mm256_setzero_ps();)
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
            UNROLL_4(i, rows, acc[i] = _mm256_fmadd_ps(w, _mm256_set1_ps(x[i][k]), acc[i]);)
        }
        block += block_of(job, format);
    }
    out += first * QUANT_PANEL_ROWS + row;
    UNROLL_4(i, rows, _mm256_store_ps(out + i * QUANT_PANEL_ROWS, acc[i]);)
}

LEAF_INLINE void widened_tile(const uint8_t *panel, const struct panel_job *job, uint32_t first,
                              float *out, const enum quant_format format, const uint32_t rows)
{
    for (uint32_t row = 0; row < QUANT_PANEL_ROWS; row += EIGHT)
        widened_rows(panel, job, row, first, out, format, rows);
}

/* Rows past the tile's size are computed and then overwritten by the next panel or never read: the
 * buffer has room for full tiles. */
#define FLOATS_FUNCTION(name, kind, format)                                                        \
    void name(const struct panel_job *job, float *out)                                             \
    {                                                                                              \
        const uint8_t *panel = job->data;                                                          \
        const uint32_t size = job->tile->size;                                                     \
        for (uint32_t i = 0; i < job->n_panels; i++) {                                             \
            if (size == 1)                                                                         \
                kind(panel, job, 0, out, format, 1);                                               \
            for (uint32_t row = 0; size > 1 && row < size; row += FLOAT_ROWS)                      \
                kind(panel, job, row, out, format, FLOAT_ROWS);                                    \
            panel += job->panel_bytes;                                                             \
            out += (size_t)size * QUANT_PANEL_ROWS;                                                \
        }                                                                                          \
    }

FLOATS_FUNCTION(floats_f32_avx2, float_tile, QUANT_F32)
FLOATS_FUNCTION(floats_f16_avx2, float_tile, QUANT_F16)
FLOATS_FUNCTION(floats_bf16_avx2, float_tile, QUANT_BF16)
FLOATS_FUNCTION(floats_int8_avx2, widened_tile, QUANT_INT8)
FLOATS_FUNCTION(floats_int8_min_avx2, widened_tile, QUANT_INT8_MIN)
FLOATS_FUNCTION(floats_int4_avx2, widened_tile, QUANT_INT4)
FLOATS_FUNCTION(floats_int4_asym_avx2, widened_tile, QUANT_INT4_ASYM)
FLOATS_FUNCTION(floats_int4_min_avx2, widened_tile, QUANT_INT4_MIN)

/* ---- results ---- */

void finish_avx2(const struct finish_job *job)
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

/* ---- the rung ---- */

static const struct activation_leaves activation_leaves = {
    .measure = measure_avx2,
    .quantise = quantise_avx2,
    .starts = STARTS_HALVES,
};

static bool pack(struct activation *a, uint32_t first, uint32_t end)
{
    return activation_pack(a, first, end, &activation_leaves);
}

static const struct matmul_leaves leaves =
    MATMUL_256_LEAVES(.prefetch_bytes = 512, .n_panels = PANELS_CAP);

static void run(const struct matmul *mm, uint32_t first, uint32_t end)
{
    matmul_drive(mm, first, end, &leaves);
}

const struct matmul_ops matmul_avx2 = {
    .tile_rows = TILE_ROWS,
    .pack = pack,
    .run = run,
};
