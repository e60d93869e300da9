/* What a request holds against tokens that have been said, and its bias for or against others.
 * Pure functions: any thread. */
#ifndef CASCADIA_SAMPLE_PENALTIES_H
#define CASCADIA_SAMPLE_PENALTIES_H

#include "sample/sampling_params.h"

#include <stdbool.h>
#include <stdint.h>

/* False: penalties_apply would change nothing. */
bool penalties_wanted(const struct sampling_params *params);

/* Changes logits[n] in place, by the ids said so far. counts[n] is scratch: zeros before and after.
 * Ids outside [0, n) count for nothing. */
void penalties_apply(const struct sampling_params *params, const int32_t *ids, uint32_t n_ids,
                     float *logits, uint32_t n, uint32_t *counts);

#endif
