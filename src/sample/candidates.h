/* Tokens in candidate order: logit descending, id ascending. A logit of -inf is no candidate; none
 * is NaN. Pure functions: any thread. */
#ifndef CASCADIA_SAMPLE_CANDIDATES_H
#define CASCADIA_SAMPLE_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

/* a comes after b. */
bool candidates_after(const float *logits, uint32_t a, uint32_t b);

/* The first `count` of logits[n] into best[count], in order; returns how many there are. One pass
 * over the row; count x log(count) x log(n / count) steps more where the row is in no order. */
uint32_t candidates_best(const float *logits, uint32_t n, uint32_t count, uint32_t *best);

/* Puts ids[n_ids] in order. */
void candidates_sort(const float *logits, uint32_t *ids, uint32_t n_ids);

#endif
