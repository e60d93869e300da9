/* Attention, 8 values an instruction: 16 positions are two registers.
 *
 * Up to 6 pairs of (row, query head) share every load of K and V, 12 accumulators; with 3 or fewer,
 * each takes twice the positions or dimensions at a time, so that enough sums are in flight. */
#include <immintrin.h>
#include <string.h>

#include "kernel/fmath_avx2.h"
#include "kernel/kernel_internal.h"

enum { WIDTH = 8, LANES = 16, PAGE = ATTEND_PAGE_ROWS, PAIRS = 6 };

/* ---- pages ---- */

static void store_f16(uint16_t *k_to, uint16_t *v_to, uint32_t d, const float *k, const float *v)
{
    for (uint32_t i = 0; i < d; i += WIDTH) {
        const uint32_t n = d - i < WIDTH ? d - i : WIDTH;
        uint16_t halves[WIDTH];
        _mm_storeu_si128((__m128i *)(void *)halves, _mm256_cvtps_ph(load8(k + i, n), 0));
        for (uint32_t lane = 0; lane < n; lane++)
            k_to[(size_t)(i + lane) * LANES] = halves[lane];
        _mm_storeu_si128((__m128i *)(void *)halves, _mm256_cvtps_ph(load8(v + i, n), 0));
        memcpy(v_to + i, halves, n * sizeof(*halves));
    }
}

static bool store(const struct kv_shape *shape, void *page, uint32_t slot, const float *k,
                  const float *v)
{
    if (shape->type == KV_Q8)
        return attend_scalar.store(shape, page, slot, k, v);
    const uint32_t d = shape->head_dim;
    const size_t block = (size_t)PAGE * d, k_at = (size_t)(slot / LANES) * d * LANES + slot % LANES;
    for (uint32_t head = 0; head < shape->n_kv_heads; head++) {
        const float *const k_from = k + (size_t)head * d, *const v_from = v + (size_t)head * d;
        if (shape->type == KV_F16) {
            uint16_t *const to = (uint16_t *)page + head * 2 * block;
            store_f16(to + k_at, to + block + (size_t)slot * d, d, k_from, v_from);
            continue;
        }
        float *const to = (float *)page + head * 2 * block;
        for (uint32_t i = 0; i < d; i++)
            to[k_at + (size_t)i * LANES] = k_from[i];
        memcpy(to + block + (size_t)slot * d, v_from, d * sizeof(float));
    }
    return true;
}

static void widen(const uint16_t *from, uint32_t n, float *to)
{
    for (uint32_t i = 0; i < n; i += WIDTH) // a block is a multiple of 128
        _mm256_storeu_ps(
            to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
}

LEAF_INLINE __m256 values(const void *at, size_t index, const enum kv_type type)
{
    if (type == KV_F32)
        return _mm256_loadu_ps((const float *)at + index);
    return _mm256_cvtph_ps(
        _mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)at + index)));
}

/* The first `left` of 8 values, and nothing after them. */
LEAF_INLINE __m256 values_until(const void *at, size_t index, uint32_t left,
                                const enum kv_type type)
{
    if (left >= WIDTH)
        return values(at, index, type);
    if (type == KV_F32)
        return load8((const float *)at + index, left);
    uint16_t halves[WIDTH] = { 0 };
    memcpy(halves, (const uint16_t *)at + index, left * sizeof(*halves));
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)halves));
}

/* ---- scores ---- */

/* n_pairs pairs from `pair` on times n_blocks blocks of 16 positions from `block` on. */
LEAF_INLINE void score_blocks(const struct attend_tile *tile, const void *k, uint32_t block,
                              uint32_t pair, const enum kv_type type, const uint32_t n_pairs,
                              const uint32_t n_blocks)
{
    const uint32_t d = tile->head_dim, n = 2 * n_blocks;
    const float *q[PAIRS];
    __m256 acc[PAIRS][4];
    UNROLL_6(i, n_pairs, {
        q[i] = tile->q[pair + i];
        UNROLL_4(b, n, acc[i][b] = _mm256_setzero_ps();)
    })
    for (uint32_t j = 0; j < d; j++) {
        const size_t at = ((size_t)block * d + j) * LANES;
        __m256 v[PAIRS], column[4];
        if (n_pairs <= 3) { // hold these, one column at a time
            UNROLL_6(i, n_pairs, v[i] = _mm256_broadcast_ss(q[i] + j);)
            UNROLL_4(b, n, {
                column[b] = values(k, at + b / 2 * d * LANES + b % 2 * WIDTH, type);
                UNROLL_6(i, n_pairs, acc[i][b] = _mm256_fmadd_ps(v[i], column[b], acc[i][b]);)
            })
        } else { // hold the columns, one of these at a time
            UNROLL_4(b, n, column[b] = values(k, at + b / 2 * d * LANES + b % 2 * WIDTH, type);)
            UNROLL_6(i, n_pairs, {
                v[i] = _mm256_broadcast_ss(q[i] + j);
                UNROLL_4(b, n, acc[i][b] = _mm256_fmadd_ps(v[i], column[b], acc[i][b]);)
            })
        }
    }
    const __m256 scale = _mm256_set1_ps(tile->scale);
    UNROLL_6(i, n_pairs, {
        UNROLL_4(b, n,
                 _mm256_store_ps(tile->scores[pair + i] + (size_t)block * LANES + b * WIDTH,
                                 _mm256_mul_ps(acc[i][b], scale));)
    })
}

