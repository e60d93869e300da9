/* A model family is described, not programmed: one file of data (family_x.c) and one row in
 * families[].
 *
 * The description says which model_type it serves, how its config keys become switches, which
 * blocks a layer has, and which tensors a checkpoint holds under which names and of which shapes.
 * model/config, shard/ and the engines read the same table, so a tensor that is missing, left over
 * or of a wrong shape can be named by each of them. Read-only data: any thread. */
#ifndef CASCADIA_MODEL_FAMILY_H
#define CASCADIA_MODEL_FAMILY_H

#include "base/err.h"
#include "base/str.h"
#include "model/config.h"
#include "weights/tensor.h"

#include <stdbool.h>
#include <stdint.h>

/* A size in terms of the configuration. */
enum family_dim {
    DIM_NONE, // no such axis: the tensor is a vector
    DIM_HIDDEN,
    DIM_INTERMEDIATE,
    DIM_Q,    // n_heads * head_dim
    DIM_KV,   // n_kv_heads * head_dim
    DIM_HEAD, // head_dim
    DIM_VOCAB,
};

/* When a tensor belongs to the model. */
enum family_when {
    WHEN_ALWAYS,
    WHEN_QKV_BIAS,
    WHEN_O_BIAS,
    WHEN_MLP_BIAS,
    WHEN_QK_NORM,
    WHEN_UNTIED,
};

struct family_tensor {
    enum tensor_role role;
    const char *name;           // in checkpoints; "%u" stands for the layer
    enum family_dim rows, cols; // a vector has cols alone, as in struct tensor
    enum family_when when;
};

/* Where a switch comes from: fixed, or a boolean key of config.json (absent: off). */
struct family_switch {
    bool is_on;
    const char *key; // NULL: is_on
};

/* Which layers have a sliding window. */
enum family_window {
    WINDOW_NONE,   // the family has none; a window in its config.json is refused
    WINDOW_EACH,   // every layer when sliding_window is a number
    WINDOW_LISTED, // use_sliding_window, then layer_types, else layers from max_window_layers
};

enum block_kind { BLOCK_ATTENTION, BLOCK_MLP, BLOCK_KIND_COUNT };

/* One step of a layer: h += block(rmsnorm(h)). */
struct family_block {
    enum block_kind kind;
    enum tensor_role norm;
};

#define FAMILY_BLOCKS_CAP 4u

struct family {
    const char *name;
    const char *summary;
    const char *const *model_types; // NULL at the end; matched whole

    struct family_switch qkv_bias, o_bias, mlp_bias;
    bool has_qk_norm;
    enum family_window window;
    uint32_t window_default;   // when the key is absent (null is none); 0: none
    uint32_t head_dim_default; // when the key is absent; 0: hidden / n_heads
    double rope_theta_default; // when no place says it; 0: that is an error

    struct family_block blocks[FAMILY_BLOCKS_CAP]; // of each layer, in order
    uint32_t n_blocks;
    const struct family_tensor *tensors; // embedding, of a layer, the rest; name NULL at the end
    const char *const
        *passed_over; // known names that are not read ("%u" as above); NULL at the end
};

extern const struct family *const families[]; // NULL at the end

/* By model_type. NULL: none; then `err` (ERR_UNSUPPORTED) gives the reason where it is known, and
 * the families there are. */
const struct family *family_find(struct str model_type, struct err *err);

/* One tensor that a checkpoint of a configuration holds. */
struct family_need {
    enum tensor_role role;
    uint32_t layer;      // TENSOR_NO_LAYER when it belongs to none
    uint32_t rows, cols; // rows 1 for vectors
    char name[128];      // in the checkpoint
};

/* All of them in a fixed order: embedding, layers from 0, final norm, head. */
uint32_t family_count_needs(const struct model_config *config);
void family_need_at(const struct model_config *config, uint32_t index, struct family_need *out);

/* By role and layer (layers below n_layers), or by the checkpoint's name; false: the model has no
 * such tensor. */
bool family_need_of(const struct model_config *config, enum tensor_role role, uint32_t layer,
                    struct family_need *out);
bool family_need_named(const struct model_config *config, struct str name, struct family_need *out);

/* A tensor that some checkpoints carry and the model does not read (rotary inv_freq of old files;
 * lm_head of a tied model). */
bool family_passes_over(const struct model_config *config, struct str name);

/* lm_head of a tied model: passed over when it is the embedding again. */
bool family_is_tied_head(const struct model_config *config, struct str name);

/* A tensor of a shard against the table: ERR_FORMAT names it and both shapes. gate_up counts its
 * padding, as struct tensor says. */
bool family_check_tensor(const struct model_config *config, const struct tensor *tensor,
                         struct err *err);

#endif
