/* The register of blocks and the work that all of them do: taking tensors, packing rows, running
 * products on the team. */
#include "model/block.h"

#include <string.h>

#include "base/memory.h"

const struct block_ops *const blocks[BLOCK_KIND_COUNT] = {
    [BLOCK_ATTENTION] = &block_attention,
    [BLOCK_MLP] = &block_mlp,
};

static const struct tensor *take(const struct block_parts *parts, uint32_t layer,
                                 enum tensor_role role, struct err *err)
{
    const struct tensor *tensor = weights_get(parts->weights, layer, role, err);
    if (tensor == NULL || !family_check_tensor(parts->config, tensor, err))
        return NULL;
    return tensor;
}

bool block_matrix(const struct block_parts *parts, uint32_t layer, enum tensor_role role,
                  struct matrix *out, struct err *err)
{
    const struct tensor *tensor = take(parts, layer, role, err);
    if (tensor == NULL)
        return false;
    *out = (struct matrix){
        .format = tensor->format,
        .group = tensor->group,
        /* The kernel counts gate and up without their padding. */
        .rows = role == TENSOR_GATE_UP ? 2 * parts->config->intermediate : tensor->rows,
        .cols = tensor->cols,
        .data = tensor->data,
    };
    return true;
}

bool block_vector(const struct block_parts *parts, uint32_t layer, enum tensor_role role,
                  const float **out, struct err *err)
{
    const struct tensor *tensor = take(parts, layer, role, err);
    if (tensor == NULL)
        return false;
    /* The arena ceiling is made for all vectors of the stage. */
    float *values = arena_array(parts->arena, tensor->cols, sizeof(*values));
    must(values != NULL);
    const uint16_t *halves = (const void *)tensor->data;
    for (uint32_t i = 0; i < tensor->cols; i++) {
        switch (tensor->format) {
        case QUANT_F32:
            memcpy(&values[i], tensor->data + i * sizeof(float), sizeof(float));
            break;
        case QUANT_F16:
            values[i] = quant_f16_to_f32(halves[i]);
            break;
        case QUANT_BF16:
            values[i] = quant_bf16_to_f32(halves[i]);
            break;
        default:
            return err_set(err, ERR_FORMAT, "layer %u: a vector in format %s", layer,
                           quant_formats[tensor->format]->name);
        }
    }
    *out = values;
    return true;
}

void block_pack_for(const struct block_parts *parts, const struct matrix *matrix,
                    struct block_packing *packing)
{
    static const enum activation_mode modes[] = {
        [MODEL_ACTIVATION_G32] = ACTIVATION_G32,   [MODEL_ACTIVATION_G64] = ACTIVATION_G64,
        [MODEL_ACTIVATION_G128] = ACTIVATION_G128, [MODEL_ACTIVATION_ROW] = ACTIVATION_ROW,
        [MODEL_ACTIVATION_NONE] = ACTIVATION_NONE,
    };
    if (quant_formats[matrix->format]->is_float)
        return;
    enum activation_mode mode = modes[parts->activation];
    if (parts->activation == MODEL_ACTIVATION_WEIGHT)
        mode = matrix->group == 32   ? ACTIVATION_G32
               : matrix->group == 64 ? ACTIVATION_G64
                                     : ACTIVATION_G128;
    if (!packing->is_quantised || mode < packing->mode) // finer groups come first
        packing->mode = mode;
    packing->is_quantised = true;
}

struct packing {
    struct step *step;
    const struct pack_job *job;
    struct activation *out;
};

static void pack_tiles(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct packing *packing = context;
    const struct pack_job *job = packing->job;
    const struct kernel *kernel = packing->step->kernel;
    (void)thread;
    for (uint32_t tile = first; tile < last; tile++) {
        uint32_t row, end;
        activation_tile(packing->out, tile, &row, &end);
        for (; job->weight != NULL && row < end; row++) {
            const size_t at = (size_t)row * job->width;
            kernel->vec->rmsnorm(job->x + at, job->weight, job->width, job->epsilon,
                                 job->normed + at);
        }
        if (!kernel->matmul->pack(packing->out, tile, tile + 1))
            atomic_store_explicit(&packing->step->is_lost, true, memory_order_relaxed);
    }
}

void step_pack(struct step *step, uint32_t n_rows, const struct pack_job *job,
               struct activation *out)
{
    activation_init(out, step->kernel, job->memory,
                    &(struct activation_options){
                        .x = job->weight != NULL ? job->normed : job->x,
                        .x_stride = job->width,
                        .rows = n_rows,
                        .cols = job->width,
                        .mode = job->packing.mode,
                        .quantised = job->packing.is_quantised,
                    });
    struct packing packing = { step, job, out };
    team_for(step->team, out->n_tiles, 1, pack_tiles, &packing);
}

void step_gather(const struct step *step, float *x, size_t width)
{
    for (uint32_t i = 0; i < step->n_wanted; i++) { // rows only move forward
        if (step->wanted[i] != i)
            memcpy(x + i * width, x + step->wanted[i] * width, width * sizeof(*x));
    }
}

void step_cut_tiles(struct step *step)
{
    struct workspace *ws = step->ws;
    ws->n_tiles = 0;
    for (uint32_t row = 0; row < step->n_rows; row++) {
        const struct kv_row at = step->rows[row];
        struct row_tile *tile = ws->n_tiles > 0 ? &ws->tiles[ws->n_tiles - 1] : NULL;
        if (tile != NULL && tile->sequence == at.sequence &&
            tile->position + tile->n_rows == at.position && tile->n_rows < ATTEND_TILE_ROWS_CAP) {
            tile->n_rows++;
            continue;
        }
        ws->tiles[ws->n_tiles++] = (struct row_tile){
            .sequence = at.sequence,
            .position = at.position,
            .row = row,
            .n_rows = 1,
        };
    }
}

void step_narrow(struct step *step)
{
    step_gather(step, step->ws->hidden, step->hidden_width);
    for (uint32_t i = 0; i < step->n_wanted; i++)
        step->rows[i] = step->rows[step->wanted[i]];
    step->n_rows = step->n_wanted;
    step_cut_tiles(step);
}

struct product_run {
    const struct kernel *kernel;
    const struct matmul *product;
};

static void run_items(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct product_run *run = context;
    (void)thread;
    run->kernel->matmul->run(run->product, first, last);
}

void step_matmul(struct step *step, const struct matmul *product)
{
    const uint32_t n_items = matmul_items(product);
    /* Some panels at a time keep a thread's stream sequential; enough chunks to share the rest. */
    const uint32_t share = n_items / (8 * team_threads(step->team));
    const uint32_t chunk = share < 1 ? 1 : share > 8 ? 8 : share;
    struct product_run run = { step->kernel, product };
    team_for(step->team, n_items, chunk, run_items, &run);
}
