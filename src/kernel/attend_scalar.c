/* Attention in plain C: the definition that the other rungs are held to (docs/numerics.md, rule 7).
 */
#include <float.h>
#include <math.h>

#include "kernel/fmath.h"
#include "kernel/kernel_internal.h"

enum { LANES = 16, PAGE = ATTEND_PAGE_ROWS };

static float value_at(const void *values, enum kv_type type, size_t index)
{
    return type == KV_F32 ? ((const float *)values)[index]
                          : quant_f16_to_f32(((const uint16_t *)values)[index]);
}

static void put_value(void *values, enum kv_type type, size_t index, float value)
{
    if (type == KV_F32)
        ((float *)values)[index] = value;
    else
        ((uint16_t *)values)[index] = quant_f32_to_f16(value);
}

/* As rule 1 has it, with one scale for all n values. */
static bool quantise8(const float *x, uint32_t n, int8_t *q, float *scale)
{
    float largest = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        const float magnitude = fabsf(x[i]);
        if (!(magnitude <= FLT_MAX))
            return false;
        largest = magnitude > largest ? magnitude : largest;
    }
    const bool zeros = largest < ACTIVATION_MIN;
    const float factor = zeros ? 0.0f : 127.0f / largest;
    *scale = zeros ? 0.0f : largest / 127.0f;
    for (uint32_t i = 0; i < n; i++)
        q[i] = (int8_t)(x[i] * factor + EXP_ROUND - EXP_ROUND); // to nearest even
    return true;
}

static bool store_q8(const struct kv_shape *shape, uint8_t *page, uint32_t slot, const float *k,
                     const float *v)
{
    const uint32_t d = shape->head_dim;
    int8_t q[ATTEND_HEAD_DIM_CAP];
    for (size_t head = 0; head < shape->n_kv_heads; head++) {
        uint8_t *const block = page + head * attend_block_bytes(shape);
        int8_t *const k_to = (int8_t *)block, *const v_to = k_to + attend_v_offset(shape);
        float *const scales = (float *)(void *)(block + attend_scales_offset(shape));
        if (!quantise8(k + head * d, d, q, &scales[slot]))
            return false;
        for (uint32_t i = 0; i < d; i++)
            k_to[((slot / LANES * d + i / 2 * 2) * LANES) + slot % LANES * 2 + i % 2] = q[i];
        if (!quantise8(v + head * d, d, q, &scales[PAGE + slot]))
            return false;
        for (uint32_t i = 0; i < d; i++)
            v_to[(slot / 2 * d + i) * 2 + slot % 2] = q[i];
    }
    return true;
}

static bool store(const struct kv_shape *shape, void *page, uint32_t slot, const float *k,
                  const float *v)
{
    const size_t d = shape->head_dim, block = PAGE * d;
    if (shape->type == KV_Q8)
        return store_q8(shape, page, slot, k, v);
    for (size_t head = 0; head < shape->n_kv_heads; head++) {
        const size_t k_block = head * 2 * block, v_block = k_block + block;
        for (size_t i = 0; i < d; i++) {
            put_value(page, shape->type, k_block + (slot / LANES * d + i) * LANES + slot % LANES,
                      k[head * d + i]);
            put_value(page, shape->type, v_block + slot * d + i, v[head * d + i]);
        }
    }
    return true;
}

/* ---- the leaves: one pair at a time ---- */

/* What meets the bytes of q8 is int16, so that every dot is exact and the cache's own rounding is
 * the only one that shows. */
static float quantise16(const float *x, uint32_t n, int16_t *q)
{
    float largest = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        const float magnitude = fabsf(x[i]);
        if (!(magnitude <= FLT_MAX))
            return NAN;
        largest = magnitude > largest ? magnitude : largest;
    }
    const float factor = largest < ATTEND_Q16_MIN ? 0.0f : ATTEND_Q16_MAX / largest;
    for (uint32_t i = 0; i < n; i++)
        q[i] = (int16_t)(x[i] * factor + EXP_ROUND - EXP_ROUND); // to nearest even
    return largest < ATTEND_Q16_MIN ? 0.0f : largest / ATTEND_Q16_MAX;
}

static void widen(const uint16_t *from, uint32_t n, float *to)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = quant_f16_to_f32(from[i]);
}

