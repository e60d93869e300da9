/* What the rungs share: the coefficients of exp, the tiles of an activation, and the two drivers
 * that turn a matrix product or an attention into calls of a rung's leaves. The drivers fix the
 * order of everything that has one; the leaves do the arithmetic of one tile. */
#ifndef CASCADIA_KERNEL_KERNEL_INTERNAL_H
#define CASCADIA_KERNEL_KERNEL_INTERNAL_H

#include "kernel/kernel.h"

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Part of a loop that is unrolled over a tile. The undefined-behaviour sanitizer is off inside: its
 * checks, dozens a step, would be unrolled too, for minutes of compilation. */
#ifdef __clang__
#define LEAF_INLINE static inline __attribute__((always_inline, no_sanitize("undefined")))
#else
#define LEAF_INLINE static inline __attribute__((always_inline))
#endif

/* The statements after n once for each i < n, i being a constant in them: an array of registers
 * must have constant indices before any pass of a compiler, or it stays in memory. n is a constant,
 * too. */
/* clang-format off */
#define UNROLL_2(i, n, ...) UNROLL_STEP(i, 0, n, __VA_ARGS__) UNROLL_STEP(i, 1, n, __VA_ARGS__)
#define UNROLL_AT(i, a, b, n, ...)                                                                 \
    UNROLL_STEP(i, a, n, __VA_ARGS__) UNROLL_STEP(i, b, n, __VA_ARGS__)
#define UNROLL_4(i, n, ...) UNROLL_2(i, n, __VA_ARGS__) UNROLL_AT(i, 2, 3, n, __VA_ARGS__)
#define UNROLL_6(i, n, ...) UNROLL_4(i, n, __VA_ARGS__) UNROLL_AT(i, 4, 5, n, __VA_ARGS__)
#define UNROLL_8(i, n, ...) UNROLL_6(i, n, __VA_ARGS__) UNROLL_AT(i, 6, 7, n, __VA_ARGS__)
#define UNROLL_10(i, n, ...) UNROLL_8(i, n, __VA_ARGS__) UNROLL_AT(i, 8, 9, n, __VA_ARGS__)
#define UNROLL_12(i, n, ...) UNROLL_10(i, n, __VA_ARGS__) UNROLL_AT(i, 10, 11, n, __VA_ARGS__)
#define UNROLL_14(i, n, ...) UNROLL_12(i, n, __VA_ARGS__) UNROLL_AT(i, 12, 13, n, __VA_ARGS__)
#define UNROLL_16(i, n, ...) UNROLL_14(i, n, __VA_ARGS__) UNROLL_AT(i, 14, 15, n, __VA_ARGS__)
/* clang-format on */
#define UNROLL_STEP(i, at, n, ...)                                                                 \
    {                                                                                              \
        enum { i = at };                                                                           \
        if (i < (n)) {                                                                             \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* ---- exp, in every rung: c = min(x, MAX); t = fma(c, LOG2E, ROUND); n = t - ROUND;
 * r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, c)); p = Horner(C6 .. C2, 1, 1) in r;
 * result = x < MIN ? 0 : p * 2^n ---- */
#define EXP_MAX 88.375f
#define EXP_MIN (-86.98f)
#define EXP_LOG2E 0x1.715476p+0f
#define EXP_ROUND 12582912.0f // 1.5 x 2^23: adding it rounds to an integer in the low bits
#define EXP_LN2_HIGH 0x1.62e4p-1f
#define EXP_LN2_LOW 0x1.7f7d1cp-20f
#define EXP_C2 0x1.0p-1f
#define EXP_C3 0x1.5554dcp-3f
#define EXP_C4 0x1.55551ap-5f
#define EXP_C5 0x1.120ba2p-7f
#define EXP_C6 0x1.6d113cp-10f

/* ---- activations ---- */

#define ACTIVATION_CHUNK 128u // columns that are measured and rounded in one go
#define SUM_GROUP 32u         // columns that share a scale and a sum in memory
#define CHUNK_SUBS (ACTIVATION_CHUNK / SUM_GROUP)
/* A group whose largest magnitude is below this is a group of zeros: its scale would leave the
 * normal range and 127 / max that of floats. */
#define ACTIVATION_MIN 0x1p-118f

#define TILE_ROWS_CAP 16u
#define RUN_WIDTHS 3u // sums are kept for runs of 32, 64 and 128 columns

/* Of runs of `width` columns, [cols_padded/width][size] each: what a dot of that many columns needs
 * to know of its rows. `scaled` has a meaning where a run lies in one activation group. */
struct run_sums {
    int32_t *sums;    // of q
    float *scaled;    // scale * (float)sum
    uint32_t *starts; // what the rung wants, enum activation_starts
};

