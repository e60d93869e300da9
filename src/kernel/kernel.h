/* Loops over numbers: what a transformer computes, written once per instruction set.
 *
 * A rung (`struct kernel`) is a table of functions for one instruction set. Every rung gives the
 * same bits (docs/numerics.md), so which one runs is a matter of speed alone; `scalar` is the
 * definition. Nothing here allocates, locks, logs or keeps state: the caller gives all memory and
 * cuts the work into items that threads of a team take in any order. All functions may be called
 * from any thread. Floats flushed to zero: callers run these inside a team, which sets FTZ and DAZ.
 *
 * One matrix product is: activation_init once, `pack` over tiles (from one or many threads, all
 * done before the next step), `run` over items (from many threads). Attention of one layer is:
 * `store` for each new row, then `run` per (kv head, run of rows), or for long contexts `part` per
 * (kv head, run of segments) and `merge` when all parts are there; both ways give the same bits.
 */
#ifndef CASCADIA_KERNEL_KERNEL_H
#define CASCADIA_KERNEL_KERNEL_H

#include "quant/quant.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- vectors ---- */

struct vec_ops {
    /* out[n] = x[n] / sqrt(mean(x^2) + epsilon) * weight[n]; weight NULL: without it. out may be x.
     */
    void (*rmsnorm)(const float *x, const float *weight, uint32_t n, float epsilon, float *out);
    /* x[n] += y[n] */
    void (*add)(float *x, const float *y, size_t n);
    /* out[n] = silu(gate[n]) * up[n]; out may be either. */
    void (*silu_mul)(const float *gate, const float *up, size_t n, float *out);
    /* Turns x[n_heads][head_dim] in place: of each head the pairs (i, i + rotary/2), i < rotary/2,
     * by the angle whose cos[i] and sin[i] are given; values from rotary on stay. rotary is even.
     */
    void (*rope)(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t rotary, const float *cos,
                 const float *sin);
    /* The index of the largest of x[n], the lowest one among equals. False when one is NaN (or n is
     * 0): *index is untouched. */
    bool (*argmax)(const float *x, size_t n, uint32_t *index);
    /* out[i] = exp(x[i] - shift) and their sum (numerics rule 4). out NULL: the sum alone; may be
     * x. */
    float (*exp_sum)(const float *x, size_t n, float shift, float *out);
};

/* ---- matrices ---- */

/* w[rows][cols] in panels (quant/quant.h, docs/shard-format.md). `data` is 64-byte aligned and
 * borrowed. */
struct matrix {
    enum quant_format format;
    uint32_t group; // 32, 64, 128; 0 for floats
    uint32_t rows, cols;
    const uint8_t *data;
};

/* out[cols] = row `row` of the matrix: exactly the f32 values it means (embeddings). */
void matrix_decode_row(const struct matrix *matrix, uint32_t row, float *out);

/* How activations are rounded before they meet quantised weights (numerics rules 1 and 2). A mode
 * changes results, so it is a setting, never a choice of the hardware. Float weights are not
 * touched by it. */
enum activation_mode {
    ACTIVATION_G32, // int8, a scale for each 32 columns of a row
    ACTIVATION_G64,
    ACTIVATION_G128,
    ACTIVATION_ROW,  // int8, one scale a row
    ACTIVATION_NONE, // not rounded: weights are widened to f32; slow
    ACTIVATION_MODE_COUNT
};

/* "32", "64", "128", "row", "none". */
extern const char *const activation_mode_names[ACTIVATION_MODE_COUNT];

/* What is to be packed. */
struct activation_options {
    const float *x;  // [rows][cols], borrowed until the last `run`: float weights read it
    size_t x_stride; // floats from row to row
    uint32_t rows, cols;
    enum activation_mode mode;
    bool quantised; // some matrix that follows has a quantised format
};

/* The rows that a matrix is multiplied with, quantised and packed in tiles as the rung likes it.
 * Filled by activation_init and `pack`; the memory is the caller's; all fields are private but
 * rows, cols and n_tiles. Whatever the mode, scales are kept for each 32 columns and sums for runs
 * of 32, 64 and 128: no kernel has to know where an activation group begins. */
