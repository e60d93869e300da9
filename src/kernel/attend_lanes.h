/* Attention of the vector rungs, written once over WIDTH lanes (lanes_avx2.h, lanes_avx512.h):
 * positions lie in lanes when scoring, dimensions when mixing.
 *
 * A rung includes its lanes, says how many pairs of (row, query head) it takes at once, and
 * includes this. Pairs share every load of K and V; PAIR_COUNTS are the numbers of them that there
 * is code for, falling from ATTEND_PAIRS to 1. Up to ATTEND_FEW pairs take four columns (registers
 * of positions or dimensions) at a time, so that enough sums are in flight, more take two; that
 * many sums must fit the register file.
 *
 * One row reads each page once, so the walk is as fast as memory if memory is asked in time: while
 * K is scored the page's V block is fetched, line by line at the same pace, and while V is mixed
 * the K block of the next page. The walk says where that is (attend_block). */
#ifndef CASCADIA_KERNEL_ATTEND_LANES_H
#define CASCADIA_KERNEL_ATTEND_LANES_H

#include "kernel/kernel_internal.h"

#ifdef ATTEND_PAIRS // the file that includes this is a rung

#include <math.h>
#include <string.h>

enum { LANES = 16, PAGE = ATTEND_PAGE_ROWS, LINE = 64, BLOCK_COLUMNS = LANES / WIDTH };

/* ---- pages ---- */

static void store_f16(uint16_t *k_to, uint16_t *v_to, uint32_t d, const float *k, const float *v)
{
    for (uint32_t i = 0; i < d; i += WIDTH) {
        const uint32_t n = min_u32(d - i, WIDTH);
        uint16_t halves[WIDTH];
        lanes_store_f16(halves, lanes_load_until(k + i, n));
        for (uint32_t lane = 0; lane < n; lane++)
            k_to[(size_t)(i + lane) * LANES] = halves[lane];
        lanes_store_f16(halves, lanes_load_until(v + i, n));
        memcpy(v_to + i, halves, n * sizeof(*halves));
    }
}

/* The largest magnitude of x[n]; false when a value is not finite. */
static bool largest_of(const float *x, uint32_t n, float *largest)
{
    lanes most = lanes_zero();
    bool is_finite = true;
    for (uint32_t i = 0; i < n; i += WIDTH) {
        const lanes v = lanes_load_until(x + i, n - i);
        is_finite = is_finite && lanes_are_finite(v);
        most = lanes_max(most, lanes_abs(v));
    }
    *largest = lanes_largest(most);
    return is_finite;
}

/* x[n] as integers up to 127 in q[n rounded up to 16]. False when a value is not finite. */
static bool quantise_int8(const float *x, uint32_t n, int32_t *q, float *scale)
{
    float largest;
    if (!largest_of(x, n, &largest))
        return false;
    const bool zeros = largest < ACTIVATION_MIN;
    const lanes factor = lanes_set(zeros ? 0.0f : 127.0f / largest);
    *scale = zeros ? 0.0f : largest / 127.0f;
    for (uint32_t i = 0; i < n; i += WIDTH)
        ilanes_store(q + i, ilanes_round(lanes_mul(lanes_load_until(x + i, n - i), factor)));
    return true;
}

static bool store_q8(const struct kv_shape *shape, uint8_t *block, uint32_t slot, const float *k,
                     const float *v)
{
    const uint32_t d = shape->head_dim;
    int8_t *const k_to = (int8_t *)block + (size_t)(slot / LANES) * d * LANES + slot % LANES * 2;
    int8_t *const v_to =
        (int8_t *)block + attend_v_offset(shape) + (size_t)(slot / 2) * d * 2 + slot % 2;
    float *const scales = (float *)(void *)(block + attend_scales_offset(shape)) + slot;
    int32_t q[ATTEND_HEAD_DIM_CAP];
    if (!quantise_int8(k, d, q, scales))
        return false;
    for (uint32_t i = 0; i < d; i++)
        k_to[i / 2 * 2 * LANES + i % 2] = (int8_t)q[i];
    if (!quantise_int8(v, d, q, scales + PAGE))
        return false;
    for (uint32_t i = 0; i < d; i++)
        v_to[(size_t)i * 2] = (int8_t)q[i];
    return true;
}

