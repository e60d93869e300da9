/* A tensor of a shard: what part it plays in the model, and where its bytes are.
 *
 * The role list is the whole vocabulary between shard files, families and blocks: a family maps the
 * names of its checkpoints to roles, the sharder writes roles, the model asks for them. Plain data;
 * the bytes belong to whoever opened the shard. Any thread. */
#ifndef CASCADIA_WEIGHTS_TENSOR_H
#define CASCADIA_WEIGHTS_TENSOR_H

#include "base/str.h"
#include "quant/quant.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tensor_role {
    /* Of a layer. */
    TENSOR_ATTN_NORM,
    TENSOR_Q,
    TENSOR_K,
    TENSOR_V,
    TENSOR_Q_BIAS,
    TENSOR_K_BIAS,
    TENSOR_V_BIAS,
    TENSOR_Q_NORM,
    TENSOR_K_NORM,
    TENSOR_O,
    TENSOR_O_BIAS,
    TENSOR_MLP_NORM,
    TENSOR_GATE_UP, // gate and up in one: panel 2i is gate's panel i, panel 2i + 1 is up's
    TENSOR_GATE,    // apart only when their formats differ
    TENSOR_UP,
    TENSOR_GATE_BIAS,
    TENSOR_UP_BIAS,
    TENSOR_DOWN,
    TENSOR_DOWN_BIAS,
    /* Of the whole model. */
    TENSOR_EMBEDDING,
    TENSOR_FINAL_NORM,
    TENSOR_HEAD, // absent when tied: the embedding is the output matrix too
    TENSOR_ROLE_COUNT,
};

/* The layer number of tensors that belong to none. */
#define TENSOR_NO_LAYER UINT32_MAX

struct tensor_role_info {
    const char *name;  // "attn_norm": in manifests and errors
    bool is_matrix;    // lies in panels; else row-major values in one row
    bool is_per_layer; // one a layer; else one a model
};

const struct tensor_role_info *tensor_role_info(enum tensor_role role);
bool tensor_role_find(struct str name, enum tensor_role *out); // false: no such role

/* A matrix w[rows][cols] in panels, or (role not a matrix) a vector of `cols` values with rows 1.
 *
 * `rows` of gate_up counts the padding: 2 * (intermediate size rounded up to 32), so that panels
 * and bytes follow from rows as for any other matrix; its two halves are read panel by panel. */
struct tensor {
    enum tensor_role role;
    uint32_t layer; // TENSOR_NO_LAYER when it belongs to none
    enum quant_format format;
    uint32_t rows, cols;
    uint32_t group;      // values that share a scale; 0 for float formats
    const uint8_t *data; // 64-byte aligned, mapped read-only
    size_t bytes;        // exactly quant_matrix_bytes (vectors: cols values of the format)
};

/* "layer 3 gate_up" or "embedding", for errors. Cuts what does not fit. */
void tensor_describe(enum tensor_role role, uint32_t layer, char *out, size_t out_bytes);

/* Exact size of such a tensor. False on overflow, a bad group, or a vector in a block format. */
bool tensor_bytes(enum tensor_role role, enum quant_format format, uint32_t rows, uint32_t cols,
                  uint32_t group, size_t *out);

#endif
