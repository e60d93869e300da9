/* Llama 1 to 3.3 and everything saved under its name (SmolLM2, R1 distillates, ...); and the tensor
 * table of all families whose layers are built and named like Llama's. */
#include "model/family_internal.h"

static const char *const llama_model_types[] = { "llama", NULL };

/* Files of early versions carry the rotation's frequencies as a tensor; they follow from theta. */
const char *const family_llama_passed_over[] = {
    "model.layers.%u.self_attn.rotary_emb.inv_freq",
    NULL,
};

const struct family_tensor family_llama_tensors[] = {
    { TENSOR_EMBEDDING, "model.embed_tokens.weight", DIM_VOCAB, DIM_HIDDEN, WHEN_ALWAYS },
    { TENSOR_ATTN_NORM, "model.layers.%u.input_layernorm.weight", DIM_NONE, DIM_HIDDEN,
      WHEN_ALWAYS },
    { TENSOR_Q, "model.layers.%u.self_attn.q_proj.weight", DIM_Q, DIM_HIDDEN, WHEN_ALWAYS },
    { TENSOR_K, "model.layers.%u.self_attn.k_proj.weight", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS },
    { TENSOR_V, "model.layers.%u.self_attn.v_proj.weight", DIM_KV, DIM_HIDDEN, WHEN_ALWAYS },
    { TENSOR_Q_BIAS, "model.layers.%u.self_attn.q_proj.bias", DIM_NONE, DIM_Q, WHEN_QKV_BIAS },
    { TENSOR_K_BIAS, "model.layers.%u.self_attn.k_proj.bias", DIM_NONE, DIM_KV, WHEN_QKV_BIAS },
    { TENSOR_V_BIAS, "model.layers.%u.self_attn.v_proj.bias", DIM_NONE, DIM_KV, WHEN_QKV_BIAS },
    { TENSOR_Q_NORM, "model.layers.%u.self_attn.q_norm.weight", DIM_NONE, DIM_HEAD, WHEN_QK_NORM },
    { TENSOR_K_NORM, "model.layers.%u.self_attn.k_norm.weight", DIM_NONE, DIM_HEAD, WHEN_QK_NORM },
    { TENSOR_O, "model.layers.%u.self_attn.o_proj.weight", DIM_HIDDEN, DIM_Q, WHEN_ALWAYS },
    { TENSOR_O_BIAS, "model.layers.%u.self_attn.o_proj.bias", DIM_NONE, DIM_HIDDEN, WHEN_O_BIAS },
    { TENSOR_MLP_NORM, "model.layers.%u.post_attention_layernorm.weight", DIM_NONE, DIM_HIDDEN,
      WHEN_ALWAYS },
    { TENSOR_GATE, "model.layers.%u.mlp.gate_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN,
      WHEN_ALWAYS },
    { TENSOR_UP, "model.layers.%u.mlp.up_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, WHEN_ALWAYS },
    { TENSOR_GATE_BIAS, "model.layers.%u.mlp.gate_proj.bias", DIM_NONE, DIM_INTERMEDIATE,
      WHEN_MLP_BIAS },
    { TENSOR_UP_BIAS, "model.layers.%u.mlp.up_proj.bias", DIM_NONE, DIM_INTERMEDIATE,
      WHEN_MLP_BIAS },
    { TENSOR_DOWN, "model.layers.%u.mlp.down_proj.weight", DIM_HIDDEN, DIM_INTERMEDIATE,
      WHEN_ALWAYS },
    { TENSOR_DOWN_BIAS, "model.layers.%u.mlp.down_proj.bias", DIM_NONE, DIM_HIDDEN, WHEN_MLP_BIAS },
    { TENSOR_FINAL_NORM, "model.norm.weight", DIM_NONE, DIM_HIDDEN, WHEN_ALWAYS },
    { TENSOR_HEAD, "lm_head.weight", DIM_VOCAB, DIM_HIDDEN, WHEN_UNTIED },
    { .name = NULL },
};

const struct family family_llama = {
    .name = "llama",
    .summary = "Llama 1 to 3.3, SmolLM2 and models saved as them",
    .model_types = llama_model_types,
    .qkv_bias = { .key = "attention_bias" },
    .o_bias = { .key = "attention_bias" },
    .mlp_bias = { .key = "mlp_bias" },
    .window = WINDOW_NONE,
    .rope_theta_default = 10000.0, // Llama 1 and 2 were released before the key
    .blocks = { { BLOCK_ATTENTION, TENSOR_ATTN_NORM }, { BLOCK_MLP, TENSOR_MLP_NORM } },
    .n_blocks = 2,
    .tensors = family_llama_tensors,
    .passed_over = family_llama_passed_over,
};