static bool store(const struct kv_shape *shape, void *page, uint32_t slot, const float *k,
                  const float *v)
{
    const uint32_t d = shape->head_dim;
    const size_t k_at = (size_t)(slot / LANES) * d * LANES + slot % LANES;
    const size_t v_at = (size_t)PAGE * d + (size_t)slot * d;
    for (uint32_t head = 0; head < shape->n_kv_heads; head++, k += d, v += d) {
        uint8_t *const block = (uint8_t *)page + head * attend_block_bytes(shape);
        float *const to = (float *)(void *)block;
        uint16_t *const halves = (uint16_t *)(void *)block;
        switch (shape->type) {
        case KV_Q8:
            if (!store_q8(shape, block, slot, k, v))
                return false;
            break;
        case KV_F16:
            store_f16(halves + k_at, halves + v_at, d, k, v);
            break;
        case KV_F32:
            for (uint32_t i = 0; i < d; i++)
                to[k_at + (size_t)i * LANES] = k[i];
            memcpy(to + v_at, v, d * sizeof(float));
            break;
        }
    }
    return true;
}

static void widen(const uint16_t *from, uint32_t n, float *to)
{
    for (uint32_t i = 0; i < n; i += WIDTH) // a block is a multiple of 128
        lanes_store(to + i, lanes_load_f16(from + i));
}

/* ---- which code for how many pairs ---- */

/* The largest count that there is code for, of those that are left; but none is left alone that
 * could have gone with others. */
static uint32_t pairs_at_once(uint32_t left)
{
#define AT_MOST(n)                                                                                 \
    if (left >= (n) && left != (n) + 1)                                                            \
        return n;
    PAIR_COUNTS(AT_MOST)
    return 1;
}

/* Calls leaf(..., n) for all pairs of the tile, each n of PAIR_COUNTS being a constant there. */
#define PAIRS_CASE(n)                                                                              \
    case n:                                                                                        \
        PAIRS_LEAF(n);                                                                             \
        break;
#define FOR_PAIRS(tile)                                                                            \
    for (uint32_t pair = 0, count; pair < (tile)->n_pairs; pair += count) {                        \
        count = pairs_at_once((tile)->n_pairs - pair);                                             \
        switch (count) {                                                                           \
            PAIR_COUNTS(PAIRS_CASE)                                                                \
        }                                                                                          \
    }

/* The lines of `bytes` bytes, a multiple of half a line, into the second-level cache: the first
 * level holds what is worked on, and its few pending misses would be the limit. */
LEAF_INLINE void fetch(const uint8_t *from, const uint32_t bytes)
{
    UNROLL_8(i, (bytes + LINE - 1) / LINE, __builtin_prefetch(from + i * LINE, 0, 2);)
}

/* ---- scores ---- */

LEAF_INLINE lanes values(const void *at, size_t index, const enum kv_type type)
{
    return type == KV_F32 ? lanes_load((const float *)at + index)
                          : lanes_load_f16((const uint16_t *)at + index);
}

LEAF_INLINE lanes values_until(const void *at, size_t index, uint32_t left, const enum kv_type type)
{
    return type == KV_F32 ? lanes_load_until((const float *)at + index, left)
                          : lanes_load_f16_until((const uint16_t *)at + index, left);
}

