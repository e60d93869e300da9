/* Activations: rows of floats become int8 in tiles, with a scale and a sum for each 32 columns.
 *
 * A rung brings two loops over at most 128 columns of a row: `measure` finds the largest
 * magnitudes, `quantise` rounds. What lies between them, scales and factors, is here, so the modes
 * of rule 1 differ in one function and no rung knows them. Rows are taken four at a time: their
 * bytes are transposed in registers, so that a tile [k/4][rows][4] is written 16 bytes at once, and
 * the same registers give the sums: bytes are added in pairs to int16 lanes, which are also the two
 * halves that rungs without a dot instruction start with. SSE2 is part of x86-64, so this too is
 * the same code for every rung. One row alone (decode) has nothing to transpose. */
#include "kernel/kernel_internal.h"

#include <emmintrin.h>
#include <string.h>

#include "base/err.h"

#define QUAD 4u                                       // rows that are packed together
#define CHUNK_RUNS (CHUNK_SUBS + CHUNK_SUBS / 2 + 1u) // runs of 32, 64 and 128 in a chunk

const char *const activation_mode_names[ACTIVATION_MODE_COUNT] = {
    [ACTIVATION_G32] = "32",  [ACTIVATION_G64] = "64",    [ACTIVATION_G128] = "128",
    [ACTIVATION_ROW] = "row", [ACTIVATION_NONE] = "none",
};

uint32_t activation_group(enum activation_mode mode)
{
    switch (mode) {
    case ACTIVATION_G32:
        return 32;
    case ACTIVATION_G64:
        return 64;
    case ACTIVATION_G128:
        return 128;
    default:
        return 0;
    }
}

/* ---- layout ---- */