/* n_pairs pairs, all blocks of [first, end). */
LEAF_INLINE void score_pairs(const struct attend_tile *tile, const void *k, uint32_t first,
                             uint32_t end, uint32_t pair, const enum kv_type type,
                             const uint32_t n_pairs)
{
    uint32_t block = first;
    if (n_pairs <= 3) {
        for (; block + 2 <= end; block += 2)
            score_blocks(tile, k, block, pair, type, n_pairs, 2);
    }
    for (; block < end; block++)
        score_blocks(tile, k, block, pair, type, n_pairs, 1);
}

/* The largest number of pairs that there is code for, of those that are left. */
LEAF_INLINE uint32_t pairs_at_once(uint32_t left)
{
    return left >= 6 ? 6 : left == 5 ? 3 : left;
}

LEAF_INLINE void scores_of(const struct attend_tile *tile, const void *k, uint32_t first,
                           uint32_t end, const enum kv_type type)
{
    for (uint32_t pair = 0, n; pair < tile->n_pairs; pair += n) {
        n = pairs_at_once(tile->n_pairs - pair);
        switch (n) {
        case 6:
            score_pairs(tile, k, first, end, pair, type, 6);
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

/* Ones in the lanes i of 8 for which first <= at + i < end. */
static __m256 seen_mask(uint32_t at, uint32_t first, uint32_t end)
{
    const __m256i place =
        _mm256_add_epi32(_mm256_set1_epi32((int)at), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i before = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)first), place);
    return _mm256_castsi256_ps(
        _mm256_andnot_si256(before, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)end), place)));
}

static void softmax(float *s, uint32_t first, uint32_t end, float *record)
{
    enum { VECTORS = PAGE / WIDTH };
    __m256 largest = _mm256_set1_ps(s[first]), lanes[2] = { _mm256_setzero_ps() };
    for (uint32_t i = 0; i < VECTORS; i++) {
        const __m256 seen = seen_mask(i * WIDTH, first, end);
        largest =
            _mm256_blendv_ps(largest, _mm256_max_ps(largest, _mm256_load_ps(s + i * WIDTH)), seen);
    }
    record[0] = max8(largest);
    largest = _mm256_set1_ps(record[0]);
    lanes[1] = lanes[0];
    for (uint32_t i = 0; i < VECTORS; i++) {
        const __m256 e = _mm256_and_ps(exp8(_mm256_sub_ps(_mm256_load_ps(s + i * WIDTH), largest)),
                                       seen_mask(i * WIDTH, first, end));
        lanes[i % 2] = _mm256_add_ps(lanes[i % 2], e);
        _mm256_store_ps(s + i * WIDTH, e);
    }
    record[1] = sum16(lanes[0], lanes[1]);
}

/* ---- mixing ---- */

/* n_pairs pairs from `pair` on, dimensions [dim, dim + 8 n_vectors); the last register may be cut.
 */