/* n_pairs pairs from `pair` on times n_columns registers of positions from 16 first on. */
LEAF_INLINE void score_columns(const struct attend_tile *tile, const struct attend_block *block,
                               uint32_t first, uint32_t pair, const enum kv_type type,
                               const uint32_t n_pairs, const uint32_t n_columns)
{
    const uint32_t d = tile->head_dim;
    const uint32_t step_bytes = n_columns * WIDTH * (type == KV_F32 ? 4 : 2);
    const uint8_t *ahead =
        (const uint8_t *)block->ahead_of_k + (size_t)first * d * LANES * (type == KV_F32 ? 4 : 2);
    const float *q[ATTEND_PAIRS_CAP];
    lanes acc[ATTEND_PAIRS_CAP][4];
    UNROLL_12(i, n_pairs, {
        q[i] = tile->q[pair + i];
        UNROLL_4(c, n_columns, acc[i][c] = lanes_zero();)
    })
    for (uint32_t j = 0; j < d; j++) {
        lanes column[4];
        lanes v[ATTEND_PAIRS_CAP];
        size_t at[4];
        fetch(ahead, step_bytes);
        ahead += step_bytes;
        UNROLL_4(c, n_columns,
                 at[c] = ((size_t)(first + c / BLOCK_COLUMNS) * d + j) * LANES +
                         c % BLOCK_COLUMNS * WIDTH;)
        if (n_pairs <= n_columns) { // hold these, one column at a time
            UNROLL_4(i, n_pairs, v[i] = lanes_set(q[i][j]);)
            UNROLL_4(c, n_columns, {
                column[c] = values(block->k, at[c], type);
                UNROLL_12(i, n_pairs, acc[i][c] = lanes_fma(v[i], column[c], acc[i][c]);)
            })
        } else { // hold the columns, one of these at a time
            UNROLL_4(c, n_columns, column[c] = values(block->k, at[c], type);)
            UNROLL_12(i, n_pairs, {
                v[i] = lanes_set(q[i][j]);
                UNROLL_4(c, n_columns, acc[i][c] = lanes_fma(v[i], column[c], acc[i][c]);)
            })
        }
    }
    const lanes scale = lanes_set(tile->scale);
    UNROLL_12(i, n_pairs, {
        float *const to = tile->scores + (pair + i) * PAGE + (size_t)first * LANES;
        UNROLL_4(c, n_columns, lanes_store(to + c * WIDTH, lanes_mul(acc[i][c], scale));)
    })
}

/* The same of int8, two dimensions a step. */
LEAF_INLINE void score_columns_q8(const struct attend_tile *tile, const struct attend_block *block,
                                  uint32_t first, uint32_t pair, const uint32_t n_pairs,
                                  const uint32_t n_columns)
{
    const uint32_t n = tile->head_dim / 2, step_bytes = n_columns * WIDTH * 2;
    const uint8_t *ahead = (const uint8_t *)block->ahead_of_k + (size_t)first * n * LANES * 2;
    const int16_t *q[ATTEND_PAIRS_CAP];
    ilanes acc[ATTEND_PAIRS_CAP][4];
    UNROLL_12(i, n_pairs, {
        q[i] = tile->q16[pair + i];
        UNROLL_4(c, n_columns, acc[i][c] = ilanes_zero();)
    })
    for (uint32_t j = 0; j < n; j++) {
        const size_t at = ((size_t)first * n + j) * LANES * 2;
        ilanes column[4];
        fetch(ahead, step_bytes);
        ahead += step_bytes;
        UNROLL_4(c, n_columns, {
            const size_t of_c = at + c / BLOCK_COLUMNS * (size_t)n * LANES * 2;
            column[c] =
                ilanes_load_int8((const int8_t *)block->k + of_c + c % BLOCK_COLUMNS * WIDTH * 2);
        })
        UNROLL_12(i, n_pairs, {
            const ilanes v = ilanes_pair(q[i] + 2 * (size_t)j);
            UNROLL_4(c, n_columns, acc[i][c] = ilanes_dot(acc[i][c], column[c], v);)
        })
    }
    UNROLL_12(i, n_pairs, {
        const lanes scale = lanes_set(tile->q16_scale[pair + i]);
        UNROLL_4(c, n_columns, {
            const size_t at = (size_t)first * LANES + c * WIDTH;
            const lanes both = lanes_mul(scale, lanes_load(block->k_scales + at));
            lanes_store(tile->scores + (pair + i) * PAGE + at,
                        lanes_mul(ilanes_to_float(acc[i][c]), both));
        })
    })
}

/* n_pairs pairs, all blocks of [first, end). */
LEAF_INLINE void score_pairs(const struct attend_tile *tile, const struct attend_block *block,
                             uint32_t first, uint32_t end, uint32_t pair, const enum kv_type type,
                             const uint32_t n_pairs)
{
    const bool is_few = n_pairs <= (type == KV_Q8 ? ATTEND_FEW_Q8 : ATTEND_FEW);
    const uint32_t columns = is_few ? 4 : 2, step = columns / BLOCK_COLUMNS;
    for (; first + step <= end; first += step) {
        if (type == KV_Q8)
            score_columns_q8(tile, block, first, pair, n_pairs, columns);
        else
            score_columns(tile, block, first, pair, type, n_pairs, columns);
    }
    for (; first < end; first++) {
        if (type == KV_Q8)
            score_columns_q8(tile, block, first, pair, n_pairs, BLOCK_COLUMNS);
        else
            score_columns(tile, block, first, pair, type, n_pairs, BLOCK_COLUMNS);
    }
}

