/* Tokens in candidate order, as many as are needed and no more.
 *
 * Candidate order: logit descending, id ascending. A logit of -inf is no candidate. */
#ifndef CASCADIA_SAMPLE_CANDIDATES_H
#define CASCADIA_SAMPLE_CANDIDATES_H

#include <stdint.h>

/* order[0 .. n_ready) holds the first candidates of logits[n]; puts up to `count` more behind them.
 * Returns how many there are then; no more than before: that was all. order has room for n; no
 * logit is NaN. Cost: one pass over the row, and count x log(count) where the row is in order of
 * rising logits at worst. */
uint32_t candidates_extend(const float *logits, uint32_t n, uint32_t *order, uint32_t n_ready,
                           uint32_t count);

#endif
