/* Attention, 16 positions an instruction when scoring and 16 dimensions when mixing.
 *
 * Up to 12 pairs of (row, query head) share every load of K and V: with 12, two registers of each
 * and 24 accumulators fill the register file; with few pairs (one row of a decode step) four
 * registers at a time keep enough sums in flight. */
#include <immintrin.h>
#include <string.h>

#include "kernel/fmath_avx512.h"
#include "kernel/kernel_internal.h"

enum { LANES = 16, PAGE = ATTEND_PAGE_ROWS };

/* ---- pages ---- */

static bool store(const struct kv_shape *shape, void *page, uint32_t slot, const float *k,
                  const float *v)
{
    if (shape->type == KV_Q8)
        return attend_scalar.store(shape, page, slot, k, v);
    const uint32_t d = shape->head_dim;
    const size_t block = (size_t)PAGE * d, k_at = (size_t)(slot / LANES) * d * LANES + slot % LANES;
    for (uint32_t head = 0; head < shape->n_kv_heads; head++) {
        const float *const k_from = k + (size_t)head * d, *const v_from = v + (size_t)head * d;
        if (shape->type == KV_F32) {
            float *const k_to = (float *)page + head * 2 * block;
            for (uint32_t i = 0; i < d; i++)
                k_to[k_at + (size_t)i * LANES] = k_from[i];
            memcpy(k_to + block + (size_t)slot * d, v_from, d * sizeof(float));
            continue;
        }
        uint16_t *const k_to = (uint16_t *)page + head * 2 * block;
        uint16_t *const v_to = k_to + block + (size_t)slot * d;
        for (uint32_t i = 0; i < d; i += LANES) {
            const __mmask16 mask = mask16(d - i);
            uint16_t halves[LANES];
            _mm256_storeu_si256((__m256i *)(void *)halves,
                                _mm512_cvtps_ph(_mm512_maskz_loadu_ps(mask, k_from + i), 0));
            for (uint32_t lane = 0; lane < LANES && i + lane < d; lane++)
                k_to[k_at + (size_t)(i + lane) * LANES] = halves[lane];
            _mm256_mask_storeu_epi16(v_to + i, mask,
                                     _mm512_cvtps_ph(_mm512_maskz_loadu_ps(mask, v_from + i), 0));
        }
    }
    return true;
}

static void widen(const uint16_t *from, uint32_t n, float *to)
{
    for (uint32_t i = 0; i < n; i += LANES) { // a block is a multiple of 128
        const __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)(from + i));
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(halves));
    }
}

LEAF_INLINE __m512 values(const void *at, size_t index, const enum kv_type type)
{
    if (type == KV_F32)
        return _mm512_loadu_ps((const float *)at + index);
    return _mm512_cvtph_ps(
        _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)at + index)));
}

LEAF_INLINE __m512 values_masked(const void *at, size_t index, __mmask16 mask,
                                 const enum kv_type type)
{
    if (type == KV_F32)
        return _mm512_maskz_loadu_ps(mask, (const float *)at + index);
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)at + index));
}

/* ---- scores ---- */

/* n_pairs pairs from `pair` on times n_blocks blocks of 16 positions from `block` on. */
LEAF_INLINE void score_blocks(const struct attend_tile *tile, const void *k, uint32_t block,
                              uint32_t pair, const enum kv_type type, const uint32_t n_pairs,
                              const uint32_t n_blocks)
{
    const uint32_t d = tile->head_dim;
    const float *q[ATTEND_PAIRS_CAP];
    __m512 acc[ATTEND_PAIRS_CAP][4];
    UNROLL_12(i, n_pairs, {
        q[i] = tile->q[pair + i];
        UNROLL_4(b, n_blocks, acc[i][b] = _mm512_setzero_ps();)
    })
    for (uint32_t j = 0; j < d; j++) {
        __m512 column[4];
        UNROLL_4(b, n_blocks, column[b] = values(k, ((size_t)(block + b) * d + j) * LANES, type);)
        UNROLL_12(i, n_pairs, {
            const __m512 v = _mm512_set1_ps(q[i][j]);
            UNROLL_4(b, n_blocks, acc[i][b] = _mm512_fmadd_ps(v, column[b], acc[i][b]);)
        })
    }
    const __m512 scale = _mm512_set1_ps(tile->scale);
    UNROLL_12(i, n_pairs, {
        float *const to = tile->scores[pair + i] + (size_t)block * LANES;
        UNROLL_4(b, n_blocks, _mm512_store_ps(to + b * LANES, _mm512_mul_ps(acc[i][b], scale));)
    })
}

