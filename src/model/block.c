/* The register of blocks, and how they take tensors. */
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

struct product block_product(const struct block_parts *parts, const char *name,
                             enum tensor_role role, const float *x)
{
    return (struct product){
        .name = name,
        .role = role,
        .x = x,
        .memory = parts->ws->inner_memory,
        .rounding = parts->activation,
    };
}

struct product block_input(const struct block *block, const struct block_parts *parts,
                           const char *name, enum tensor_role role)
{
    return (struct product){
        .name = name,
        .role = role,
        .x = parts->ws->hidden,
        .weight = block->norm,
        .epsilon = parts->config->norm_eps,
        .normed = parts->ws->normed,
        .memory = parts->ws->input_memory,
        .rounding = parts->activation,
    };
}