static size_t round_64(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* Packed room for `count` rows: the sizes that the rungs have code for. */
static uint32_t tile_size(uint32_t count)
{
    if (count <= 4)
        return count;
    return count <= 6 ? 6 : count <= 8 ? 8 : count <= 12 ? 12 : TILE_ROWS_CAP;
}

/* Bytes of the parts of an activation. A line of slack after each: vector loads of a tile's row of
 * words may pass its end. */
struct activation_layout {
    uint32_t cols_padded;
    size_t q_bytes, scales_bytes, runs_bytes, rows_bytes;
};

static struct activation_layout layout_of(uint32_t rows, uint32_t cols)
{
    const size_t packed_rows = (size_t)rows + TILE_ROWS_CAP - 1;
    const size_t chunks = ((size_t)cols + ACTIVATION_CHUNK - 1) / ACTIVATION_CHUNK;
    return (struct activation_layout){
        .cols_padded = (uint32_t)(chunks * ACTIVATION_CHUNK),
        .q_bytes = round_64(packed_rows * chunks * ACTIVATION_CHUNK) + 64,
        .scales_bytes = round_64(packed_rows * chunks * CHUNK_SUBS * sizeof(float)) + 64,
        .runs_bytes = round_64(packed_rows * chunks * CHUNK_RUNS * sizeof(float)) + 64,
        .rows_bytes = round_64(packed_rows * sizeof(float)) + 64,
    };
}

size_t activation_bytes(uint32_t rows, uint32_t cols)
{
    const struct activation_layout layout = layout_of(rows, cols);
    return layout.q_bytes + layout.scales_bytes + 3 * layout.runs_bytes + layout.rows_bytes;
}

void activation_init(struct activation *a, const struct kernel *kernel, void *memory,
                     const struct activation_options *options)
{
    const struct activation_layout layout = layout_of(options->rows, options->cols);
    uint8_t *const scales = (uint8_t *)memory + layout.q_bytes;
    uint8_t *const runs = scales + layout.scales_bytes;
    const uint32_t tile_rows = kernel->matmul->tile_rows;
    must(options->mode < ACTIVATION_MODE_COUNT);
    *a = (struct activation){
        .rows = options->rows,
        .cols = options->cols,
        .n_tiles = (options->rows + tile_rows - 1) / tile_rows,
        .mode = options->mode,
        .quantised = options->quantised && options->mode != ACTIVATION_NONE,
        .x = options->x,
        .x_stride = options->x_stride,
        .tile_rows = tile_rows,
        .cols_padded = layout.cols_padded,
        .q = memory,
        .scales = (float *)(void *)scales,
        .sums = (int32_t *)(void *)runs,
        .scaled_sums = (float *)(void *)(runs + layout.runs_bytes),
        .starts = (uint32_t *)(void *)(runs + 2 * layout.runs_bytes),
        .row_scales = (float *)(void *)(runs + 3 * layout.runs_bytes),
    };
}

/* Rows are cut into full tiles and a rest; a rest of at most a quarter joins the last full tile and
 * both are cut anew, at three quarters, so that no tile is too small to pay for unpacking its
 * weights and none is padded by more than a row or two. */
void activation_tile(const struct activation *a, uint32_t tile, uint32_t *first, uint32_t *end)
{
    const uint32_t cap = a->tile_rows, full = a->rows / cap, rest = a->rows % cap;
    *first = tile * cap;
    *end = min_u32(*first + cap, a->rows);
    if (rest == 0 || full == 0 || rest > cap / 4 || tile + 1 < full)
        return;
    const uint32_t from = (full - 1) * cap, middle = from + cap / 4 * 3;
    *first = tile + 1 == full ? from : middle;
    *end = tile + 1 == full ? middle : a->rows;
}

void tile_view(const struct activation *a, uint32_t index, struct tile *tile)
{
    uint32_t first, end, packed = index * a->tile_rows;
    activation_tile(a, index, &first, &end);
    if (first < packed) { // the last of two that share a rest
        uint32_t before;
        activation_tile(a, index - 1, &before, &first);
        packed = before + tile_size(first - before);
    }
    const uint32_t chunks = a->cols_padded / ACTIVATION_CHUNK;
    *tile = (struct tile){
        .row = first,
        .count = end - first,
        .size = tile_size(end - first),
        .q = a->q + (size_t)packed * a->cols_padded,
        .scales = a->scales + (size_t)packed * chunks * CHUNK_SUBS,
        .row_scales = a->row_scales + packed,
        .x = a->x + first * a->x_stride,
        .x_stride = a->x_stride,
    };
    size_t at = (size_t)packed * chunks * CHUNK_RUNS;
    for (uint32_t width = 0; width < RUN_WIDTHS; width++) {
        tile->runs[width] = (struct run_sums){ a->sums + at, a->scaled_sums + at, a->starts + at };
        at += (size_t)tile->size * chunks * (CHUNK_SUBS >> width);
    }
}

/* ---- scales ---- */

/* What a magnitude means for the group that has it as its largest: x is scale times q, q is x times
 * factor. */
struct range {
    float scale, factor;
};

static struct range range_of(float largest)
{
    if (largest < ACTIVATION_MIN)
        return (struct range){ 0.0f, 0.0f };
    return (struct range){ largest / 127.0f, 127.0f / largest };
}

static float larger(float a, float b)
{
    return a > b ? a : b;
}

/* Scales and factors of a chunk whose 32s have these maxima, `group` columns having one. */
static void chunk_ranges(const float maxima[CHUNK_SUBS], uint32_t group, float scales[CHUNK_SUBS],
                         float factors[CHUNK_SUBS])
{
    const uint32_t subs = group / SUM_GROUP;
    for (uint32_t first = 0; first < CHUNK_SUBS; first += subs) {
        float largest = maxima[first];
        for (uint32_t i = 1; i < subs; i++)
            largest = larger(largest, maxima[first + i]);
        const struct range range = range_of(largest);
        for (uint32_t i = first; i < first + subs; i++) {
            scales[i] = range.scale;
            factors[i] = range.factor;
        }
    }
}

static bool row_range(const float *x, uint32_t cols, const struct activation_leaves *leaves,
                      struct range *range)
{
    float largest = 0.0f, maxima[CHUNK_SUBS];
    bool finite = true;
    for (uint32_t k = 0; k < cols; k += ACTIVATION_CHUNK) {
        finite &= leaves->measure(x + k, min_u32(ACTIVATION_CHUNK, cols - k), maxima);
        for (uint32_t i = 0; i < CHUNK_SUBS; i++)
            largest = larger(largest, maxima[i]);
    }
    *range = range_of(finite ? largest : 0.0f);
    return finite;
}

/* ---- rows ---- */

/* A row on its way into a tile; x NULL: there is none, its place is filled with zeros. */
struct packed_row {
    const float *x;
    struct range range; // ACTIVATION_ROW only
};

static bool pack_begin(const struct activation *a, const struct tile *tile, uint32_t i,
                       const struct activation_leaves *leaves, struct packed_row *row)
{
    *row = (struct packed_row){ .x = i < tile->count ? tile->x + i * tile->x_stride : NULL };
    const bool finite =
        !row->x || a->mode != ACTIVATION_ROW || row_range(row->x, a->cols, leaves, &row->range);
    if (a->mode == ACTIVATION_ROW && i < tile->size)
        tile->row_scales[i] = row->range.scale;
    return finite;
}

/* Columns [k, k + 128) of a row: q, and its scales for the kernels. */
static bool pack_chunk(const struct activation *a, const struct packed_row *row, uint32_t k,
                       const struct activation_leaves *leaves, int8_t q[ACTIVATION_CHUNK],
                       float scales[CHUNK_SUBS])
{
    const uint32_t n = min_u32(ACTIVATION_CHUNK, a->cols - k);
    float factors[CHUNK_SUBS];
    if (a->mode == ACTIVATION_ROW) {
        for (uint32_t i = 0; i < CHUNK_SUBS; i++) {
            factors[i] = row->range.factor;
            scales[i] = 1.0f;
        }
    } else {
        float maxima[CHUNK_SUBS];
        if (!leaves->measure(row->x + k, n, maxima))
            return false;
        chunk_ranges(maxima, activation_group(a->mode), scales, factors);
    }
    leaves->quantise(row->x + k, n, factors, q);
    return true;
}

/* ---- one row ---- */

/* Place `at` of a tile with one row gets the sums of a run: of its q at k mod 4 < 2, and of the
 * others. */
static void put_run(const struct run_sums *runs, size_t at, int32_t first, int32_t second,
                    float scale, enum activation_starts starts)
{
    const int32_t sum = first + second;
    runs->sums[at] = sum;
    runs->scaled[at] = scale * (float)sum;
    runs->starts[at] = starts == STARTS_HALVES ? (uint32_t)(uint16_t)(-8 * first) |
                                                     (uint32_t)(uint16_t)(-8 * second) << 16
                                               : (uint32_t)(-8 * sum);
}

/* All runs of the chunk at `sub` of a tile with one row. */
static void sum_chunk(const struct tile *tile, uint32_t sub, enum activation_starts starts)
{
    int32_t first[CHUNK_SUBS] = { 0 }, second[CHUNK_SUBS] = { 0 };
    for (uint32_t i = 0; i < CHUNK_SUBS; i++) {
        const int8_t *const q = tile->q + (size_t)(sub + i) * SUM_GROUP;
        for (uint32_t k = 0; k < SUM_GROUP; k += 4) {
            first[i] += q[k] + q[k + 1];
            second[i] += q[k + 2] + q[k + 3];
        }
    }
    for (uint32_t width = 0; width < RUN_WIDTHS; width++) {
        const uint32_t step = 1u << width;
        for (uint32_t i = 0; i < CHUNK_SUBS; i += step)
            put_run(&tile->runs[width], (sub + i) / step, first[i], second[i],
                    tile->scales[sub + i], starts);
        for (uint32_t i = 0; i + step < CHUNK_SUBS; i += 2 * step) {
            first[i] += first[i + step];
            second[i] += second[i + step];
        }
    }
}

static bool pack_one(const struct activation *a, const struct tile *tile,
                     const struct activation_leaves *leaves)
{
    struct packed_row row;
    bool finite = pack_begin(a, tile, 0, leaves, &row);
    for (uint32_t k = 0; finite && k < a->cols; k += ACTIVATION_CHUNK) {
        const uint32_t sub = k / SUM_GROUP;
        finite = pack_chunk(a, &row, k, leaves, tile->q + k, tile->scales + sub);
        sum_chunk(tile, sub, leaves->starts);
    }
    return finite;
}

/* ---- four rows ---- */

/* The 32-bit lanes [0, n) of v. */
LEAF_INLINE void store_lanes(void *to, __m128i v, const uint32_t n)
{
    if (n == QUAD) {
        _mm_storeu_si128(to, v);
        return;
    }
    _mm_storel_epi64(to, v);
    if (n == 3) {
        const int32_t third = _mm_cvtsi128_si32(_mm_srli_si128(v, 8));
        memcpy((uint8_t *)to + 8, &third, sizeof(third));
    }
}

/* Adds the four bytes of each lane, two and two, to its int16 halves. */
LEAF_INLINE __m128i add_pairs(__m128i pairs, __m128i v)
{
    const __m128i even = _mm_srai_epi16(_mm_slli_epi16(v, 8), 8), odd = _mm_srai_epi16(v, 8);
    return _mm_add_epi16(pairs, _mm_add_epi16(even, odd));
}

/* 32 columns of four rows, q[row][128], to words[8][size][4]. Returns the sums in pairs. */
LEAF_INLINE __m128i transpose_sub(const int8_t *q, int8_t *words, size_t word_bytes,
                                  const uint32_t n)
{
    __m128i pairs = _mm_setzero_si128();
    for (uint32_t k = 0; k < SUM_GROUP; k += 16) {
        __m128i rows[QUAD];
        for (uint32_t i = 0; i < QUAD; i++)
            rows[i] = _mm_load_si128((const void *)(q + i * ACTIVATION_CHUNK + k));
        const __m128i low01 = _mm_unpacklo_epi32(rows[0], rows[1]);
        const __m128i low23 = _mm_unpacklo_epi32(rows[2], rows[3]);
        const __m128i high01 = _mm_unpackhi_epi32(rows[0], rows[1]);
        const __m128i high23 = _mm_unpackhi_epi32(rows[2], rows[3]);
        const __m128i out[4] = {
            _mm_unpacklo_epi64(low01, low23),
            _mm_unpackhi_epi64(low01, low23),
            _mm_unpacklo_epi64(high01, high23),
            _mm_unpackhi_epi64(high01, high23),
        };
        for (uint32_t word = 0; word < 4; word++) {
            store_lanes(words, out[word], n);
            pairs = add_pairs(pairs, out[word]);
            words += word_bytes;
        }
    }
    return pairs;
}

/* Place `at` and the n - 1 after it get the sums of a run of these rows. */
LEAF_INLINE void put_runs(const struct run_sums *runs, size_t at, __m128i pairs, __m128 scale,
                          enum activation_starts starts, const uint32_t n)
{
    const __m128i zero = _mm_setzero_si128();
    const __m128i sums = _mm_madd_epi16(pairs, _mm_set1_epi16(1));
    store_lanes(runs->sums + at, sums, n);
    store_lanes(runs->scaled + at, _mm_castps_si128(_mm_mul_ps(scale, _mm_cvtepi32_ps(sums))), n);
    store_lanes(runs->starts + at,
                starts == STARTS_HALVES ? _mm_sub_epi16(zero, _mm_slli_epi16(pairs, 3))
                                        : _mm_sub_epi32(zero, _mm_slli_epi32(sums, 3)),
                n);
}

/* The chunk at `sub` of rows [i, i + n): q[4][128] and scales[32s][4] into the tile. */
LEAF_INLINE void place_chunk(const struct tile *tile, uint32_t i, uint32_t sub, const int8_t *q,
                             float (*scales)[QUAD], enum activation_starts starts, const uint32_t n)
{
    const size_t size = tile->size, word_bytes = size * 4;
    __m128i pairs[CHUNK_SUBS];
    __m128 scale[CHUNK_SUBS];
    for (uint32_t part = 0; part < CHUNK_SUBS; part++) {
        int8_t *const words = tile->q + (size_t)(sub + part) * (SUM_GROUP / 4) * word_bytes + i * 4;
        pairs[part] = transpose_sub(q + part * SUM_GROUP, words, word_bytes, n);
        scale[part] = _mm_loadu_ps(scales[part]);
        store_lanes(tile->scales + (sub + part) * size + i, _mm_castps_si128(scale[part]), n);
        put_runs(&tile->runs[0], (sub + part) * size + i, pairs[part], scale[part], starts, n);
    }
    for (uint32_t part = 0; part < CHUNK_SUBS; part += 2) {
        pairs[part] = _mm_add_epi16(pairs[part], pairs[part + 1]);
        put_runs(&tile->runs[1], (sub + part) / 2 * size + i, pairs[part], scale[part], starts, n);
    }
    put_runs(&tile->runs[2], sub / 4 * size + i, _mm_add_epi16(pairs[0], pairs[2]), scale[0],
             starts, n);
}

/* Rows [i, i + n) of a tile. */
LEAF_INLINE bool pack_rows(const struct activation *a, const struct tile *tile, uint32_t i,
                           const struct activation_leaves *leaves, const uint32_t n)
{
    _Alignas(64) int8_t q[QUAD][ACTIVATION_CHUNK] = { { 0 } };
    struct packed_row rows[QUAD];
    bool finite = true;
    for (uint32_t row = 0; row < QUAD; row++)
        finite &= pack_begin(a, tile, i + row, leaves, &rows[row]);
    for (uint32_t k = 0; finite && k < a->cols; k += ACTIVATION_CHUNK) {
        float scales[CHUNK_SUBS][QUAD] = { { 0 } };
        for (uint32_t row = 0; row < n; row++) {
            float own[CHUNK_SUBS];
            if (!rows[row].x)
                continue;
            if (!pack_chunk(a, &rows[row], k, leaves, q[row], own))
                return false;
            for (uint32_t part = 0; part < CHUNK_SUBS; part++)
                scales[part][row] = own[part];
        }
        place_chunk(tile, i, k / SUM_GROUP, q[0], scales, leaves->starts, n);
    }
    return finite;
}

static bool pack_tile(const struct activation *a, const struct tile *tile,
                      const struct activation_leaves *leaves)
{
    if (tile->size == 1)
        return pack_one(a, tile, leaves);
    bool finite = true;
    uint32_t i = 0;
    for (; i + QUAD <= tile->size; i += QUAD)
        finite &= pack_rows(a, tile, i, leaves, QUAD);
    if (tile->size - i == 3)
        finite &= pack_rows(a, tile, i, leaves, 3);
    else if (tile->size - i == 2)
        finite &= pack_rows(a, tile, i, leaves, 2);
    return finite;
}

static bool all_finite(const float *x, uint32_t cols, const struct activation_leaves *leaves)
{
    float maxima[CHUNK_SUBS];
    bool finite = true;
    for (uint32_t k = 0; k < cols; k += ACTIVATION_CHUNK)
        finite &= leaves->measure(x + k, min_u32(ACTIVATION_CHUNK, cols - k), maxima);
    return finite;
}

bool activation_pack(struct activation *a, uint32_t first, uint32_t end,
                     const struct activation_leaves *leaves)
{
    bool finite = true;
    for (uint32_t index = first; index < end; index++) {
        struct tile tile;
        tile_view(a, index, &tile);
        if (a->quantised) {
            finite &= pack_tile(a, &tile, leaves);
            continue;
        }
        for (uint32_t i = 0; i < tile.count; i++)
            finite &= all_finite(tile.x + i * tile.x_stride, a->cols, leaves);
    }
    return finite;
}
