/* What a step costs at least, by what it has to read: the yardstick of every speed that is told.
 *
 * A step reads all weights of the stage once, whatever its rows, and the keys and values that each
 * row sees. How fast this machine reads is measured when the model opens. */
#ifndef CASCADIA_MODEL_MODEL_COST_H
#define CASCADIA_MODEL_MODEL_COST_H

#include "model/kv_cache.h"
#include "weights/weights.h"

#include <stdbool.h>
#include <stdint.h>

struct model_cost {
    uint64_t weights_bytes;  // read by a step whose rows want logits
    uint64_t position_bytes; // of keys and values, a position of a sequence
    uint64_t row_macs;       // multiply-adds with weights, a row
    uint64_t logits_macs;    // and as many more where logits are wanted
    double read_bytes_per_s; // of these weights, by all threads that run the model; 0: not measured
};

/* Measures for some milliseconds; touches pages of the weights that it reads.
 * has_head: the stage makes logits. */
void model_cost_measure(struct model_cost *cost, const struct weights *weights, bool has_head,
                        const struct kv_cache *kv, uint32_t n_threads);

#endif
