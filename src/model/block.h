/* A block: one step of a layer, h += block(rmsnorm(h)). Attention and MLP are blocks; a family says
 * which ones a layer has (model/family.h), a kind of block is one file here and one row in
 * blocks[].
 *
 * A block reads the normed residual stream by its first product (block_input) and adds its result
 * to ws->hidden by the epilogue of its last. It keeps pointers to its weights and into the
 * workspace from open on; its state lives in the model's arena. In a step it appends its loops
 * (model/step.h). Run by the thread that owns the model. */
#ifndef CASCADIA_MODEL_BLOCK_H
#define CASCADIA_MODEL_BLOCK_H

#include "base/arena.h"
#include "base/err.h"
#include "kernel/kernel.h"
#include "model/config.h"
#include "model/family.h"
#include "model/model.h"
#include "model/rope.h"
#include "model/step.h"
#include "model/workspace.h"
#include "weights/weights.h"

#include <stdbool.h>
#include <stdint.h>

#define BLOCK_OPS_CAP 12u // loops of a block in a step

/* What blocks are built from. */
struct block_parts {
    const struct model_config *config;
    const struct weights *weights;
    const struct rope_table *ropes; // [LAYER_KIND_COUNT]
    struct workspace *ws;
    struct arena *arena;
    uint32_t layer_first;             // of the stage
    enum model_activation activation; // not the default
};

struct block {
    const struct block_ops *ops;
    uint32_t layer;      // of the whole model
    bool is_last_reader; // behind it no row needs another: it narrows the step
    const float *norm;   // [hidden] weight of the norm before it
    void *state;         // the implementation's, in the arena
};

struct block_ops {
    const char *name; // "attention": in errors
    bool mixes_rows;  // rows of a sequence see earlier ones through it
    /* Finds and checks its tensors; block->layer is set. ERR_FORMAT names a tensor. */
    bool (*open)(struct block *block, const struct block_parts *parts, struct err *err);
    /* Appends its loops, BLOCK_OPS_CAP at most. */
    void (*step)(const struct block *block, struct step *step);
};

extern const struct block_ops block_attention;
extern const struct block_ops block_mlp;
extern const struct block_ops *const blocks[BLOCK_KIND_COUNT];

/* ---- what blocks share ---- */

/* A matrix of the layer, checked against the family's shape. */
bool block_matrix(const struct block_parts *parts, uint32_t layer, enum tensor_role role,
                  struct matrix *out, struct err *err);
/* A vector of the layer as f32 in the arena. */
bool block_vector(const struct block_parts *parts, uint32_t layer, enum tensor_role role,
                  const float **out, struct err *err);

/* A product of x[rows][..] as it is, packed into ws->inner_memory; parts are to be added. */
struct product block_product(const struct block_parts *parts, const char *name,
                             enum tensor_role role, const float *x);
/* The product that a block begins with, of the normed residual stream; parts are to be added. */
struct product block_input(const struct block *block, const struct block_parts *parts,
                           const char *name, enum tensor_role role);

#endif
