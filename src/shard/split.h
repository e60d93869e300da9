/* Which layers each stage of a pipeline runs. Ranges are half-open, follow each other and cover
 * every layer exactly once. Plain data, any thread. */
#ifndef CASCADIA_SHARD_SPLIT_H
#define CASCADIA_SHARD_SPLIT_H

#include "base/err.h"
#include "base/str.h"
#include "weights/manifest.h"

#include <stdbool.h>
#include <stdint.h>

#define SPLIT_STAGES_CAP 256u

struct split {
    struct manifest_stage stages[SPLIT_STAGES_CAP];
    uint32_t n_stages;
};

/* As even as it goes; the first stages take what is left over. ERR_ARGUMENT: more stages than
 * layers, or none. */
bool split_even(uint32_t n_layers, uint32_t n_stages, struct split *out, struct err *err);

/* Boundaries: "10,20" of 30 layers gives 0..10, 10..20, 20..30. ERR_ARGUMENT: not rising numbers
 * between 0 and n_layers. */
bool split_parse(struct str boundaries, uint32_t n_layers, struct split *out, struct err *err);

#endif
