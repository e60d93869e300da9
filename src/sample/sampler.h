/* From a row of logits to a token.
 *
 * The token is a pure function of (logits, params, ids): the same bits on every CPU, whatever else
 * is in the batch (docs/numerics.md, rule 10). Order of work: repetition, frequency and presence
 * penalty, bias, grammar's mask, temperature, top-k, top-p, min-p, draw. Candidates are ordered by
 * (logit descending, id ascending); a tie of greedy goes to the lower id. The row is never sorted:
 * a vocabulary of 150,000 costs a few passes over it.
 *
 * A sampler is scratch memory only: nothing of one draw reaches the next, and one sampler serves
 * all sequences of a stage. One thread at a time. */
#ifndef CASCADIA_SAMPLE_SAMPLER_H
#define CASCADIA_SAMPLE_SAMPLER_H

#include "base/err.h"
#include "sample/sampling_params.h"

#include <stdbool.h>
#include <stdint.h>

struct sampler;

/* All memory that drawing will need. ERR_ARGUMENT for an empty vocabulary, ERR_NO_MEMORY. */
struct sampler *sampler_new(uint32_t vocab_size, struct err *err);
void sampler_free(struct sampler *sampler); // NULL is fine

/* What one token is drawn from; everything is borrowed for the call. */
struct sampler_row {
    const float *logits; // [vocab_size]; -inf: never drawn
    const struct sampling_params *params;
    const int32_t *ids; // [n_ids] prompt and answer so far: the row's own token is ids[n_ids - 1]
    uint32_t
        n_ids; // also the position that the drawn token will have: it and the seed make the draw
    const uint64_t *allowed; // [vocab_size] bits of tokens that may be drawn (grammar.h); NULL: all
};

/* Draws one token. Allocates nothing. ERR_BATCH_LOST when the logits hold a NaN or +inf, or when no
 * token can be drawn; *out is then untouched. */
bool sampler_draw(struct sampler *sampler, const struct sampler_row *row, struct sampled_token *out,
                  struct err *err);

#endif
