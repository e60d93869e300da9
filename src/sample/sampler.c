/* Temperature, the cuts and the draw.
 *
 * Weights are w = exp((logit - largest) / temperature) in f32, by the one exp of the house; the
 * best token has weight 1. Sums are f64: in f32 the tail of a large vocabulary, thousands of
 * weights below half an ulp of the sum, would vanish from the distribution.
 *
 * top-k and top-p keep a prefix of the candidate order (logit descending, id ascending): the first
 * k; the fewest whose weights reach top_p of the whole, or of what top-k left. min-p keeps weights
 * of at least min_p. Order matters only for where a prefix ends, so the row is never sorted: top-k
 * is a heap of k, and top-p sums the weights in classes of nearly equal logits and sorts the one
 * class in which the prefix ends. A flat distribution of 150,000 tokens costs no more than a sharp
 * one.
 *
 * The draw: u in [0, 1) from (seed, position) times the sum of what is kept falls into one token's
 * share of it, shares lying side by side in the order of ids. */
#include "sample/sampler.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kernel/fmath.h"
#include "kernel/kernel.h"
#include "sample/candidates.h"
#include "sample/penalties.h"
#include "sample/rng.h"

/* Classes of (largest - logit) / temperature; from 88 on a weight is 0. */
#define CLASSES_A_NAT 32u
#define N_CLASSES (89u * CLASSES_A_NAT)

struct sampler {
    uint32_t vocab_size;
    const struct vec_ops *vec;
    size_t memory_bytes;
    float *adjusted;  // [vocab_size] logits after penalties and bias; start of the one allocation
    float *weights;   // [vocab_size] by id, then of what is kept
    uint32_t *counts; // [vocab_size] zeros between draws
    uint32_t *ids;    // [vocab_size] of what is kept
    double sums[N_CLASSES];
    uint32_t lanes[256][8]; // of each byte of a mask: all bits of the lanes that it allows
};

/* The row as the cuts see it. */
struct scaled {
    const float *logits; // adjusted or the row's own
    uint32_t n;          // candidates are ids below
    float largest;
    float temperature;
};

struct sampler *sampler_new(uint32_t vocab_size, struct err *err)
{
    if (vocab_size == 0 || vocab_size > INT32_MAX) {
        err_set(err, ERR_ARGUMENT, "a sampler for %u tokens", vocab_size);
        return NULL;
    }
    const size_t n = vocab_size;
    const size_t bytes = n * (2 * sizeof(float) + 2 * sizeof(uint32_t));
    float *memory = memory_pages(bytes, err);
    if (memory == NULL)
        return NULL;
    struct sampler *sampler = xcalloc(1, sizeof(*sampler));
    sampler->vocab_size = vocab_size;
    sampler->vec = kernel_best()->vec;
    sampler->memory_bytes = bytes;
    sampler->adjusted = memory;
    sampler->weights = sampler->adjusted + n;
    sampler->counts = (uint32_t *)(sampler->weights + n);
    sampler->ids = sampler->counts + n;
    for (uint32_t i = 0; i < 256 * 8; i++)
        sampler->lanes[i / 8][i % 8] = i / 8 >> i % 8 & 1 ? UINT32_MAX : 0;
    return sampler;
}

void sampler_free(struct sampler *sampler)
{
    if (sampler == NULL)
        return;
    memory_pages_free(sampler->adjusted, sampler->memory_bytes);
    free(sampler);
}

/* How far below the best a token is, in nats: the less the better, for equal logits equal. */
static float depth_of(const struct scaled *scaled, uint32_t id)
{
    return (scaled->largest - scaled->logits[id]) / scaled->temperature;
}

/* out[n] = the logits of allowed tokens, -inf for the others; logits may be out. Eight at a time by
 * selection: a mask within a JSON string is nearly all of the vocabulary, with gaps that no branch
 * can foresee. */
