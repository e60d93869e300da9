/* A run of layers of a transformer, opened from a shard directory, and its forward pass.
 *
 * Rows go in, values come out: hidden rows on inner stages, logits on the last one. The logits of a
 * row depend only on the weights, the ids before it and the settings that change arithmetic
 * (docs/numerics.md). Weights stay where the shard has them; everything a step needs is allocated
 * at open. One thread at a time; inside, the work is a kernel team's. */
#ifndef CASCADIA_MODEL_MODEL_H
#define CASCADIA_MODEL_MODEL_H

#include "base/err.h"
#include "kernel/kernel.h"
#include "model/model_cost.h"
#include "weights/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model;
struct profile;

enum model_kv { MODEL_KV_DEFAULT, MODEL_KV_F16, MODEL_KV_F32, MODEL_KV_Q8 };

/* How activations are rounded before they meet quantised weights (numerics rule 1). */
enum model_activation {
    MODEL_ACTIVATION_DEFAULT, // MODEL_ACTIVATION_WEIGHT: docs/accuracy.md says why
    MODEL_ACTIVATION_WEIGHT,  // in the groups of the weights they meet, the finest of a product's
    MODEL_ACTIVATION_G32,
    MODEL_ACTIVATION_G64,
    MODEL_ACTIVATION_G128,
    MODEL_ACTIVATION_ROW,
    MODEL_ACTIVATION_NONE, // not at all
};

/* Sees what matrices are multiplied with, for whoever measures a model. `role`: the first of the
 * matrices that share the rows (TENSOR_Q, _O, _GATE or _GATE_UP, _DOWN, _HEAD). Called by one
 * thread at a time, in the order of the forward pass. */
struct model_observer {
    void *context;
    void (*see)(void *context, uint32_t layer, enum tensor_role role, const float *x,
                uint32_t n_rows, uint32_t cols);
};

struct model_options {
    uint32_t layer_first, layer_end; // layer_end 0: to the last
    uint32_t ctx_size;               // 0: the configuration's, at most ctx_size_cap
    uint32_t ctx_size_cap;
    uint64_t kv_memory_bytes; // 0: kv_cache's default
    uint32_t max_rows, max_sequences;
    uint32_t threads; // 0: one a processor
    enum model_kv kv; // default: f32 with float weights, else f16
    enum model_activation activation;
    const struct model_observer *observer; // borrowed; NULL: none
    const struct kernel *kernel;           // NULL: the best one
    const char *record_dir;                // see weights_options
    bool prefault;                         // weights are read and mapped at open
    bool lock;                             // weights are kept in memory
    struct profile *profile; // borrowed: where the time of steps is added; NULL: nowhere
};

struct model_info {
    const char *family;
    uint32_t n_layers; // of the whole model
    uint32_t layer_first, layer_end;
    uint32_t hidden, vocab_size;
    uint32_t ctx_size, n_pages;
    uint64_t model_hash;    // what the model is
    uint64_t settings_hash; // what else its numbers depend on
    struct model_cost cost;
    uint32_t step_ops; // loops of the last step, one barrier each
};

struct model_row {
    uint32_t sequence, position;
    int32_t token;
    bool wants_logits;
};

/* NULL on failure: what config, weights and tensors say; ERR_ARGUMENT for a range of layers, a
 * context or a KV memory that cannot be; ERR_NO_MEMORY. */
struct model *model_open(const char *directory, const struct model_options *options,
                         struct err *err);
void model_close(struct model *model); // NULL is fine
const struct model_info *model_info(const struct model *model);

/* One step of rows[n_rows], 0 .. max_rows. `in`: [n_rows][hidden], not read on the first stage.
 * `out`: [n_rows][hidden], or on the last stage [logits wanted][vocab_size]; not `in`. On failure
 * sequences are as kv_pages_abort says: ERR_BATCH_LOST (a row that does not fit, values that are
 * not finite), ERR_BUSY (no page). */
bool model_step(struct model *model, const struct model_row *rows, uint32_t n_rows, const float *in,
                float *out, struct err *err);

/* See kv_pages. */
void model_keep(struct model *model, uint32_t from, uint32_t to, uint32_t rows);
void model_drop(struct model *model, uint32_t sequence);

#endif