/* One tile of an activation: `count` rows from `row` on, packed with room for `size` of them (the
 * others are zeros and their results are dropped). */
struct tile {
    uint32_t row, count, size;
    int8_t *q;     // [cols_padded/4][size][4]
    float *scales; // [cols_padded/32][size]
    struct run_sums runs[RUN_WIDTHS];
    float *row_scales; // [size]
    const float *x;    // [count] rows as they came, x_stride apart
    size_t x_stride;
};

/* The place in `runs` for runs of 32, 64 or 128 columns. */
static inline uint32_t run_width(uint32_t columns)
{
    return columns / 64;
}

/* Columns that share a scale; 0: a whole row, or no scales at all. */
uint32_t activation_group(enum activation_mode mode);

void tile_view(const struct activation *a, uint32_t index, struct tile *tile);

/* Row i of the tile as it came; past count the last one again. */
static inline const float *tile_x(const struct tile *tile, uint32_t i)
{
    return tile->x + (i < tile->count ? i : tile->count - 1) * tile->x_stride;
}

/* What the rung keeps in `starts` for a run of columns. */
enum activation_starts {
    STARTS_SUM,   // -8 x the sum of q
    STARTS_HALVES // two words of 16 bits, -8 x the sum of q at k mod 4 < 2 and -8 x that of the
                  // others: what a lane of int16 pairs starts with; runs of 32 and 64 only
};

struct activation_leaves {
    /* maxima[i] = the largest magnitude among x[32 i ..], n 1..128 values in all, 0 where there
     * are none. False when a value is not finite: the maxima are anything then. */
    bool (*measure)(const float *x, uint32_t n, float maxima[CHUNK_SUBS]);
    /* q[k] = x[k] * factors[k / 32] to the nearest even integer within 127, zeros from n on. */
    void (*quantise)(const float *x, uint32_t n, const float factors[CHUNK_SUBS],
                     int8_t q[ACTIVATION_CHUNK]);
    enum activation_starts starts;
};

/* `pack` of a rung. */
bool activation_pack(struct activation *a, uint32_t first, uint32_t end,
                     const struct activation_leaves *leaves);

/* ---- matrix products ---- */

#define PANELS_CAP 4u // walked together

/* Some panels of one matrix times one tile. */
struct panel_job {
    const uint8_t *data; // of the first panel
    size_t panel_bytes;
    uint32_t n_panels;
    uint32_t cols, group;
    uint32_t dot_group; // columns of a dot: the smaller of the weight's and the activation's group
    const struct tile *tile;
    const struct matmul_tuning *tuning;
    bool is_plain; // every scale of the tile is 1 (ACTIVATION_ROW)
    bool is_first; // strips: nothing has read the panel yet
};

/* acc[panel][tile size][32] = the panels times the tile. */
typedef void panels_leaf(const struct panel_job *job, float *acc);
/* acc[tile size][16] = rows 16 half .. of one panel times the tile. */
typedef void strip_leaf(const struct panel_job *job, uint32_t half, float *acc);

/* Where results go: `n` values of each of the tile's rows, from column `column` on. */
struct finish_job {
    const struct matmul_part *part;
    const struct tile *tile;
    uint32_t column, n;
    const float *row_scales; // [tile size]; NULL: the accumulators are finished
    const float *acc;        // [tile size][width]
    const float *up_acc;     // the up panel's, SILU_MUL only
    uint32_t width;          // 16 or 32
};

typedef void finish_leaf(const struct finish_job *job);

/* Leaves by format; a format has a leaf where its column says so. */
struct matmul_leaves {
    struct matmul_tuning tuning;             // when the caller brings none
    uint32_t panels_rows;                    // tiles up to this size go by panels, others by strips
    panels_leaf *panels[QUANT_FORMAT_COUNT]; // quantised formats
    strip_leaf *strip[QUANT_FORMAT_COUNT];   // the same ones; NULL: always by panels
    panels_leaf *floats[QUANT_FORMAT_COUNT]; // all: the f32 values it means times x, rule 3
    finish_leaf *finish;
};

void matmul_drive(const struct matmul *mm, uint32_t first, uint32_t end,
                  const struct matmul_leaves *leaves);

/* Bytes of a block's header and of a whole block. */
uint32_t block_header_bytes(enum quant_format format);
uint32_t block_bytes(enum quant_format format, uint32_t group);

/* ---- attention ---- */

#define ATTEND_PAIRS_CAP 12u
#define ATTEND_RECORD_MIX 16u // floats before a record's mix

/* A record is a partial softmax of one (row, query head): [0] the maximum, [1] the sum, from
 * ATTEND_RECORD_MIX on the mix[head_dim]; 64-byte aligned. */

