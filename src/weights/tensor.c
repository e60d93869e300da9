/* The table of roles. */
#include "weights/tensor.h"

#include <stdio.h>

#include "base/err.h"

static const struct tensor_role_info roles[TENSOR_ROLE_COUNT] = {
    [TENSOR_ATTN_NORM] = { "attn_norm", false, true },
    [TENSOR_Q] = { "q", true, true },
    [TENSOR_K] = { "k", true, true },
    [TENSOR_V] = { "v", true, true },
    [TENSOR_Q_BIAS] = { "q_bias", false, true },
    [TENSOR_K_BIAS] = { "k_bias", false, true },
    [TENSOR_V_BIAS] = { "v_bias", false, true },
    [TENSOR_Q_NORM] = { "q_norm", false, true },
    [TENSOR_K_NORM] = { "k_norm", false, true },
    [TENSOR_O] = { "o", true, true },
    [TENSOR_O_BIAS] = { "o_bias", false, true },
    [TENSOR_MLP_NORM] = { "mlp_norm", false, true },
    [TENSOR_GATE_UP] = { "gate_up", true, true },
    [TENSOR_GATE] = { "gate", true, true },
    [TENSOR_UP] = { "up", true, true },
    [TENSOR_GATE_BIAS] = { "gate_bias", false, true },
    [TENSOR_UP_BIAS] = { "up_bias", false, true },
    [TENSOR_DOWN] = { "down", true, true },
    [TENSOR_DOWN_BIAS] = { "down_bias", false, true },
    [TENSOR_EMBEDDING] = { "embedding", true, false },
    [TENSOR_FINAL_NORM] = { "final_norm", false, false },
    [TENSOR_HEAD] = { "head", true, false },
};

const struct tensor_role_info *tensor_role_info(enum tensor_role role)
{
    must((unsigned)role < TENSOR_ROLE_COUNT);
    return &roles[role];
}

bool tensor_role_find(struct str name, enum tensor_role *out)
{
    for (int i = 0; i < TENSOR_ROLE_COUNT; i++) {
        if (str_is(name, roles[i].name)) {
            *out = (enum tensor_role)i;
            return true;
        }
    }
    return false;
}

void tensor_describe(enum tensor_role role, uint32_t layer, char *out, size_t out_bytes)
{
    const char *name = tensor_role_info(role)->name;
    if (layer == TENSOR_NO_LAYER)
        snprintf(out, out_bytes, "%s", name);
    else
        snprintf(out, out_bytes, "layer %u %s", layer, name);
}

bool tensor_bytes(enum tensor_role role, enum quant_format format, uint32_t rows, uint32_t cols,
                  uint32_t group, size_t *out)
{
    if (rows == 0 || cols == 0)
        return false;
    if (tensor_role_info(role)->is_matrix)
        return quant_matrix_bytes(format, rows, cols, group, out);
    if (rows != 1 || group != 0 || !quant_formats[format]->is_float)
        return false;
    *out = (size_t)cols * (quant_formats[format]->value_bits / 8);
    return true;
}