static void scores(const struct attend_tile *tile, const struct attend_block *block, uint32_t first,
                   uint32_t end)
{
    switch (block->type) {
#define PAIRS_LEAF(n) score_pairs(tile, block, first, end, pair, KV_F16, n)
    case KV_F16:
        FOR_PAIRS(tile)
        break;
#undef PAIRS_LEAF
#define PAIRS_LEAF(n) score_pairs(tile, block, first, end, pair, KV_F32, n)
    case KV_F32:
        FOR_PAIRS(tile)
        break;
#undef PAIRS_LEAF
#define PAIRS_LEAF(n) score_pairs(tile, block, first, end, pair, KV_Q8, n)
    case KV_Q8:
        fetch((const uint8_t *)block->k_scales, 8 * LINE); // and those of V
        FOR_PAIRS(tile)
        break;
#undef PAIRS_LEAF
    }
}

/* ---- softmax ---- */

static float quantise(const float *x, uint32_t n, int16_t *q)
{
    float largest;
    if (!largest_of(x, n, &largest))
        return NAN;
    const bool zeros = largest < ATTEND_Q16_MIN;
    const lanes factor = lanes_set(zeros ? 0.0f : ATTEND_Q16_MAX / largest);
    for (uint32_t i = 0; i < n; i += WIDTH)
        ilanes_store_int16(q + i, ilanes_round(lanes_mul(lanes_load_until(x + i, n - i), factor)));
    return zeros ? 0.0f : largest / ATTEND_Q16_MAX;
}

/* Which of WIDTH places from `at` on a pair sees. A page is mostly seen whole, which costs nothing
 * when is_whole is a constant. */
LEAF_INLINE lanes seen(const struct attend_tile *tile, uint32_t pair, uint32_t at,
                       const bool is_whole, lanes yes, lanes no)
{
    return is_whole ? yes
                    : lanes_choose(lanes_within(at, tile->first[pair], tile->end[pair]), yes, no);
}

LEAF_INLINE float largest_score(const struct attend_tile *tile, uint32_t pair, const bool is_whole)
{
    const float *const s = tile->scores + pair * PAGE;
    lanes largest = lanes_set(s[is_whole ? 0 : tile->first[pair]]);
    UNROLL_8(i, (uint32_t)(PAGE / WIDTH), {
        const lanes more = lanes_max(largest, lanes_load(s + i * WIDTH));
        largest = seen(tile, pair, i * WIDTH, is_whole, more, largest);
    })
    return lanes_largest(largest);
}

/* Scores become weights, of q8 the products with the scales of V; the largest of these. */
LEAF_INLINE float weigh_scores(struct attend_tile *tile, uint32_t pair, const float *v_scales,
                               const bool is_whole)
{
    float *const s = tile->scores + pair * PAGE;
    const lanes largest = lanes_set(tile->largest[pair]);
    lanes sums[BLOCK_COLUMNS], most = lanes_zero();
    UNROLL_2(i, (uint32_t)BLOCK_COLUMNS, sums[i] = lanes_zero();)
    UNROLL_8(i, (uint32_t)(PAGE / WIDTH), {
        const lanes weight = lanes_exp(lanes_sub(lanes_load(s + i * WIDTH), largest));
        lanes v = seen(tile, pair, i * WIDTH, is_whole, weight, lanes_zero());
        sums[i % BLOCK_COLUMNS] = lanes_add(sums[i % BLOCK_COLUMNS], v);
        if (v_scales != NULL) {
            v = seen(tile, pair, i * WIDTH, is_whole,
                     lanes_mul(v, lanes_load(v_scales + i * WIDTH)), lanes_zero());
            most = lanes_max(v, most);
        }
        lanes_store(s + i * WIDTH, v);
    })
    tile->sum[pair] = lanes_sum(sums);
    return v_scales != NULL ? lanes_largest(most) : 0.0f;
}

