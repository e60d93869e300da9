/* Three definitions from two houses meet here, each kept as its users know it:
 * - repetition (Hugging Face): every id of prompt and answer, once: a positive logit is divided by
 *   the penalty, a negative one multiplied;
 * - frequency and presence (OpenAI): ids of the answer only: minus count x frequency, then minus
 *   presence;
 * - bias (OpenAI): added last, entry by entry.
 * Each step is one rounded f32 operation, so the result does not depend on the machine. Counting is
 * two passes over the ids; the scratch is cleaned by the second, not by a pass over the vocabulary.
 */
#include "sample/penalties.h"

#define SEEN 0x80000000u // in counts: the repetition penalty was applied

bool penalties_wanted(const struct sampling_params *params)
{
    return params->repetition_penalty != 1.0f || params->presence_penalty != 0.0f ||
           params->frequency_penalty != 0.0f || params->n_bias > 0;
}

/* Penalises each id once and leaves in counts how often the answer has it. */
static void apply_repetition(const struct sampling_params *params, const int32_t *ids,
                             uint32_t n_ids, float *logits, uint32_t n, uint32_t *counts)
{
    const float penalty = params->repetition_penalty;
    for (uint32_t i = 0; i < n_ids; i++) {
        const uint32_t id = (uint32_t)ids[i];
        if (id >= n)
            continue;
        if ((counts[id] & SEEN) == 0) {
            counts[id] |= SEEN;
            if (penalty != 1.0f)
                logits[id] = logits[id] < 0.0f ? logits[id] * penalty : logits[id] / penalty;
        }
        counts[id] += i >= params->prompt_rows;
    }
}

static void apply_counts(const struct sampling_params *params, const int32_t *ids, uint32_t n_ids,
                         float *logits, uint32_t n, uint32_t *counts)
{
    for (uint32_t i = 0; i < n_ids; i++) {
        const uint32_t id = (uint32_t)ids[i];
        if (id >= n)
            continue;
        const uint32_t count = counts[id] & ~SEEN;
        counts[id] = 0;
        if (count > 0) {
            logits[id] -= (float)count * params->frequency_penalty;
            logits[id] -= params->presence_penalty;
        }
    }
}

void penalties_apply(const struct sampling_params *params, const int32_t *ids, uint32_t n_ids,
                     float *logits, uint32_t n, uint32_t *counts)
{
    apply_repetition(params, ids, n_ids, logits, n, counts);
    apply_counts(params, ids, n_ids, logits, n, counts);
    for (uint32_t i = 0; i < params->n_bias; i++) {
        const uint32_t id = (uint32_t)params->bias[i].token;
        if (id < n)
            logits[id] += params->bias[i].bias;
    }
}