/* int16 numbers of q8 attention: x = q * scale with scale = max / 32767; what is smaller than this
 * is zero. */
#define ATTEND_Q16_MAX 32767.0f
#define ATTEND_Q16_MIN 0x1p-110f

/* One kv head's part of a page (kernel.h says how values lie). */
struct attend_block {
    enum kv_type type;
    const void *k, *v;
    const float *k_scales, *v_scales; // q8
    /* What is read after K and after V, as large as they are: to be fetched meanwhile. */
    const void *ahead_of_k, *ahead_of_v;
};

/* Bytes of one kv head's part of a page; where its V block begins, and of q8 the scales of K. */
size_t attend_block_bytes(const struct kv_shape *shape);
size_t attend_v_offset(const struct kv_shape *shape);
size_t attend_scales_offset(const struct kv_shape *shape);

/* Up to ATTEND_PAIRS_CAP pairs of (row, query head) and one page. Only the first n_pairs of each
 * array hold something, but `largest` and `into_largest` are zero after them. */
struct attend_tile {
    uint32_t n_pairs;
    uint32_t head_dim;
    float scale;
    const float *q[ATTEND_PAIRS_CAP];
    float *into[ATTEND_PAIRS_CAP]; // record that the page is merged into
    float *scores;                 // [ATTEND_PAIRS_CAP][64], then the weights
    float *mixes;                  // [ATTEND_PAIRS_CAP][mix_stride] of the page
    size_t mix_stride;
    /* q8: q as int16 and its scale times that of the scores; the page's weights likewise. */
    const int16_t *q16[ATTEND_PAIRS_CAP];
    float q16_scale[ATTEND_PAIRS_CAP];
    int16_t *weights; // [ATTEND_PAIRS_CAP][64]
    float weights_scale[ATTEND_PAIRS_CAP];
    /* Places [first, end) of the page that a pair sees, at least one. */
    uint32_t first[ATTEND_PAIRS_CAP], end[ATTEND_PAIRS_CAP];
    /* The page's maximum and sum, and rule 7's a and b: what the record and the page's mix are
     * multiplied with. */
    float largest[16], sum[16], into_largest[16], a[16], b[16];
};

/* How `mix` treats what is there. */
enum attend_mix {
    ATTEND_MIX_ADD,   // mixes += the places; they were cleared, and `merge` follows
    ATTEND_MIX_MERGE, // the places are all that the pairs see: merges their mix into the records
};

struct attend_leaves {
    uint32_t n_pairs; // of a tile, at most
    /* x[n] as int16 (n even; q is written up to a multiple of 16): the scale, NaN when a value is
     * not finite. */
    float (*quantise)(const float *x, uint32_t n, int16_t *q);
    /* f16 to f32. */
    void (*widen)(const uint16_t *from, uint32_t n, float *to);
    /* scores of positions [16 first, 16 end): the dot times scale; of q8 (float)dot times
     * (q16_scale * the position's). */
    void (*scores)(const struct attend_tile *tile, const struct attend_block *block, uint32_t first,
                   uint32_t end);
    /* Over the places that each pair sees: scores become exp(score - max), others 0; `largest` and
     * `sum` are filled in. q8: their products with the positions' scales become int16, in
     * `weights`. */
    void (*softmax)(struct attend_tile *tile, const struct attend_block *block);
    /* Merges `largest` and `sum` into the records and fills in a and b (rule 7). */
    void (*weigh)(struct attend_tile *tile);
    /* The mix over places [first, end), in order, which all pairs see: fma of scores[place] and v.
     * q8: always to be merged, first and end are even, and a place that a pair does not see has
     * weight 0: (float)dot times weights_scale. */
    void (*mix)(const struct attend_tile *tile, const struct attend_block *block, uint32_t first,
                uint32_t end, enum attend_mix how);
    /* Merges the mixes into the records. */
    void (*merge)(const struct attend_tile *tile);
    /* out[head_dim] = mix * (1 / sum) */
    void (*finish)(const float *record, uint32_t head_dim, float *out);
};

void attend_drive(const struct attend *a, void *scratch, const struct attend_leaves *leaves);
void attend_drive_part(const struct attend *a, uint32_t segment, void *partial, void *scratch,
                       const struct attend_leaves *leaves);
void attend_drive_merge(const struct attend *a, const void *partials, void *scratch,
                        const struct attend_leaves *leaves);

/* ---- rungs ---- */

extern const struct vec_ops vec_scalar, vec_avx2, vec_avx512;
extern const struct matmul_ops matmul_scalar, matmul_avx2, matmul_avxvnni, matmul_avx512;
extern const struct attend_ops attend_scalar, attend_avx2, attend_avx512;

#endif
