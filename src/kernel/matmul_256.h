/* Matrix products of quantised weights in 256-bit registers, for a rung to be made of: AVX2 and
 * AVX-VNNI differ in how they sum products, in nothing else.
 *
 * A file that includes this is one rung. It says STRIP_ROWS before, defines the leaves that are
 * declared under "what a rung brings" and gets the functions of its table: panels_<format> and
 * strip_<format>.
 *
 * Few rows (panels): 32 rows of weights in stream order against one or two rows of activations,
 * several panels walked together, block by block, lines asked for ahead of time as the tuning says.
 * Many rows (strips): 16 rows of weights against up to 12 of activations, group by group. Nibbles
 * of a group become bytes once, in the first-level cache, for all the rows; then the rows pass by
 * a few at a time, as many times 16 sums as registers hold, and the float accumulators, in the
 * cache too, get the group's part. So unpacking costs a twelfth of what it would in every row, and
 * 6 registers are left for weights, the activations and products in flight.
 *
 * Zero points never touch a weight: a rung sums q (w - offset), the offset being whatever is
 * cheapest for it, and the rest, (offset - zero) sum q, is added to each dot. */
#ifndef CASCADIA_KERNEL_MATMUL_256_H
#define CASCADIA_KERNEL_MATMUL_256_H

#include "kernel/kernel_internal.h"

#ifdef __AVX2__ // the file that includes this is built for it

#include <immintrin.h>
#include <string.h>

enum {
    LINE = 64,       // bytes: 16 rows by 4 k, or 8 k of nibbles
    EIGHT = 8,       // rows of a register of sums
    STRIP = 16,      // rows of a line
    QUAD = 4,        // k of a 32-bit lane
    GROUP_CAP = 128, // k of the largest group
    TILE_ROWS = 12,  // of activations: full passes of a strip for all rungs
    STRIP_ROWS_CAP = 6,
};

/* ---- what both share, made once for AVX2 ---- */

bool measure_avx2(const float *x, uint32_t n, float maxima[CHUNK_SUBS]);
void quantise_avx2(const float *x, uint32_t n, const float factors[CHUNK_SUBS],
                   int8_t q[ACTIVATION_CHUNK]);
panels_leaf floats_f32_avx2, floats_f16_avx2, floats_bf16_avx2, floats_int8_avx2,
    floats_int8_min_avx2, floats_int4_avx2, floats_int4_asym_avx2, floats_int4_min_avx2;
finish_leaf finish_avx2;

/* ---- formats ---- */

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

LEAF_INLINE size_t block_of(const struct panel_job *job, enum quant_format format)
{
    return header_of(format) + (size_t)job->group * QUANT_PANEL_ROWS / (is_int8(format) ? 1 : 2);
}

