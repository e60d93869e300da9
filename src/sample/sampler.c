/* Temperature, the cuts and the draw.
 *
 * Weights are w = exp((logit - largest) / temperature) in f32, by the one exp of the house; the
 * best token has weight 1. Running sums are f64, in candidate order: in f32 the tail of a large
 * vocabulary, thousands of weights below half an ulp of the sum, would vanish from the
 * distribution.
 *
 * top-k, top-p and min-p each keep a prefix of the candidate order: the first k; the fewest whose
 * weights reach top_p of the whole; those of at least min_p. So the kept set is the shortest of
 * three prefixes, and candidates need be put in order only so far. top_p of what top_k left, when
 * both are there. Without any cut, order cannot change the distribution, and the draw walks by id.
 *
 * The draw: u in [0, 1) from (seed, position) times the sum of what is kept falls into one
 * candidate's share of it. */
#include "sample/sampler.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kernel/fmath.h"
#include "kernel/kernel.h"
#include "sample/candidates.h"
#include "sample/penalties.h"
#include "sample/rng.h"

/* Candidates put in order at first when a cut will need an unknown number; times GROWTH each time
 * that was not enough. Each round is a pass over the row. */
#define ORDER_FIRST 64u
#define ORDER_GROWTH 8u

struct sampler {
    uint32_t vocab_size;
    const struct vec_ops *vec;
    size_t memory_bytes;
    float *adjusted;  // [vocab_size] logits after penalties and bias
    float *weights;   // [vocab_size] by id
    uint32_t *counts; // [vocab_size] zeros between draws
    uint32_t *order;  // [vocab_size]
    double *sums;     // [vocab_size] running sums in candidate order; start of the one allocation
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
    const size_t bytes = n * (sizeof(double) + 2 * sizeof(float) + 2 * sizeof(uint32_t));
    double *memory = memory_pages(bytes, err);
    if (memory == NULL)
        return NULL;
    struct sampler *sampler = xcalloc(1, sizeof(*sampler));
    sampler->vocab_size = vocab_size;
    sampler->vec = kernel_best()->vec;
    sampler->memory_bytes = bytes;
    sampler->sums = memory;
    sampler->adjusted = (float *)(sampler->sums + n);
    sampler->weights = sampler->adjusted + n;
    sampler->counts = (uint32_t *)(sampler->weights + n);
    sampler->order = sampler->counts + n;
    return sampler;
}

void sampler_free(struct sampler *sampler)
{
    if (sampler == NULL)
        return;
    memory_pages_free(sampler->sums, sampler->memory_bytes);
    free(sampler);
}

static float weight_of(const struct scaled *scaled, uint32_t id)
{
    return fmath_exp((scaled->logits[id] - scaled->largest) / scaled->temperature);
}

/* Fills weights[n]; returns their sum in id order. */
static double weigh_all(struct sampler *sampler, const struct scaled *scaled)
{
    float *weights = sampler->weights;
    for (uint32_t id = 0; id < scaled->n; id++)
        weights[id] = (scaled->logits[id] - scaled->largest) / scaled->temperature;
    sampler->vec->exp_sum(weights, scaled->n, 0.0f, weights);
    double sum = 0.0;
    for (uint32_t id = 0; id < scaled->n; id++)
        sum += (double)weights[id];
    return sum;
}

static uint32_t draw_by_id(struct sampler *sampler, const struct scaled *scaled, double u)
{
    const double target = u * weigh_all(sampler, scaled);
    uint32_t drawn = 0;
    double sum = 0.0;
    for (uint32_t id = 0; id < scaled->n && !(sum > target); id++) {
        if (sampler->weights[id] > 0.0f)
            drawn = id;
        sum += (double)sampler->weights[id];
    }
    return drawn;
}

/* Running sums of candidates [first, end) behind those before. */
static void sum_candidates(struct sampler *sampler, const struct scaled *scaled, uint32_t first,
                           uint32_t end)
{
    double sum = first > 0 ? sampler->sums[first - 1] : 0.0;
    for (uint32_t i = first; i < end; i++) {
        sum += (double)weight_of(scaled, sampler->order[i]);
        sampler->sums[i] = sum;
    }
}

/* How many of the candidates [first, end) in order the cuts keep, counted from candidate 0; `end`
 * when neither cut falls among them. */
static uint32_t find_cut(const struct sampler *sampler, const struct scaled *scaled, uint32_t first,
                         uint32_t end, double mass, float min_p)
{
    for (uint32_t i = first; i < end; i++) {
        if (i > 0 && min_p > 0.0f && weight_of(scaled, sampler->order[i]) < min_p)
            return i;
        if (sampler->sums[i] >= mass)
            return i + 1;
    }
    return end;
}

/* Puts the kept candidates in order, with their running sums; returns how many. */
static uint32_t keep_candidates(struct sampler *sampler, const struct scaled *scaled,
                                const struct sampling_params *params)
{
    const bool counted = params->top_k > 0 && params->top_k < scaled->n;
    const bool by_mass = params->top_p < 1.0f;
    const uint32_t cap = counted ? params->top_k : scaled->n;
    uint32_t want = counted ? params->top_k : ORDER_FIRST;
    double mass = INFINITY; // top_p's part of the whole
    if (by_mass && !counted)
        mass = (double)params->top_p * weigh_all(sampler, scaled);
    uint32_t n_ready = 0;
    for (;;) {
        const uint32_t first = n_ready;
        n_ready = candidates_extend(scaled->logits, scaled->n, sampler->order, n_ready, want);
        sum_candidates(sampler, scaled, first, n_ready);
        if (by_mass && counted)
            mass = (double)params->top_p * sampler->sums[n_ready - 1];
        const uint32_t kept = find_cut(sampler, scaled, first, n_ready, mass, params->min_p);
        if (kept < n_ready || n_ready == first || n_ready >= cap ||
            sampler->sums[n_ready - 1] >= mass)
            return kept;
        want *= ORDER_GROWTH;
    }
}

static uint32_t draw_kept(struct sampler *sampler, uint32_t n_kept, double u)
{
    const double target = u * sampler->sums[n_kept - 1];
    uint32_t low = 0, high = n_kept - 1; // the first whose running sum passes the target
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (sampler->sums[middle] > target)
            high = middle;
        else
            low = middle + 1;
    }
    return sampler->order[low];
}

static uint32_t draw(struct sampler *sampler, const struct scaled *scaled,
                     const struct sampling_params *params, uint32_t position)
{
    const double u = rng_uniform(params->seed, position);
    const bool cut = (params->top_k > 0 && params->top_k < scaled->n) || params->top_p < 1.0f ||
                     params->min_p > 0.0f;
    if (!cut)
        return draw_by_id(sampler, scaled, u);
    return draw_kept(sampler, keep_candidates(sampler, scaled, params), u);
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
    out->n_top = candidates_extend(row->logits, n, sampler->order, 0, params->n_top);
    for (uint32_t i = 0; i < out->n_top; i++) {
        out->top_tokens[i] = (int32_t)sampler->order[i];
        out->top_logprobs[i] = (row->logits[sampler->order[i]] - largest) - log_sum;
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
