/* Mistral: Llama with a sliding window in every layer of its first release (7B v0.1); later ones,
 * Nemo and Small write null. */
#include "model/family_internal.h"

static const char *const mistral_model_types[] = { "mistral", NULL };

const struct family family_mistral = {
    .name = "mistral",
    .summary = "Mistral 7B, Nemo, Small",
    .model_types = mistral_model_types,
    .window = WINDOW_EACH,
    .window_default = 4096,
    .blocks = { { BLOCK_ATTENTION, TENSOR_ATTN_NORM }, { BLOCK_MLP, TENSOR_MLP_NORM } },
    .n_blocks = 2,
    .tensors = family_llama_tensors,
    .passed_over = family_llama_passed_over,
};