/* Where the lines of half `half` begin for the dot that begins at the block's column k. */
LEAF_INLINE const uint8_t *lines_at(const uint8_t *block, const struct panel_job *job, uint32_t k,
                                    uint32_t half, enum quant_format format)
{
    const uint32_t columns = half * job->group + k;
    return block + header_of(format) + columns * (STRIP / 2) * (is_int8(format) ? 2 : 1);
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

/* Asks for the line that lies ahead of `at`; the distance 0 asks for what is read anyway. */
LEAF_INLINE void ask_ahead(const uint8_t *at, const struct matmul_tuning *tuning)
{
    const char *const ahead = (const char *)at + tuning->prefetch_bytes;
    if (__builtin_expect(tuning->hint == MATMUL_HINT_T0, 1))
        _mm_prefetch(ahead, _MM_HINT_T0);
    else if (tuning->hint == MATMUL_HINT_T1)
        _mm_prefetch(ahead, _MM_HINT_T1);
    else
        _mm_prefetch(ahead, _MM_HINT_NTA);
}

/* ---- one group of a tile ---- */

/* What the rows of a tile bring to one group of weights, from some row on. */
struct group_view {
    const int8_t *q;        // [32 n_subs / 4][size][4]
    const uint32_t *starts; // [runs in the group][size], of the columns that the rung starts with
    const int32_t *sums;    // [size]
    const float *scaled;    // [size]
    const float *scales;    // [size]
    uint32_t size;          // rows of the tile in memory
    uint32_t n_subs;        // runs of 32 k; fewer than the group has when the matrix ends
};

/* Columns that the sums of the rung start anew after, at most the dot's. */
LEAF_INLINE uint32_t start_columns(uint32_t dot_group);

/* The dot that begins at column k, for the tile's rows from `row` on. */
LEAF_INLINE struct group_view group_view(const struct panel_job *job, uint32_t k, uint32_t row,
                                         uint32_t size)
{
    const struct tile *const tile = job->tile;
    const uint32_t left = min_u32(job->cols - k, job->dot_group), sub = k / SUM_GROUP;
    const uint32_t width = run_width(job->dot_group),
                   of_start = run_width(start_columns(job->dot_group));
    const size_t run = (size_t)(sub >> width) * size + row;
    return (struct group_view){
        .q = tile->q + (size_t)k * size + row * QUAD,
        .starts = tile->runs[of_start].starts + (size_t)(sub >> of_start) * size + row,
        .sums = tile->runs[width].sums + run,
        .scaled = tile->runs[width].scaled + run,
        .scales = tile->scales + (size_t)sub * size + row,
        .size = size,
        .n_subs = (left + SUM_GROUP - 1) / SUM_GROUP,
    };
}

/* ---- what a rung brings, and STRIP_ROWS, the rows that pass a strip together ---- */

/* What is subtracted from the stored weights: 0, 8 or 128, as the format's zero point wants it. */
LEAF_INLINE int32_t dots_offset(enum quant_format format, uint32_t dot_group);

/* dots[n][i] = sum over the view's k of q (w - offset) for row i and rows 8 n of one half block,
 * which begins at `lines` as it is stored. Asks for each line ahead. */
LEAF_INLINE void panel_dots(const uint8_t *lines, const struct panel_job *job,
                            const struct group_view *view, __m256i (*dots)[2],
                            const enum quant_format format, const uint32_t rows);

/* dots[i][n], the same for a strip, whose nibbles have become bytes: [k/4][16 rows][4]. */
LEAF_INLINE void strip_dots(const uint8_t *lines, const struct panel_job *job,
                            const struct group_view *view, __m256i (*dots)[2],
                            const enum quant_format format, const uint32_t rows);

/* ---- the end of a group ---- */

/* What a block says of 16 rows of weights. */
struct half_header {
    __m256 scales[2];
    __m256 minima[2]; // formats with a minimum
    __m256i rest[2];  // asym: the pairs (offset - zero, 0)
};

LEAF_INLINE struct half_header half_header(const uint8_t *block, uint32_t half,
                                           const struct panel_job *job,
                                           const enum quant_format format)
{
    const uint32_t row = half * STRIP;
    struct half_header h;
    UNROLL_2(n, 2, {
        h.scales[n] = f16_values(block + (row + n * EIGHT) * 2);
        h.minima[n] = has_minimum(format) ? f16_values(block + 64 + (row + n * EIGHT) * 2)
                                          : _mm256_setzero_ps();
        h.rest[n] = _mm256_setzero_si256();
        if (format == QUANT_INT4_ASYM) {
            const uint8_t *const at = block + 64 + row + n * EIGHT;
            const __m256i zeros =
                _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)at));
            const __m256i offset = _mm256_set1_epi32(dots_offset(format, job->dot_group));
            h.rest[n] =
                _mm256_and_si256(_mm256_sub_epi32(offset, zeros), _mm256_set1_epi32(0xffff));
        }
    })
    return h;
}

/* to[16] after one group of row i: rule 2. */
LEAF_INLINE void fold(float *to, const __m256i *dots, const struct half_header *header,
                      const struct panel_job *job, const struct group_view *view, uint32_t i,
                      const enum quant_format format)
{
    const bool has_rest =
        format == QUANT_INT4_MIN && dots_offset(format, job->dot_group) == 8; // and zero is 0
    const __m256 x_scale = _mm256_set1_ps(view->scales[i]);
    const __m256 scaled_sum = _mm256_set1_ps(view->scaled[i]);
    const __m256i sum = _mm256_set1_epi32(view->sums[i]); // fits 16 bits
    UNROLL_2(n, 2, {
        __m256i dot = dots[n];
        if (format == QUANT_INT4_ASYM)
            dot = _mm256_add_epi32(dot, _mm256_madd_epi16(header->rest[n], sum));
        else if (has_rest)
            dot = _mm256_add_epi32(dot, _mm256_slli_epi32(sum, 3));
        __m256 acc = _mm256_load_ps(to + n * EIGHT);
        const __m256 scale = _mm256_mul_ps(header->scales[n], x_scale);
        acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, acc);
        if (has_minimum(format))
            acc = _mm256_fmadd_ps(header->minima[n], scaled_sum, acc);
        _mm256_store_ps(to + n * EIGHT, acc);
    })
}