/* n_pairs pairs, all blocks of [first, end). */
LEAF_INLINE void score_pairs(const struct attend_tile *tile, const void *k, uint32_t first,
                             uint32_t end, uint32_t pair, const enum kv_type type,
                             const uint32_t n_pairs)
{
    const uint32_t step = n_pairs <= 4 ? 4 : 2;
    uint32_t block = first;
    for (; block + step <= end; block += step)
        score_blocks(tile, k, block, pair, type, n_pairs, step);
    for (; block < end; block++)
        score_blocks(tile, k, block, pair, type, n_pairs, 1);
}

/* The largest number of pairs that there is code for, of those that are left. */
LEAF_INLINE uint32_t pairs_at_once(uint32_t left)
{
    return left >= 12 ? 12 : left <= 4 ? left : 4;
}

LEAF_INLINE void scores_of(const struct attend_tile *tile, const void *k, uint32_t first,
                           uint32_t end, const enum kv_type type)
{
    for (uint32_t pair = 0, n; pair < tile->n_pairs; pair += n) {
        n = pairs_at_once(tile->n_pairs - pair);
        switch (n) {
        case 12:
            score_pairs(tile, k, first, end, pair, type, 12);
            break;
        case 4:
            score_pairs(tile, k, first, end, pair, type, 4);
            break;
        case 3:
            score_pairs(tile, k, first, end, pair, type, 3);
            break;
        case 2:
            score_pairs(tile, k, first, end, pair, type, 2);
            break;
        default:
            score_pairs(tile, k, first, end, pair, type, 1);
            break;
        }
    }
}

static void scores(const struct attend_tile *tile, const void *k, enum kv_type type, uint32_t first,
                   uint32_t end)
{
    if (type == KV_F16)
        scores_of(tile, k, first, end, KV_F16);
    else
        scores_of(tile, k, first, end, KV_F32);
}

static void softmax(float *s, uint32_t first, uint32_t end, float *record)
{
    enum { VECTORS = PAGE / LANES };
    const uint64_t seen = (end == PAGE ? ~0ull : (1ull << end) - 1) & ~((1ull << first) - 1);
    __m512 v[VECTORS], largest = _mm512_set1_ps(s[first]);
    for (uint32_t i = 0; i < VECTORS; i++) {
        v[i] = _mm512_load_ps(s + i * LANES);
        largest = _mm512_mask_max_ps(largest, (__mmask16)(seen >> (i * LANES)), largest, v[i]);
    }
    record[0] = _mm512_reduce_max_ps(largest);
    largest = _mm512_set1_ps(record[0]);
    __m512 lanes = _mm512_setzero_ps();
    for (uint32_t i = 0; i < VECTORS; i++) {
        v[i] = _mm512_maskz_mov_ps((__mmask16)(seen >> (i * LANES)),
                                   exp16(_mm512_sub_ps(v[i], largest)));
        lanes = _mm512_add_ps(lanes, v[i]);
        _mm512_store_ps(s + i * LANES, v[i]);
    }
    record[1] = sum16(lanes);
}

/* ---- mixing ---- */

/* n_pairs pairs from `pair` on, dimensions [dim, dim + 16 n_vectors) (the last register by mask).
 */
LEAF_INLINE void mix_vectors(const struct attend_tile *tile, const void *v, uint32_t first,
                             uint32_t end, uint32_t dim, uint32_t pair, const enum kv_type type,
                             const uint32_t n_pairs, const uint32_t n_vectors)
{
    const uint32_t d = tile->head_dim;
    const __mmask16 mask = mask16(d - dim - (n_vectors - 1) * LANES);
    const float *p[ATTEND_PAIRS_CAP];
    __m512 acc[ATTEND_PAIRS_CAP][4];
    UNROLL_12(i, n_pairs, {
        const float *const mixed = tile->part[pair + i] + ATTEND_RECORD_MIX + dim;
        p[i] = tile->scores[pair + i];
        UNROLL_4(b, n_vectors, acc[i][b] = _mm512_load_ps(mixed + b * LANES);)
    })
    for (uint32_t at = first; at < end; at++) {
        const size_t index = (size_t)at * d + dim;
        __m512 row[4];
        UNROLL_4(b, n_vectors,
                 row[b] = b + 1 < n_vectors ? values(v, index + b * LANES, type)
                                            : values_masked(v, index + b * LANES, mask, type);)
        UNROLL_12(i, n_pairs, {
            const __m512 weight = _mm512_set1_ps(p[i][at]);
            UNROLL_4(b, n_vectors, acc[i][b] = _mm512_fmadd_ps(weight, row[b], acc[i][b]);)
        })
    }
    UNROLL_12(i, n_pairs, {
        float *const mixed = tile->part[pair + i] + ATTEND_RECORD_MIX + dim;
        UNROLL_4(b, n_vectors, _mm512_store_ps(mixed + b * LANES, acc[i][b]);)
    })
}