static void keep_allowed(const struct sampler *sampler, const float *logits,
                         const uint64_t *allowed, uint32_t n, float *out)
{
    const float nothing = -INFINITY;
    uint32_t nothing_bits, id = 0;
    memcpy(&nothing_bits, &nothing, sizeof(nothing_bits));
    for (; id + 8 <= n; id += 8) {
        const uint32_t *lanes = sampler->lanes[allowed[id / 64] >> (id & 63) & 0xff];
        uint32_t bits[8];
        memcpy(bits, logits + id, sizeof(bits));
        for (uint32_t i = 0; i < 8; i++)
            bits[i] = (bits[i] & lanes[i]) | (nothing_bits & ~lanes[i]);
        memcpy(out + id, bits, sizeof(bits));
    }
    for (; id < n; id++)
        out[id] = allowed[id / 64] >> (id & 63) & 1 ? logits[id] : -INFINITY;
}

/* ---- top-k ---- */

/* How many of the n first candidates top-p keeps. */
static uint32_t find_prefix(const float *weights, uint32_t n, float top_p)
{
    double whole = 0.0, sum = 0.0;
    for (uint32_t i = 0; i < n; i++)
        whole += (double)weights[i];
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)weights[i];
        if (sum >= (double)top_p * whole)
            return i + 1;
    }
    return n;
}

static void sort_by_id(uint32_t *ids, float *weights, uint32_t n)
{
    for (uint32_t gap = n / 2; gap > 0; gap /= 2) { // Shell's: a few dozen, seldom thousands
        for (uint32_t i = gap; i < n; i++) {
            const uint32_t id = ids[i];
            const float weight = weights[i];
            uint32_t at = i;
            for (; at >= gap && ids[at - gap] > id; at -= gap) {
                ids[at] = ids[at - gap];
                weights[at] = weights[at - gap];
            }
            ids[at] = id;
            weights[at] = weight;
        }
    }
}

/* Of the top_k best: ids and weights, ascending by id; returns how many are kept. */
static uint32_t keep_best(struct sampler *sampler, const struct scaled *scaled,
                          const struct sampling_params *params)
{
    uint32_t *ids = sampler->ids;
    float *weights = sampler->weights;
    const uint32_t n = candidates_best(scaled->logits, scaled->n, params->top_k, ids);
    for (uint32_t i = 0; i < n; i++)
        weights[i] = fmath_exp(-depth_of(scaled, ids[i]));
    const uint32_t n_prefix = params->top_p < 1.0f ? find_prefix(weights, n, params->top_p) : n;
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < n_prefix; i++) {
        if (weights[i] >= params->min_p) {
            ids[n_kept] = ids[i];
            weights[n_kept++] = weights[i];
        }
    }
    sort_by_id(ids, weights, n_kept);
    return n_kept;
}

/* ---- all tokens ---- */

static uint32_t class_of(const struct scaled *scaled, uint32_t id)
{
    const float depth = depth_of(scaled, id) * (float)CLASSES_A_NAT;
    return depth < (float)(N_CLASSES - 1) ? (uint32_t)depth : N_CLASSES - 1;
}

/* The last candidate that top-p keeps. `weights` is by id. */
static uint32_t find_last(struct sampler *sampler, const struct scaled *scaled, float top_p)
{
    const float *weights = sampler->weights;
    double *sums = sampler->sums;
    memset(sums, 0, sizeof(sampler->sums));
    double whole = 0.0;
    for (uint32_t id = 0; id < scaled->n; id++) {
        sums[class_of(scaled, id)] += (double)weights[id];
        whole += (double)weights[id];
    }
    const double wanted = (double)top_p * whole;
    uint32_t class = 0;
    double sum = 0.0; // of the classes before
    while (class + 1 < N_CLASSES && sum + sums[class] < wanted)
        sum += sums[class ++];

    uint32_t n = 0;
    for (uint32_t id = 0; id < scaled->n; id++) {
        if (weights[id] > 0.0f && class_of(scaled, id) == class)
            sampler->ids[n++] = id;
    }
    candidates_sort(scaled->logits, sampler->ids, n);
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)weights[sampler->ids[i]];
        if (sum >= wanted || i + 1 == n)
            return sampler->ids[i];
    }
    return UINT32_MAX; // rounding ran past the last class: everything is kept
}