/* ---- panels: 32 rows of weights in stream order, 1 or 2 rows of activations ---- */

/* The dots at a block's column `in_block` into acc[rows][32]. */
LEAF_INLINE void panel_group(const uint8_t *block, const struct panel_job *job, uint32_t in_block,
                             const struct group_view *view, float *acc,
                             const enum quant_format format, const uint32_t rows)
{
    for (uint32_t at = 0; at < header_of(format) && in_block == 0; at += LINE)
        ask_ahead(block + at, job->tuning);
    for (uint32_t half = 0; half < 2; half++) {
        __m256i dots[2][2];
        panel_dots(lines_at(block, job, in_block, half, format), job, view, dots, format, rows);
        const struct half_header header = half_header(block, half, job, format);
        UNROLL_2(i, rows, {
            const __m256i of_row[2] = { dots[0][i], dots[1][i] };
            fold(acc + i * QUANT_PANEL_ROWS + half * STRIP, of_row, &header, job, view, i, format);
        })
    }
}

/* All panels of the job together, block by block. Blocks of more than half a page are walked in
 * pairs at most: more of them at once would be more streams than the hardware follows. */
LEAF_INLINE void panels_walk(const struct panel_job *job, float *out,
                             const enum quant_format format, const uint32_t rows)
{
    const size_t block_bytes = block_of(job, format);
    const uint32_t together = block_bytes > 2048 ? 2 : PANELS_CAP;
    const size_t panel_floats = (size_t)rows * QUANT_PANEL_ROWS;
    memset(out, 0, job->n_panels * panel_floats * sizeof(float));
    for (uint32_t first = 0; first < job->n_panels; first += together) {
        const uint32_t n = min_u32(job->n_panels - first, together);
        const uint8_t *block = job->data + first * job->panel_bytes;
        uint32_t in_block = 0;
        for (uint32_t k = 0; k < job->cols; k += job->dot_group) {
            if (in_block == job->group) {
                in_block = 0;
                block += block_bytes;
            }
            const struct group_view view = group_view(job, k, 0, rows);
            for (uint32_t i = 0; i < n; i++)
                panel_group(block + i * job->panel_bytes, job, in_block, &view,
                            out + (first + i) * panel_floats, format, rows);
            in_block += job->dot_group;
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

/* ---- strips: 16 rows of weights, 2 to 12 rows of activations ---- */

/* Nibbles as bytes: [k/8][16 rows][4] pairs become [k/4][16 rows][4]. */
LEAF_INLINE void unpack(const uint8_t *lines, uint32_t n_lines, uint8_t *bytes)
{
    const __m256i low = _mm256_set1_epi8(15);
    for (uint32_t j = 0; j < n_lines; j++) {
        const __m256i w0 = load_256(lines), w1 = load_256(lines + LINE / 2);
        __m256i *const to = (__m256i *)(void *)bytes;
        _mm256_store_si256(to, _mm256_and_si256(w0, low));
        _mm256_store_si256(to + 1, _mm256_and_si256(w1, low));
        _mm256_store_si256(to + 2, _mm256_and_si256(_mm256_srli_epi16(w0, 4), low));
        _mm256_store_si256(to + 3, _mm256_and_si256(_mm256_srli_epi16(w1, 4), low));
        lines += LINE;
        bytes += 2 * LINE;
    }
}

/* One group of a strip. */
struct strip_group {
    const struct panel_job *job;
    uint32_t k;
    const uint8_t *lines; // as bytes
    struct half_header header;
};

/* `rows` rows of the tile from `row` on. */
LEAF_INLINE void strip_rows(const struct strip_group *group, uint32_t row, float *acc,
                            const enum quant_format format, const uint32_t rows)
{
    const struct panel_job *const job = group->job;
    const struct group_view view = group_view(job, group->k, row, job->tile->size);
    __m256i dots[STRIP_ROWS_CAP][2];
    strip_dots(group->lines, job, &view, dots, format, rows);
    acc += row * STRIP;
    UNROLL_6(i, rows, fold(acc + i * STRIP, dots[i], &group->header, job, &view, i, format);)
}

/* All rows of the tile, `rows` at a time. */
LEAF_INLINE void strip_tile(const struct panel_job *job, uint32_t half, float *acc,
                            const enum quant_format format, const uint32_t rows)
{
    _Alignas(LINE) uint8_t bytes[GROUP_CAP * STRIP];
    const size_t block_bytes = block_of(job, format);
    const uint8_t *block = job->data;
    struct strip_group group = { .job = job };
    memset(acc, 0, job->tile->size * STRIP * sizeof(float));
    for (uint32_t in_block = 0; group.k < job->cols; group.k += job->dot_group) {
        if (in_block == job->group) {
            in_block = 0;
            block += block_bytes;
        }
        for (size_t at = 0; job->is_first && in_block == 0 && at < block_bytes; at += LINE)
            ask_ahead(block + at, job->tuning);
        group.lines = lines_at(block, job, in_block, half, format);
        if (!is_int8(format)) {
            const uint32_t n = min_u32(job->cols - group.k, job->dot_group);
            unpack(group.lines, (n + SUM_GROUP - 1) / SUM_GROUP * (SUM_GROUP / 8), bytes);
            group.lines = bytes;
        }
        group.header = half_header(block, half, job, format);
        for (uint32_t row = 0; row < job->tile->count; row += rows)
            strip_rows(&group, row, acc, format, rows);
        in_block += job->dot_group;
    }
}

/* A tile's rows are cut evenly: 9 are three times 3. What is too many, 10 being three times 4, is
 * within the tile's size. */
#define STRIP_FUNCTION(name, format)                                                               \
    static void name(const struct panel_job *job, uint32_t half, float *acc)                       \
    {                                                                                              \
        const uint32_t count = job->tile->count, parts = (count + STRIP_ROWS - 1) / STRIP_ROWS;    \
        const uint32_t rows = (count + parts - 1) / parts;                                         \
        if (rows == STRIP_ROWS)                                                                    \
            strip_tile(job, half, acc, format, STRIP_ROWS);                                        \
        else if (STRIP_ROWS > 5 && rows == 5)                                                      \
            strip_tile(job, half, acc, format, 5);                                                 \
        else if (STRIP_ROWS > 4 && rows == 4)                                                      \
            strip_tile(job, half, acc, format, 4);                                                 \
        else if (rows == 3)                                                                        \
            strip_tile(job, half, acc, format, 3);                                                 \
        else                                                                                       \
            strip_tile(job, half, acc, format, 2);                                                 \
    }

STRIP_FUNCTION(strip_int8, QUANT_INT8)
STRIP_FUNCTION(strip_int8_min, QUANT_INT8_MIN)
STRIP_FUNCTION(strip_int4, QUANT_INT4)
STRIP_FUNCTION(strip_int4_asym, QUANT_INT4_ASYM)
STRIP_FUNCTION(strip_int4_min, QUANT_INT4_MIN)

/* ---- the table ---- */

/* The arguments are the fields of the rung's own tuning. */
/* clang-format off */
#define MATMUL_256_LEAVES(...)                                                                     \
    {                                                                                              \
        .tuning = { __VA_ARGS__ },                                                                 \
        .panels_rows = 2,                                                                          \
        .panels = {                                                                                \
            [QUANT_INT8] = panels_int8,                                                            \
            [QUANT_INT8_MIN] = panels_int8_min,                                                    \
            [QUANT_INT4] = panels_int4,                                                            \
            [QUANT_INT4_ASYM] = panels_int4_asym,                                                  \
            [QUANT_INT4_MIN] = panels_int4_min,                                                    \
        },                                                                                         \
        .strip = {                                                                                 \
            [QUANT_INT8] = strip_int8,                                                             \
            [QUANT_INT8_MIN] = strip_int8_min,                                                     \
            [QUANT_INT4] = strip_int4,                                                             \
            [QUANT_INT4_ASYM] = strip_int4_asym,                                                   \
            [QUANT_INT4_MIN] = strip_int4_min,                                                     \
        },                                                                                         \
        .floats = {                                                                                \
            [QUANT_F32] = floats_f32_avx2,                                                         \
            [QUANT_F16] = floats_f16_avx2,                                                         \
            [QUANT_BF16] = floats_bf16_avx2,                                                       \
            [QUANT_INT8] = floats_int8_avx2,                                                       \
            [QUANT_INT8_MIN] = floats_int8_min_avx2,                                               \
            [QUANT_INT4] = floats_int4_avx2,                                                       \
            [QUANT_INT4_ASYM] = floats_int4_asym_avx2,                                             \
            [QUANT_INT4_MIN] = floats_int4_min_avx2,                                               \
        },                                                                                         \
        .finish = finish_avx2,                                                                     \
    }
/* clang-format on */

#endif
#endif