LEAF_INLINE void round_weights(struct attend_tile *tile, uint32_t pair, float most)
{
    const float *const s = tile->scores + pair * PAGE;
    const bool zeros = most < ATTEND_Q16_MIN;
    const lanes factor = lanes_set(zeros ? 0.0f : ATTEND_Q16_MAX / most);
    tile->weights_scale[pair] = zeros ? 0.0f : most / ATTEND_Q16_MAX;
    UNROLL_8(i, (uint32_t)(PAGE / WIDTH), {
        const lanes v = lanes_mul(lanes_load(s + i * WIDTH), factor);
        /* A NaN, which the sum shows, becomes 0. */
        const lanes weight = lanes_max(v, lanes_zero());
        ilanes_store_int16(tile->weights + pair * PAGE + i * WIDTH, ilanes_round(weight));
    })
}

/* One step for all pairs, then the next: each is a chain of dependent operations, and those of
 * several pairs overlap. */
static void softmax(struct attend_tile *tile, const struct attend_block *block)
{
    const float *const v_scales = block->type == KV_Q8 ? block->v_scales : NULL;
    float most[ATTEND_PAIRS_CAP];
    bool is_whole = true;
    for (uint32_t pair = 0; pair < tile->n_pairs; pair++)
        is_whole = is_whole && tile->first[pair] == 0 && tile->end[pair] == PAGE;
    for (uint32_t pair = 0; pair < tile->n_pairs; pair++)
        tile->largest[pair] =
            is_whole ? largest_score(tile, pair, true) : largest_score(tile, pair, false);
    for (uint32_t pair = 0; pair < tile->n_pairs; pair++) {
        if (!is_whole)
            most[pair] = weigh_scores(tile, pair, v_scales, false);
        else if (v_scales != NULL)
            most[pair] = weigh_scores(tile, pair, v_scales, true);
        else
            weigh_scores(tile, pair, NULL, true);
    }
    for (uint32_t pair = 0; v_scales != NULL && pair < tile->n_pairs; pair++)
        round_weights(tile, pair, most[pair]);
}

/* The exponentials of all pairs at once. */
static void weigh(struct attend_tile *tile)
{
    for (uint32_t pair = 0; pair < tile->n_pairs; pair++)
        tile->into_largest[pair] = tile->into[pair][0];
    for (uint32_t i = 0; i < tile->n_pairs; i += WIDTH) {
        const lanes m = lanes_load(tile->into_largest + i), mp = lanes_load(tile->largest + i);
        const lanes largest = lanes_max(mp, m);
        lanes_store(tile->a + i, lanes_exp(lanes_sub(m, largest)));
        lanes_store(tile->b + i, lanes_exp(lanes_sub(mp, largest)));
        lanes_store(tile->into_largest + i, largest);
    }
    for (uint32_t pair = 0; pair < tile->n_pairs; pair++) {
        float *const into = tile->into[pair];
        into[0] = tile->into_largest[pair];
        into[1] = lanes_first(lanes_fma(lanes_set(into[1]), lanes_set(tile->a[pair]),
                                        lanes_set(tile->sum[pair] * tile->b[pair])));
    }
}

/* ---- mixing ---- */

/* Merges columns of a pair's mix, from dimension `dim` on, into its record. */
LEAF_INLINE void merge_column(const struct attend_tile *tile, uint32_t pair, uint32_t dim,
                              lanes mixed)
{
    float *const into = tile->into[pair] + ATTEND_RECORD_MIX + dim;
    const lanes added = lanes_mul(mixed, lanes_set(tile->b[pair]));
    lanes_store(into, lanes_fma(lanes_load(into), lanes_set(tile->a[pair]), added));
}

/* n_pairs pairs from `pair` on, n_columns registers of dimensions from `dim` on; the last may be
 * cut. */
