/* Tables of the rotation: cos and sin of every position's angles, made once when a model opens.
 *
 * Computed in double with the kernel's own functions (no libm), so that every machine has the same
 * bits. Scalings that depend on a length take the context size the model is opened with
 * (docs/numerics.md, rule 5): a row's rotation is a function of its position alone. Read-only after
 * init: any thread. */
#ifndef CASCADIA_MODEL_ROPE_H
#define CASCADIA_MODEL_ROPE_H

#include "base/err.h"
#include "base/team.h"
#include "model/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rope_table {
    uint32_t n_positions, n_pairs; // pairs: head_dim / 2
    float *cos, *sin;              // [n_positions][n_pairs], attention factor included
    size_t bytes;                  // of both
};

/* What position 1 turns each pair by, frequencies[head_dim / 2], and what cos and sin are
 * multiplied with. max_positions: of the configuration. */
void rope_frequencies(const struct rope_config *config, uint32_t head_dim, uint32_t max_positions,
                      uint32_t ctx_size, double *frequencies, double *attention_factor);

/* ERR_NO_MEMORY; ERR_FORMAT when settings make angles that are no numbers. */
bool rope_table_init(struct rope_table *table, const struct rope_config *config, uint32_t head_dim,
                     uint32_t max_positions, uint32_t ctx_size, struct team *team, struct err *err);
void rope_table_release(struct rope_table *table); // zeroed values are fine

static inline const float *rope_cos(const struct rope_table *table, uint32_t position)
{
    return table->cos + (size_t)position * table->n_pairs;
}
static inline const float *rope_sin(const struct rope_table *table, uint32_t position)
{
    return table->sin + (size_t)position * table->n_pairs;
}

#endif