/* Of all tokens: ids and weights, ascending by id; returns how many are kept. */
static uint32_t keep_all(struct sampler *sampler, const struct scaled *scaled,
                         const struct sampling_params *params)
{
    uint32_t *ids = sampler->ids;
    float *weights = sampler->weights;
    for (uint32_t id = 0; id < scaled->n; id++)
        weights[id] = -depth_of(scaled, id);
    sampler->vec->exp_sum(weights, scaled->n, 0.0f, weights);
    const uint32_t last =
        params->top_p < 1.0f ? find_last(sampler, scaled, params->top_p) : UINT32_MAX;
    uint32_t n_kept = 0;
    for (uint32_t id = 0; id < scaled->n; id++) {
        const float weight = weights[id];
        if (!(weight > 0.0f && weight >= params->min_p) ||
            (last != UINT32_MAX && candidates_after(scaled->logits, id, last)))
            continue;
        ids[n_kept] = id;
        weights[n_kept++] = weight;
    }
    return n_kept;
}

/* ---- the draw ---- */

static uint32_t draw(struct sampler *sampler, const struct scaled *scaled,
                     const struct sampling_params *params, uint32_t position)
{
    const bool counted = params->top_k > 0 && params->top_k < scaled->n;
    const uint32_t n_kept =
        counted ? keep_best(sampler, scaled, params) : keep_all(sampler, scaled, params);
    double whole = 0.0;
    for (uint32_t i = 0; i < n_kept; i++)
        whole += (double)sampler->weights[i];
    const double target = rng_uniform(params->seed, position) * whole;
    uint32_t drawn = 0;
    double sum = (double)sampler->weights[0]; // the best is always kept: n_kept is not 0
    while (drawn + 1 < n_kept && sum <= target)
        sum += (double)sampler->weights[++drawn];
    return sampler->ids[drawn];
}

/* Log-probabilities are those of the model: penalties, temperature and cuts have no part in them.
 */
static void add_logprobs(struct sampler *sampler, const struct sampler_row *row, uint32_t n,
                         struct sampled_token *out)
{
    const struct sampling_params *params = row->params;
    if (!params->want_logprob && params->n_top == 0)
        return;
    uint32_t best = 0;
    sampler->vec->argmax(row->logits, n, &best);
    const float largest = row->logits[best];
    const float log_sum = fmath_log(sampler->vec->exp_sum(row->logits, n, largest, NULL));
    out->logprob = (row->logits[out->token] - largest) - log_sum;
    out->n_top = candidates_best(row->logits, n, params->n_top, sampler->ids);
    for (uint32_t i = 0; i < out->n_top; i++) {
        out->top_tokens[i] = (int32_t)sampler->ids[i];
        out->top_logprobs[i] = (row->logits[sampler->ids[i]] - largest) - log_sum;
    }
}

bool sampler_draw(struct sampler *sampler, const struct sampler_row *row, struct sampled_token *out,
                  struct err *err)
{
    const struct sampling_params *params = row->params;
    struct scaled scaled = { .logits = row->logits,
                             .n = sampler->vocab_size,
                             .temperature = params->temperature };
    if (params->token_cap > 0 && params->token_cap < scaled.n)
        scaled.n = params->token_cap;
    if (penalties_wanted(params)) {
        memcpy(sampler->adjusted, row->logits, scaled.n * sizeof(*sampler->adjusted));
        penalties_apply(params, row->ids, row->n_ids, sampler->adjusted, scaled.n, sampler->counts);
        scaled.logits = sampler->adjusted;
    }
    if (row->allowed != NULL) {
        keep_allowed(sampler, scaled.logits, row->allowed, scaled.n, sampler->adjusted);
        scaled.logits = sampler->adjusted;
    }
    uint32_t chosen;
    if (!sampler->vec->argmax(scaled.logits, scaled.n, &chosen))
        return err_set(err, ERR_BATCH_LOST, "position %u: a logit is not a number", row->n_ids);
    scaled.largest = scaled.logits[chosen];
    if (!isfinite(scaled.largest))
        return err_set(err, ERR_BATCH_LOST, "position %u: the largest logit is %s", row->n_ids,
                       scaled.largest > 0.0f ? "infinite" : "-inf, no token can be drawn");
    if (params->temperature >= SAMPLING_TEMPERATURE_LOW)
        chosen = draw(sampler, &scaled, params, row->n_ids);
    struct sampled_token token = { .token = (int32_t)chosen };
    add_logprobs(sampler, row, scaled.n, &token);
    *out = token;
    return true;
}