LEAF_INLINE void mix_vectors(const struct attend_tile *tile, const void *v, uint32_t first,
                             uint32_t end, uint32_t dim, uint32_t pair, const enum kv_type type,
                             const uint32_t n_pairs, const uint32_t n_vectors)
{
    const uint32_t d = tile->head_dim, left = d - dim - (n_vectors - 1) * WIDTH;
    const float *p[PAIRS];
    __m256 acc[PAIRS][4];
    UNROLL_6(i, n_pairs, {
        p[i] = tile->scores[pair + i];
        UNROLL_4(b, n_vectors,
                 acc[i][b] =
                     _mm256_load_ps(tile->part[pair + i] + ATTEND_RECORD_MIX + dim + b * WIDTH);)
    })
    for (uint32_t at = first; at < end; at++) {
        const size_t index = (size_t)at * d + dim;
        __m256 weight[PAIRS], row[4];
        if (n_pairs <= 3) { // hold the weights, one register of v at a time
            UNROLL_6(i, n_pairs, weight[i] = _mm256_broadcast_ss(p[i] + at);)
            UNROLL_4(b, n_vectors, {
                row[b] = b + 1 < n_vectors ? values(v, index + b * WIDTH, type)
                                           : values_until(v, index + b * WIDTH, left, type);
                UNROLL_6(i, n_pairs, acc[i][b] = _mm256_fmadd_ps(weight[i], row[b], acc[i][b]);)
            })
        } else { // hold v, one weight at a time
            UNROLL_4(b, n_vectors,
                     row[b] = b + 1 < n_vectors ? values(v, index + b * WIDTH, type)
                                                : values_until(v, index + b * WIDTH, left, type);)
            UNROLL_6(i, n_pairs, {
                weight[i] = _mm256_broadcast_ss(p[i] + at);
                UNROLL_4(b, n_vectors, acc[i][b] = _mm256_fmadd_ps(weight[i], row[b], acc[i][b]);)
            })
        }
    }
    UNROLL_6(i, n_pairs, {
        UNROLL_4(
            b, n_vectors,
            _mm256_store_ps(tile->part[pair + i] + ATTEND_RECORD_MIX + dim + b * WIDTH, acc[i][b]);)
    })
}

LEAF_INLINE void mix_pairs(const struct attend_tile *tile, const void *v, uint32_t first,
                           uint32_t end, uint32_t pair, const enum kv_type type,
                           const uint32_t n_pairs)
{
    const uint32_t n = (tile->head_dim + WIDTH - 1) / WIDTH;
    uint32_t b = 0;
    if (n_pairs <= 3) {
        for (; b + 4 <= n; b += 4)
            mix_vectors(tile, v, first, end, b * WIDTH, pair, type, n_pairs, 4);
    }
    for (; b + 2 <= n; b += 2)
        mix_vectors(tile, v, first, end, b * WIDTH, pair, type, n_pairs, 2);
    if (b < n)
        mix_vectors(tile, v, first, end, b * WIDTH, pair, type, n_pairs, 1);
}

LEAF_INLINE void mix_of(const struct attend_tile *tile, const void *v, uint32_t first, uint32_t end,
                        const enum kv_type type)
{
    for (uint32_t pair = 0, n; pair < tile->n_pairs; pair += n) {
        n = pairs_at_once(tile->n_pairs - pair);
        switch (n) {
        case 6:
            mix_pairs(tile, v, first, end, pair, type, 6);
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
    float old[WIDTH] = { 0 }, new[WIDTH] = { 0 }, a[WIDTH], b[WIDTH];
    for (uint32_t pair = 0; pair < tile->n_pairs; pair++) {
        old[pair] = tile->into[pair][0];
        new[pair] = tile->part[pair][0];
    }
    const __m256 m = _mm256_loadu_ps(old), mp = _mm256_loadu_ps(new);
    const __m256 largest = _mm256_max_ps(mp, m);
    _mm256_storeu_ps(a, exp8(_mm256_sub_ps(m, largest)));
    _mm256_storeu_ps(b, exp8(_mm256_sub_ps(mp, largest)));
    _mm256_storeu_ps(new, largest);
    for (uint32_t pair = 0; pair < tile->n_pairs; pair++) {
        float *const into = tile->into[pair];
        const float *const part = tile->part[pair];
        const __m256 av = _mm256_set1_ps(a[pair]), bv = _mm256_set1_ps(b[pair]);
        const __m128 sum = _mm_fmadd_ss(_mm_set_ss(into[1]), _mm256_castps256_ps128(av),
                                        _mm_set_ss(part[1] * b[pair]));
        into[0] = new[pair];
        into[1] = _mm_cvtss_f32(sum);
        for (uint32_t i = ATTEND_RECORD_MIX; i < ATTEND_RECORD_MIX + tile->head_dim; i += WIDTH) {
            const __m256 added = _mm256_mul_ps(_mm256_load_ps(part + i), bv);
            _mm256_store_ps(into + i, _mm256_fmadd_ps(_mm256_load_ps(into + i), av, added));
        }
    }
}

static void finish(const float *record, uint32_t head_dim, float *out)
{
    const __m256 factor = _mm256_set1_ps(1.0f / record[1]);
    for (uint32_t i = 0; i < head_dim; i += WIDTH)
        store8(out + i, head_dim - i,
               _mm256_mul_ps(_mm256_load_ps(record + ATTEND_RECORD_MIX + i), factor));
}

static const struct attend_leaves leaves = {
    .n_pairs = PAIRS,
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

const struct attend_ops attend_avx2 = {
    .store = store,
    .run = run,
    .part = part,
    .merge = merge_parts,
};
