/* Scratch memory of a forward pass: one block, sized when the model opens, cut into named parts.
 *
 * No part is ever reallocated, so blocks keep pointers into it. A part is written and read within
 * one block of one layer (the residual stream: within one step).
 *
 *     rows x  hidden | normed | q | k | v | attended | gate | up      packed: input, inner
 *     threads x  attention scratch | page pointers | own packed rows
 *     partials of split attention | the step's loops and their contexts
 */
#ifndef CASCADIA_MODEL_WORKSPACE_H
#define CASCADIA_MODEL_WORKSPACE_H

#include "base/err.h"
#include "base/team.h"
#include "kernel/kernel.h"
#include "model/config.h"
#include "model/kv_pages.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A run of rows of one sequence that attention takes at once. */
struct row_tile {
    uint32_t sequence, position; // of its first row
    uint32_t row, n_rows;        // in the batch
};

#define WORKSPACE_OWN_FLOATS_CAP 16384u // rows x cols that a thread packs for itself

/* What a thread packs for itself. */
struct workspace_own {
    struct activation activation;
    float *normed; // [WORKSPACE_OWN_FLOATS_CAP]
    void *memory;
};

struct workspace {
    uint32_t max_rows, n_threads;
    float *hidden;   // [max_rows][hidden] the residual stream
    float *normed;   // [max_rows][hidden]
    float *q;        // [max_rows][n_heads * head_dim]
    float *k, *v;    // [max_rows][n_kv_heads * head_dim]
    float *attended; // [max_rows][n_heads * head_dim]
    float *gate;     // [max_rows][intermediate], behind the activation too
    float *up;       // [max_rows][intermediate], used when gate and up are stored apart

    void *input_memory; // the normed rows, packed: what a block reads
    void *inner_memory; // what a block's second product reads
    uint8_t *own;       // [n_threads] struct workspace_own, see workspace_own()
    size_t own_bytes;

    uint8_t *scratch; // [n_threads][scratch_bytes] of attention
    size_t scratch_bytes;
    const void **pages; // [n_threads][pages_cap]
    uint32_t pages_cap;
    uint8_t *partials; // of attention split into segments
    size_t partials_bytes;
    struct kv_row *rows;    // [2][max_rows] of the batch: all, then those that want logits
    struct row_tile *tiles; // [2][max_rows]

    struct team_op *ops; // [ops_cap] the step's loops
    const char **op_names;
    uint64_t *op_ended_ns; // when there is a profile
    uint8_t *contexts;     // [ops_cap][STEP_CONTEXT_BYTES]
    uint32_t ops_cap;

    uint8_t *block;
    size_t block_bytes;
};

struct workspace_options {
    const struct model_config *config;
    const struct kv_shape *shape;
    uint32_t max_rows, n_threads, ctx_size;
    uint32_t n_ops; // loops of a step, at most
};

bool workspace_init(struct workspace *ws, const struct workspace_options *options,
                    struct err *err);         // ERR_NO_MEMORY
void workspace_release(struct workspace *ws); // zeroed values are fine

static inline struct workspace_own *workspace_own(const struct workspace *ws, uint32_t thread)
{
    return (struct workspace_own *)(void *)(ws->own + thread * ws->own_bytes);
}

#endif