struct activation {
    uint32_t rows, cols;
    uint32_t n_tiles; // items of `pack`
    enum activation_mode mode;
    bool quantised; // false: kernels read x, nothing is packed
    const float *x;
    size_t x_stride;
    uint32_t tile_rows; // of the rung
    uint32_t cols_padded;
    int8_t *q;          // per tile [cols/4][tile][4]
    float *scales;      // per tile [cols/32][tile]; 1 in ACTIVATION_ROW
    int32_t *sums;      // per tile [cols/32][tile], [cols/64][tile], [cols/128][tile]: sums of q
    float *scaled_sums; // likewise: scale * (float)sum
    uint32_t *starts;   // likewise: what a dot starts with, as the rung likes it
    float *row_scales;  // per tile [tile]; ACTIVATION_ROW only
};

struct kernel;

/* Bytes, multiple of 64, that an activation of at most rows x cols needs on any rung, in any mode.
 */
size_t activation_bytes(uint32_t rows, uint32_t cols);

/* Lays `a` out in `memory` (activation_bytes, 64-byte aligned). */
void activation_init(struct activation *a, const struct kernel *kernel, void *memory,
                     const struct activation_options *options);

/* The rows [*first, *end) of tile `tile`: whoever makes x tile by tile can pack each at once. */
void activation_tile(const struct activation *a, uint32_t tile, uint32_t *first, uint32_t *end);

#define MATMUL_PARTS_CAP 4u

enum matmul_epilogue {
    MATMUL_STORE,    // out = w x + bias
    MATMUL_ADD,      // out += w x + bias
    MATMUL_SILU_MUL, // panels alternate gate, up: out[i] = silu(gate_i + bias) * (up_i + up_bias)
};

/* One matrix of a product. out[m][i] for row m of the activation. With MATMUL_SILU_MUL the matrix
 * has 2 x n rows, stored as panels gate 0, up 0, gate 1, up 1, ... (each padded to 32 rows by
 * itself: n need not be a multiple of 32), `weights.rows` is 2 x n and out has n columns. */
struct matmul_part {
    struct matrix weights;
    const float *bias;    // [rows] or NULL; for SILU_MUL that of the gate, [n]
    const float *up_bias; // SILU_MUL only, [n] or NULL
    enum matmul_epilogue epilogue;
    float *out;
    size_t out_stride; // floats from row to row
};

/* How weights are walked: a property of the machine, found in a table or measured. It changes
 * speed, never a bit. */
enum matmul_hint {
    MATMUL_HINT_T0,  // into the first-level cache
    MATMUL_HINT_T1,  // into the second-level cache
    MATMUL_HINT_NTA, // as little cache as possible
};

struct matmul_tuning {
    uint32_t prefetch_bytes; // how far ahead of the walk lines are asked for; 0: not at all
    enum matmul_hint hint;
    uint32_t n_panels; // walked together when there are few rows: 1, 2 or 4
};

/* Up to four matrices of the same cols times one activation, cut into items: a panel, or a pair of
 * panels for SILU_MUL. Items of all parts follow each other. Plain data, shared by all threads. */
struct matmul {
    const struct activation *activation;
    const struct matmul_tuning *tuning; // borrowed; NULL: the rung's own
    uint32_t n_parts;
    struct matmul_part parts[MATMUL_PARTS_CAP];
};

/* Items of the whole product: what `run` is cut into. */
uint32_t matmul_items(const struct matmul *mm);

struct matmul_ops {
    uint32_t tile_rows; // largest tile of the rung
    /* Quantises and packs tiles [first, end) of a->x. False when a value is not finite. */
    bool (*pack)(struct activation *a, uint32_t first, uint32_t end);
    /* Items [first, end); writes only the outputs of those. */
    void (*run)(const struct matmul *mm, uint32_t first, uint32_t end);
};

/* ---- attention ---- */