LEAF_INLINE void mix_pairs(const struct attend_tile *tile, const void *v, uint32_t first,
                           uint32_t end, uint32_t pair, const enum kv_type type,
                           const uint32_t n_pairs)
{
    const uint32_t n = (tile->head_dim + LANES - 1) / LANES;
    const uint32_t step = n_pairs <= 4 ? 4 : 2;
    uint32_t b = 0;
    for (; b + step <= n; b += step)
        mix_vectors(tile, v, first, end, b * LANES, pair, type, n_pairs, step);
    for (; b < n; b++)
        mix_vectors(tile, v, first, end, b * LANES, pair, type, n_pairs, 1);
}

LEAF_INLINE void mix_of(const struct attend_tile *tile, const void *v, uint32_t first, uint32_t end,
                        const enum kv_type type)
{
    for (uint32_t pair = 0, n; pair < tile->n_pairs; pair += n) {
        n = pairs_at_once(tile->n_pairs - pair);
        switch (n) {
        case 12:
            mix_pairs(tile, v, first, end, pair, type, 12);
            break;
        case 4:
            mix_pairs(tile, v, first, end, pair, type, 4);
            break;
        case 3:
            mix_pairs(tile, v, first, end, pair, type, 3);
            break;
        case 2:
            mix_pairs(tile, v, first, end, pair, type, 2);
            break;
        default:
            mix_pairs(tile, v, first, end, pair, type, 1);
            break;
        }
    }
}

static void mix(const struct attend_tile *tile, const void *v, enum kv_type type, uint32_t first,
                uint32_t end)
{
    if (type == KV_F16)
        mix_of(tile, v, first, end, KV_F16);
    else
        mix_of(tile, v, first, end, KV_F32);
}

/* ---- merging ---- */

/* The weights of all pairs come from one exp each. */
static void merge(const struct attend_tile *tile)
{
    _Alignas(64) float old[LANES] = { 0 }, new[LANES] = { 0 }, a[LANES], b[LANES];
    for (uint32_t pair = 0; pair < tile->n_pairs; pair++) {
        old[pair] = tile->into[pair][0];
        new[pair] = tile->part[pair][0];
    }
    const __m512 m = _mm512_load_ps(old), mp = _mm512_load_ps(new);
    const __m512 largest = _mm512_max_ps(mp, m);
    _mm512_store_ps(a, exp16(_mm512_sub_ps(m, largest)));
    _mm512_store_ps(b, exp16(_mm512_sub_ps(mp, largest)));
    _mm512_store_ps(new, largest);
    for (uint32_t pair = 0; pair < tile->n_pairs; pair++) {
        float *const into = tile->into[pair];
        const float *const part = tile->part[pair];
        const __m512 av = _mm512_set1_ps(a[pair]), bv = _mm512_set1_ps(b[pair]);
        const __m128 sum = _mm_fmadd_ss(_mm_set_ss(into[1]), _mm512_castps512_ps128(av),
                                        _mm_set_ss(part[1] * b[pair]));
        into[0] = new[pair];
        into[1] = _mm_cvtss_f32(sum);
        for (uint32_t i = ATTEND_RECORD_MIX; i < ATTEND_RECORD_MIX + tile->head_dim; i += LANES) {
            const __m512 added = _mm512_mul_ps(_mm512_load_ps(part + i), bv);
            _mm512_store_ps(into + i, _mm512_fmadd_ps(_mm512_load_ps(into + i), av, added));
        }
    }
}

static void finish(const float *record, uint32_t head_dim, float *out)
{
    const __m512 factor = _mm512_set1_ps(1.0f / record[1]);
    for (uint32_t i = 0; i < head_dim; i += LANES) {
        const __m512 mixed = _mm512_load_ps(record + ATTEND_RECORD_MIX + i);
        _mm512_mask_storeu_ps(out + i, mask16(head_dim - i), _mm512_mul_ps(mixed, factor));
    }
}

static const struct attend_leaves leaves = {
    .n_pairs = ATTEND_PAIRS_CAP,
    .scores = scores,
    .softmax = softmax,
    .mix = mix,
    .merge = merge,
    .finish = finish,
    .widen = widen,
};

static void run(const struct attend *a, void *scratch)
{
    if (a->shape->type == KV_Q8) {
        attend_scalar.run(a, scratch);
        return;
    }
    attend_drive(a, scratch, &leaves);
}

static void part(const struct attend *a, uint32_t segment, void *partial, void *scratch)
{
    if (a->shape->type == KV_Q8) {
        attend_scalar.part(a, segment, partial, scratch);
        return;
    }
    attend_drive_part(a, segment, partial, scratch, &leaves);
}

static void merge_parts(const struct attend *a, const void *partials, void *scratch)
{
    attend_drive_merge(a, partials, scratch, &leaves);
}

const struct attend_ops attend_avx512 = {
    .store = store,
    .run = run,
    .part = part,
    .merge = merge_parts,
};
