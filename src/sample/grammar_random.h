/* Random texts of a grammar: what a model that knows nothing would write. Tokens are drawn by the
 * sampler from random logits under the grammar's masks; after `n_random` of them the shortest way
 * out is taken, so that every text ends. For tests and for looking at a grammar. */
#ifndef CASCADIA_SAMPLE_GRAMMAR_RANDOM_H
#define CASCADIA_SAMPLE_GRAMMAR_RANDOM_H

#include "base/buf.h"
#include "base/err.h"
#include "sample/grammar.h"

#include <stdint.h>

struct grammar_random_options {
    uint64_t seed;
    uint32_t n_random; // tokens drawn at random
    uint32_t n_tokens_cap;
};

/* What the masks of a text cost. */
struct grammar_random_cost {
    uint32_t n_masks;
    uint64_t *ns; // [n_tokens_cap] or NULL
};

/* Appends the text. ERR_BATCH_LOST: no token could be drawn (a dead end), or the text did not end
 * within n_tokens_cap. cost may be NULL. */
bool grammar_random(struct grammar *grammar, const struct token_trie *trie,
                    const struct grammar_random_options *options, struct buf *out,
                    struct grammar_random_cost *cost, struct err *err);

#endif
