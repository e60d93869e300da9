/* A block: one step of a layer, h += block(rmsnorm(h)). Attention and MLP are blocks; a family says
 * which ones a layer has (model/family.h), a kind of block is one file here and one row in
 * blocks[].
 *
 * The frame (model.c) norms the residual stream and packs it into step->ws->input; the block
 * multiplies, and adds its result to step->ws->hidden. A block keeps pointers to its weights and
 * into the workspace from open on, and computes nothing twice; its state lives in the model's
 * arena. Run by the thread that owns the model, which is thread 0 of the team. */
#ifndef CASCADIA_MODEL_BLOCK_H
#define CASCADIA_MODEL_BLOCK_H

#include "base/arena.h"
#include "base/err.h"
#include "base/team.h"
#include "kernel/kernel.h"
#include "model/config.h"
#include "model/family.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "model/rope.h"
#include "model/workspace.h"
#include "weights/weights.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* How the rows of one product are packed. */
struct block_packing {
    bool is_quantised; // a matrix that reads them has a block format
    enum activation_mode mode;
};

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

/* What one step hands to every block. */
struct step {
    const struct kernel *kernel;
    struct team *team;
    struct workspace *ws;
    const struct kv_cache *kv;
    uint32_t hidden_width; // floats of a row of ws->hidden
    uint32_t n_rows;
    struct kv_row *rows;    // [n_rows]
    const uint32_t *wanted; // [n_wanted] rows that want logits, rising; see step_narrow
    uint32_t n_wanted;
    atomic_bool is_lost; // a value was not finite: stop
};

struct block {
    const struct block_ops *ops;
    uint32_t layer;             // of the whole model
    bool is_last_reader;        // behind it no row needs another: it narrows the step
    const float *norm;          // [hidden] weight of the norm before it
    struct block_packing input; // of the normed rows
    void *state;                // the implementation's, in the arena
};

struct block_ops {
    const char *name; // "attention": in errors
    bool mixes_rows;  // rows of a sequence see earlier ones through it
    /* Finds and checks its tensors; block->layer is set. ERR_FORMAT names a tensor. */
    bool (*open)(struct block *block, const struct block_parts *parts, struct err *err);
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

/* `packing` (zeroed at first) is that of one more matrix of the product. */
void block_pack_for(const struct block_parts *parts, const struct matrix *matrix,
                    struct block_packing *packing);

/* Norms rows of x[n_rows][width] into `normed` with `weight` (NULL: takes x as it is) and packs
 * them into `out`, whose memory is given. Sets step->is_lost. */
struct pack_job {
    const float *x;
    uint32_t width;
    const float *weight;
    float epsilon;
    float *normed;
    struct block_packing packing;
    void *memory;
};
void step_pack(struct step *step, uint32_t n_rows, const struct pack_job *job,
               struct activation *out);

/* Moves rows wanted[0 .. n_wanted) of x[][width] to the front. */
void step_gather(const struct step *step, float *x, size_t width);
/* Behind the last block that lets rows see each other only the rows that want logits matter: goes
 * on with those alone (residual stream, rows, tiles). A block that keeps other values of rows
 * gathers them itself, before. No result depends on it. May leave no row: then there is nothing to
 * do. */
void step_narrow(struct step *step);
/* Cuts the step's rows into ws->tiles: runs of one sequence that follow each other. */
void step_cut_tiles(struct step *step);

/* All items of a product, by the team. */
void step_matmul(struct step *step, const struct matmul *product);

#endif
