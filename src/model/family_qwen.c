/* Qwen 2, 2.5 and 3, dense. Qwen2 has biases on q, k and v whatever its config.json says; Qwen3 has
 * a norm on each head of q and k instead, and biases by key. */
#include "model/family_internal.h"

static const char *const qwen2_model_types[] = { "qwen2", NULL };
static const char *const qwen3_model_types[] = { "qwen3", NULL };

const struct family family_qwen2 = {
    .name = "qwen2",
    .summary = "Qwen 2 and 2.5, dense",
    .model_types = qwen2_model_types,
    .qkv_bias = { .is_on = true },
    .window = WINDOW_LISTED,
    .window_default = 4096,
    .blocks = { { BLOCK_ATTENTION, TENSOR_ATTN_NORM }, { BLOCK_MLP, TENSOR_MLP_NORM } },
    .n_blocks = 2,
    .tensors = family_llama_tensors,
    .passed_over = family_llama_passed_over,
};

const struct family family_qwen3 = {
    .name = "qwen3",
    .summary = "Qwen 3, dense",
    .model_types = qwen3_model_types,
    .qkv_bias = { .key = "attention_bias" },
    .o_bias = { .key = "attention_bias" },
    .has_qk_norm = true,
    .head_dim_default = 128,
    .window = WINDOW_LISTED,
    .window_default = 4096,
    .blocks = { { BLOCK_ATTENTION, TENSOR_ATTN_NORM }, { BLOCK_MLP, TENSOR_MLP_NORM } },
    .n_blocks = 2,
    .tensors = family_llama_tensors,
    .passed_over = family_llama_passed_over,
};