LEAF_INLINE void mix_columns(const struct attend_tile *tile, const struct attend_block *block,
                             uint32_t first, uint32_t end, enum attend_mix how, uint32_t dim,
                             uint32_t pair, const enum kv_type type, const uint32_t n_pairs,
                             const uint32_t n_columns)
{
    const uint32_t d = tile->head_dim, left = d - dim - (n_columns - 1) * WIDTH;
    const uint32_t step_bytes = n_columns * WIDTH * (type == KV_F32 ? 4 : 2);
    const uint8_t *ahead =
        (const uint8_t *)block->ahead_of_v + (size_t)dim * PAGE * (type == KV_F32 ? 4 : 2);
    const float *const p = tile->scores + pair * PAGE;
    float *const mixes = tile->mixes + pair * tile->mix_stride + dim;
    lanes acc[ATTEND_PAIRS_CAP][4];
    UNROLL_12(i, n_pairs, UNROLL_4(c, n_columns, acc[i][c] = lanes_zero();))
    if (how == ATTEND_MIX_ADD) {
        UNROLL_12(i, n_pairs, {
            UNROLL_4(c, n_columns,
                     acc[i][c] = lanes_load(mixes + i * tile->mix_stride + c * WIDTH);)
        })
    }
    for (uint32_t at = first; at < end; at++) {
        const size_t index = (size_t)at * d + dim;
        lanes row[4];
        lanes weight[ATTEND_PAIRS_CAP];
        fetch(ahead, step_bytes);
        ahead += step_bytes;
        if (n_pairs <= n_columns) { // hold the weights, one register of V at a time
            UNROLL_4(i, n_pairs, weight[i] = lanes_set(p[i * PAGE + at]);)
            UNROLL_4(c, n_columns, {
                row[c] = c + 1 < n_columns ? values(block->v, index + c * WIDTH, type)
                                           : values_until(block->v, index + c * WIDTH, left, type);
                UNROLL_12(i, n_pairs, acc[i][c] = lanes_fma(weight[i], row[c], acc[i][c]);)
            })
        } else { // hold V, one weight at a time
            UNROLL_4(c, n_columns,
                     row[c] = c + 1 < n_columns
                                  ? values(block->v, index + c * WIDTH, type)
                                  : values_until(block->v, index + c * WIDTH, left, type);)
            UNROLL_12(i, n_pairs, {
                weight[i] = lanes_set(p[i * PAGE + at]);
                UNROLL_4(c, n_columns, acc[i][c] = lanes_fma(weight[i], row[c], acc[i][c]);)
            })
        }
    }
    if (how == ATTEND_MIX_ADD) {
        UNROLL_12(i, n_pairs, {
            UNROLL_4(c, n_columns,
                     lanes_store(mixes + i * tile->mix_stride + c * WIDTH, acc[i][c]);)
        })
    } else {
        UNROLL_12(i, n_pairs, {
            UNROLL_4(c, n_columns, merge_column(tile, pair + i, dim + c * WIDTH, acc[i][c]);)
        })
    }
}

/* The same of int8, two positions a step. */
LEAF_INLINE void mix_columns_q8(const struct attend_tile *tile, const struct attend_block *block,
                                uint32_t first, uint32_t end, uint32_t dim, uint32_t pair,
                                const uint32_t n_pairs, const uint32_t n_columns)
{
    const uint32_t d = tile->head_dim, left = d - dim - (n_columns - 1) * WIDTH;
    const uint32_t step_bytes = n_columns * WIDTH * 2;
    const uint8_t *ahead = (const uint8_t *)block->ahead_of_v + (size_t)dim * PAGE;
    const int16_t *const p = tile->weights + pair * PAGE;
    ilanes acc[ATTEND_PAIRS_CAP][4];
    UNROLL_12(i, n_pairs, UNROLL_4(c, n_columns, acc[i][c] = ilanes_zero();))
    for (uint32_t at = first; at < end; at += 2) {
        const size_t index = (size_t)at * d + 2 * dim;
        const int8_t *const v = (const int8_t *)block->v + index;
        ilanes row[4];
        fetch(ahead, step_bytes);
        ahead += step_bytes;
        UNROLL_4(c, n_columns,
                 row[c] = c + 1 < n_columns ? ilanes_load_int8(v + c * WIDTH * 2)
                                            : ilanes_load_int8_until(v + c * WIDTH * 2, left);)
        UNROLL_12(i, n_pairs, {
            const ilanes weight = ilanes_pair(p + i * PAGE + at);
            UNROLL_4(c, n_columns, acc[i][c] = ilanes_dot(acc[i][c], row[c], weight);)
        })
    }
    UNROLL_12(i, n_pairs, {
        const lanes scale = lanes_set(tile->weights_scale[pair + i]);
        UNROLL_4(c, n_columns,
                 merge_column(tile, pair + i, dim + c * WIDTH,
                              lanes_mul(ilanes_to_float(acc[i][c]), scale));)
    })
}

