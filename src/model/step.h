/* One forward pass: the rows at hand, and the list of loops that takes them through the layers.
 *
 * Nothing is computed when a block is called: it appends loops to the step, and the model runs the
 * list as a whole on the team, one barrier a loop (base/team.h). So what a loop reads has to stand
 * still from then on: its context is copied when it is appended, and points only to what open made,
 * to the workspace, and to rows and tiles as they were (take those of the step into the context;
 * step_narrow puts others in their place).
 *
 * Run by the thread that owns the model, which is thread 0 of the team. */
#ifndef CASCADIA_MODEL_STEP_H
#define CASCADIA_MODEL_STEP_H

#include "base/team.h"
#include "kernel/kernel.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "model/workspace.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STEP_CONTEXT_BYTES 128u // of a loop, at most

struct block;

struct step {
    const struct kernel *kernel;
    const struct matmul_tuning *tuning;
    struct team *team;
    struct workspace *ws;
    const struct kv_cache *kv;
    const struct model_observer *observer; // NULL: none
    uint32_t hidden_width;                 // floats of a row of ws->hidden
    uint32_t n_rows, n_tiles;
    const struct kv_row *rows;    // [n_rows]
    const struct row_tile *tiles; // [n_tiles] runs of rows of one sequence that follow each other
    const uint32_t *wanted;       // [n_wanted] rows that want logits, rising; see step_narrow
    uint32_t n_wanted;
    const struct block *block;          // whose loops are being appended; NULL: not a block's
    uint32_t n_ops;                     // of ws->ops
    atomic_bool is_lost;                // a value was not finite: no further loop runs
    _Atomic(const struct block *) lost; // whose it was, when is_lost; NULL: the head's
};

/* A loop to be appended. */
struct step_loop {
    const char *name; // in profiles: "attend"
    team_body *body;
    team_prepare *prepare; // NULL: none
    const void *context;   // copied
    size_t context_bytes;
    uint32_t n_items, chunk;
};

/* Sets up `step` for rows[n_rows]; its first fields, down to hidden_width, are set. The rows are
 * copied into the workspace. */
void step_begin(struct step *step, const struct kv_row *rows, uint32_t n_rows,
                const uint32_t *wanted, uint32_t n_wanted);
void step_add(struct step *step, const struct step_loop *loop);

/* Called within a loop of `block` (NULL: the head's) that met a value which is not finite: no
 * further loop runs and the step fails. */
void step_lose(struct step *step, const struct block *block);

/* Rows, normed or as they come, times matrices. Filled when the model opens, with product_add. */
struct product {
    const char *name;      // in profiles: "qkv"
    enum tensor_role role; // of the first matrix
    const float *x;        // [rows][cols]
    const float *weight;   // [cols] of the norm; NULL: x as it is
    float epsilon;
    float *normed;                  // [rows][cols] room for the normed rows
    void *memory;                   // room for the packed rows
    enum model_activation rounding; // of x; not the default
    bool is_quantised;              // some matrix has a block format: x is rounded,
    enum activation_mode mode;      // as their groups want it
    struct matmul matmul;
    struct activation activation; // of the step at hand
};

/* One more matrix. All that is above is_quantised is set by then. */
void product_add(struct product *product, const struct matmul_part *part);

/* Appends the product of the step's rows. A value that is not finite loses the step. */
void step_product(struct step *step, struct product *product);

/* Moves rows wanted[0 .. n_wanted) of x[][width] to the front. */
void step_gather(struct step *step, float *x, size_t width);
/* Behind the last block that lets rows see each other only the rows that want logits matter: goes
 * on with those alone (residual stream, rows, tiles). A block that keeps other values of rows
 * gathers them itself, before. No result depends on it. May leave no row: then there is nothing to
 * do. */
void step_narrow(struct step *step);

#endif