static void scores(const struct attend_tile *tile, const struct attend_block *block, uint32_t first,
                   uint32_t end)
{
    const int8_t *const bytes = block->k;
    for (uint32_t at = first * LANES; at < end * LANES; at++) {
        const size_t base = (size_t)(at / LANES) * tile->head_dim;
        float dot = 0.0f;
        int32_t dot_q8 = 0; // at most 256 * 127 * 32767
        for (uint32_t i = 0; block->type != KV_Q8 && i < tile->head_dim; i++) {
            dot = fmaf(tile->q[0][i],
                       value_at(block->k, block->type, (base + i) * LANES + at % LANES), dot);
        }
        for (uint32_t i = 0; block->type == KV_Q8 && i < tile->head_dim; i++)
            dot_q8 += tile->q16[0][i] * bytes[(base + i / 2 * 2) * LANES + at % LANES * 2 + i % 2];
        tile->scores[at] = block->type == KV_Q8
                               ? (float)dot_q8 * (tile->q16_scale[0] * block->k_scales[at])
                               : dot * tile->scale;
    }
}

/* The weights as int16. */
static void softmax_q8(struct attend_tile *tile, const struct attend_block *block)
{
    float products[PAGE] = { 0 }, largest = 0.0f;
    for (uint32_t i = tile->first[0]; i < tile->end[0]; i++) {
        products[i] = tile->scores[i] * block->v_scales[i];
        largest = products[i] > largest ? products[i] : largest;
    }
    const float factor = largest < ATTEND_Q16_MIN ? 0.0f : ATTEND_Q16_MAX / largest;
    tile->weights_scale[0] = largest < ATTEND_Q16_MIN ? 0.0f : largest / ATTEND_Q16_MAX;
    for (uint32_t i = 0; i < PAGE; i++) { // a NaN, which the sum shows, becomes 0
        tile->weights[i] =
            products[i] > 0.0f ? (int16_t)(products[i] * factor + EXP_ROUND - EXP_ROUND) : 0;
    }
}

static void softmax(struct attend_tile *tile, const struct attend_block *block)
{
    const uint32_t first = tile->first[0], end = tile->end[0];
    float *const s = tile->scores;
    float lanes[LANES] = { 0 };
    float largest = s[first];
    for (uint32_t i = first; i < end; i++)
        largest = s[i] > largest ? s[i] : largest;
    for (uint32_t i = 0; i < PAGE; i++) {
        s[i] = i >= first && i < end ? fmath_exp(s[i] - largest) : 0.0f;
        lanes[i % LANES] += s[i];
    }
    for (uint32_t width = LANES / 2; width >= 1; width /= 2) {
        for (uint32_t i = 0; i < width; i++)
            lanes[i] += lanes[i + width];
    }
    tile->largest[0] = largest;
    tile->sum[0] = lanes[0];
    if (block->type == KV_Q8)
        softmax_q8(tile, block);
}

static void weigh(struct attend_tile *tile)
{
    float *const into = tile->into[0];
    const float largest = into[0] < tile->largest[0] ? tile->largest[0] : into[0];
    tile->a[0] = fmath_exp(into[0] - largest);
    tile->b[0] = fmath_exp(tile->largest[0] - largest);
    into[0] = largest;
    into[1] = fmaf(into[1], tile->a[0], tile->sum[0] * tile->b[0]);
}

static void merge(const struct attend_tile *tile)
{
    float *const into = tile->into[0] + ATTEND_RECORD_MIX;
    for (uint32_t i = 0; i < tile->head_dim; i++)
        into[i] = fmaf(into[i], tile->a[0], tile->mixes[i] * tile->b[0]);
}

static void mix(const struct attend_tile *tile, const struct attend_block *block, uint32_t first,
                uint32_t end, enum attend_mix how)
{
    const int8_t *const bytes = block->v;
    const size_t d = tile->head_dim;
    for (size_t i = 0; i < d; i++) {
        float sum = how == ATTEND_MIX_ADD ? tile->mixes[i] : 0.0f;
        int32_t dot = 0; // at most 64 * 127 * 32767
        for (uint32_t at = first; block->type != KV_Q8 && at < end; at++)
            sum = fmaf(tile->scores[at], value_at(block->v, block->type, at * d + i), sum);
        for (uint32_t at = first; block->type == KV_Q8 && at < end; at++)
            dot += tile->weights[at] * bytes[(at / 2 * d + i) * 2 + at % 2];
        tile->mixes[i] = block->type == KV_Q8 ? (float)dot * tile->weights_scale[0] : sum;
    }
    if (how == ATTEND_MIX_MERGE)
        merge(tile);
}

static void finish(const float *record, uint32_t head_dim, float *out)
{
    const float factor = 1.0f / record[1];
    for (uint32_t i = 0; i < head_dim; i++)
        out[i] = record[ATTEND_RECORD_MIX + i] * factor;
}

static const struct attend_leaves leaves = {
    .n_pairs = 1,
    .quantise = quantise16,
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

const struct attend_ops attend_scalar = {
    .store = store,
    .run = run,
    .part = part,
    .merge = merge_parts,
};