LEAF_INLINE void mix_some(const struct attend_tile *tile, const struct attend_block *block,
                          uint32_t first, uint32_t end, enum attend_mix how, uint32_t dim,
                          uint32_t pair, const enum kv_type type, const uint32_t n_pairs,
                          const uint32_t n_columns)
{
    if (type == KV_Q8)
        mix_columns_q8(tile, block, first, end, dim, pair, n_pairs, n_columns);
    else
        mix_columns(tile, block, first, end, how, dim, pair, type, n_pairs, n_columns);
}

/* n_pairs pairs, all dimensions. */
LEAF_INLINE void mix_pairs(const struct attend_tile *tile, const struct attend_block *block,
                           uint32_t first, uint32_t end, enum attend_mix how, uint32_t pair,
                           const enum kv_type type, const uint32_t n_pairs)
{
    const uint32_t n = (tile->head_dim + WIDTH - 1) / WIDTH;
    const bool is_few = n_pairs <= (type == KV_Q8 ? ATTEND_FEW_Q8 : ATTEND_FEW);
    uint32_t c = 0;
    for (; is_few && c + 4 <= n; c += 4)
        mix_some(tile, block, first, end, how, c * WIDTH, pair, type, n_pairs, 4);
    for (; c + 2 <= n; c += 2)
        mix_some(tile, block, first, end, how, c * WIDTH, pair, type, n_pairs, 2);
    if (c < n)
        mix_some(tile, block, first, end, how, c * WIDTH, pair, type, n_pairs, 1);
}

static void mix(const struct attend_tile *tile, const struct attend_block *block, uint32_t first,
                uint32_t end, enum attend_mix how)
{
    switch (block->type) {
#define PAIRS_LEAF(n) mix_pairs(tile, block, first, end, how, pair, KV_F16, n)
    case KV_F16:
        FOR_PAIRS(tile)
        break;
#undef PAIRS_LEAF
#define PAIRS_LEAF(n) mix_pairs(tile, block, first, end, how, pair, KV_F32, n)
    case KV_F32:
        FOR_PAIRS(tile)
        break;
#undef PAIRS_LEAF
#define PAIRS_LEAF(n) mix_pairs(tile, block, first, end, how, pair, KV_Q8, n)
    case KV_Q8:
        FOR_PAIRS(tile)
        break;
#undef PAIRS_LEAF
    }
}

static void merge(const struct attend_tile *tile)
{
    for (uint32_t pair = 0; pair < tile->n_pairs; pair++) {
        for (uint32_t i = 0; i < tile->head_dim; i += WIDTH)
            merge_column(tile, pair, i, lanes_load(tile->mixes + pair * tile->mix_stride + i));
    }
}

static void finish(const float *record, uint32_t head_dim, float *out)
{
    const lanes factor = lanes_set(1.0f / record[1]);
    for (uint32_t i = 0; i < head_dim; i += WIDTH) {
        const lanes mixed = lanes_load(record + ATTEND_RECORD_MIX + i);
        lanes_store_until(out + i, head_dim - i, lanes_mul(mixed, factor));
    }
}

/* ---- the rung ---- */

static const struct attend_leaves leaves = {
    .n_pairs = ATTEND_PAIRS,
    .quantise = quantise,
    .widen = widen,
    .scores = scores,
    .softmax = softmax,
    .weigh = weigh,
    .mix = mix,
    .merge = merge,
    .finish = finish,
};

static void run(const struct attend *a, void *scratch)
{
    attend_drive(a, scratch, &leaves);
}

static void part(const struct attend *a, uint32_t segment, void *partial, void *scratch)
{
    attend_drive_part(a, segment, partial, scratch, &leaves);
}

static void merge_parts(const struct attend *a, const void *partials, void *scratch)
{
    attend_drive_merge(a, partials, scratch, &leaves);
}

#endif
#endif