#define ATTEND_PAGE_ROWS 64u     // positions of a page
#define ATTEND_SEGMENT_PAGES 8u  // pages that are summed from empty, then merged in order
#define ATTEND_HEAD_DIM_CAP 256u // head_dim is even and at most this
#define ATTEND_TILE_ROWS_CAP 32u // rows of one `run` or `part`

enum kv_type { KV_F16, KV_F32, KV_Q8 };

/* A page of one layer: for each kv head a K block, then a V block of the same 64 positions.
 * f16, f32: K [64/16][head_dim][16], V [64][head_dim].
 * q8, int8 with an f32 scale per position and kv head: K [64/16][head_dim/2][16][2], the scales
 * of K [64], the scales of V [64], V [64/2][head_dim][2]. */
struct kv_shape {
    uint32_t n_kv_heads;
    uint32_t head_dim;
    enum kv_type type;
};

size_t kv_page_bytes(const struct kv_shape *shape);

/* Attention of rows of one sequence with one kv head and the query heads that share it. Row r has
 * position `position + r` and sees positions 0 .. its own, at most `window` of them. Its K and V
 * are in the pages already. q and out point at the group's first head in row 0; heads follow each
 * other with head_dim floats each. */
struct attend {
    const struct kv_shape *shape;
    const void *const
        *pages; // of this layer and sequence: pages[i] holds positions 64 i ...; 64-byte
                // aligned; pages that no row sees are not read and may be NULL
    uint32_t kv_head;
    uint32_t n_heads; // query heads that share the kv head
    uint32_t position;
    uint32_t n_rows; // 1 .. ATTEND_TILE_ROWS_CAP
    uint32_t window; // 0: all positions
    float scale;     // of the scores
    const float *q;
    size_t q_stride; // floats from row to row
    float *out;
    size_t out_stride;
};

/* Segments [*first, *end) that some row of the call sees. */
void attend_segments(const struct attend *a, uint32_t *first, uint32_t *end);

/* Memory, 64-byte aligned, multiple of 64 bytes: scratch of one thread for any call with at most
 * n_rows rows and n_heads heads; and one segment's partial result of a call. */
size_t attend_scratch_bytes(const struct kv_shape *shape, uint32_t n_heads, uint32_t n_rows);
size_t attend_partial_bytes(const struct kv_shape *shape, uint32_t n_heads, uint32_t n_rows);

struct attend_ops {
    /* Writes k[n_kv_heads][head_dim] and v of one row to place `slot` (0..63) of a page. False when
     * a value is not finite and the type cannot say so (q8): the place then holds nothing. */
    bool (*store)(const struct kv_shape *shape, void *page, uint32_t slot, const float *k,
                  const float *v);
    /* All segments in order; writes out. */
    void (*run)(const struct attend *a, void *scratch);
    /* Segment `segment` alone into `partial` (attend_partial_bytes). */
    void (*part)(const struct attend *a, uint32_t segment, void *partial, void *scratch);
    /* Merges the partials of the call's segments, [end - first] behind each other, into out. */
    void (*merge)(const struct attend *a, const void *partials, void *scratch);
};

/* ---- rungs ---- */

struct kernel {
    const char *name; // of KERNEL_NAMES
    const char *summary;
    uint32_t features; // of the CPU, enum cpu_feature (kernel/cpu.h): what it cannot do without
    const struct vec_ops *vec;
    const struct matmul_ops *matmul;
    const struct attend_ops *attend;
};

/* Every rung there is, slowest first, NULL at the end; some may be beyond this CPU. */
extern const struct kernel *const kernels[];

/* Their names in that order, as an option's list of choices. */
#define KERNEL_NAMES "scalar|avx2|avxvnni|avx512"

/* True when this CPU and operating system can run it. */
bool kernel_usable(const struct kernel *kernel);

/* The fastest usable one; never NULL. */
const struct kernel *kernel_best(void);

/* The same for any CPU that is described. */
struct cpu;
const struct kernel *kernel_best_of(const struct cpu *cpu);

/* By name; NULL when there is none or this CPU lacks it. */
const struct kernel *kernel_find(const char *name);

#endif
