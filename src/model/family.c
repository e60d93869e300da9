/* The register of families, and the reading of their tables.
 *
 * A model_type is matched whole: "qwen3" inside "qwen3_5_moe" is another model, and taking one for
 * the other gives fluent nonsense. What is known and not computed has its reason in `unsupported`,
 * so that the refusal teaches something; the table decides nothing else. */
#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/memory.h"
#include "model/family_internal.h"

const struct family *const families[] = {
    &family_llama, &family_mistral, &family_qwen2, &family_qwen3, NULL,
};

#define EXPERTS "it is a mixture of experts"
#define WRAPPER "it wraps a text model together with image or sound towers"
#define RECURRENT "it has recurrent layers"
#define POST_NORMS "its layers have norms behind their blocks"
#define LATENT EXPERTS " with latent attention"
#define LAYER_NORM "its norms are LayerNorm, not RMSNorm"

static const struct {
    const char *model_type, *reason;
} unsupported[] = {
    { "apertus", "its MLP uses xIELU" },
    { "arcee", "its MLP has no gate" },
    { "bamba", RECURRENT },
    { "cohere", LAYER_NORM },
    { "cohere2", LAYER_NORM },
    { "dbrx", EXPERTS },
    { "deepseek_v2", LATENT },
    { "deepseek_v3", LATENT },
    { "deepseek_v32", LATENT },
    { "deepseek_v4", LATENT },
    { "dots1", EXPERTS },
    { "ernie4_5", "its rotation is interleaved" },
    { "ernie4_5_moe", EXPERTS },
    { "exaone4", POST_NORMS },
    { "exaone_moe", EXPERTS },
    { "falcon", LAYER_NORM },
    { "falcon_h1", RECURRENT },
    { "falcon_mamba", RECURRENT },
    { "gemma", "its embedding is scaled and its norms are 1 + w" },
    { "gemma2", "it has soft caps and norms behind its blocks" },
    { "gemma3", WRAPPER },
    { "gemma3_text", "its layers have norms behind their blocks" },
    { "gemma3n", WRAPPER },
    { "gemma3n_text", "its layers have four streams" },
    { "gemma4", WRAPPER },
    { "gemma4_text", "its layers have norms behind their blocks" },
    { "glm", "its rotation is interleaved" },
    { "glm4", "its rotation is interleaved" },
    { "glm4_moe", EXPERTS },
    { "glm4_moe_lite", LATENT },
    { "glm_moe_dsa", LATENT },
    { "gpt2", LAYER_NORM },
    { "gpt_neox", LAYER_NORM },
    { "gpt_oss", EXPERTS " with attention sinks" },
    { "granite", "its embedding, residuals and logits have multipliers" },
    { "granitemoe", EXPERTS },
    { "granitemoehybrid", RECURRENT },
    { "granitemoeshared", EXPERTS },
    { "hunyuan_v1_dense", "its q/k norms come behind the rotation" },
    { "hunyuan_v1_moe", EXPERTS },
    { "internlm3", "its biases have keys of their own" },
    { "jamba", RECURRENT },
    { "kimi_k25", WRAPPER },
    { "kimi_linear", RECURRENT },
    { "lfm2", "it has convolution layers" },
    { "lfm2_moe", EXPERTS " with convolution layers" },
    { "llama4", WRAPPER },
    { "llama4_text", EXPERTS },
    { "longcat_flash", LATENT },
    { "mamba", RECURRENT },
    { "mamba2", RECURRENT },
    { "minimax", RECURRENT },
    { "minimax_m2", EXPERTS },
    { "ministral", "its layers mix full and sliding attention" },
    { "ministral3", "its queries are scaled by position" },
    { "mistral3", WRAPPER },
    { "mixtral", EXPERTS },
    { "nemotron", LAYER_NORM },
    { "nemotron_h", RECURRENT },
    { "olmo", LAYER_NORM },
    { "olmo2", POST_NORMS },
    { "olmo3", POST_NORMS },
    { "olmoe", EXPERTS },
    { "phi", LAYER_NORM },
    { "phi3", "its projections are stored fused" },
    { "phimoe", EXPERTS },
    { "qwen2_moe", EXPERTS },
    { "qwen2_vl", WRAPPER },
    { "qwen3_5", WRAPPER },
    { "qwen3_5_moe", WRAPPER },
    { "qwen3_5_moe_text", RECURRENT },
    { "qwen3_5_text", RECURRENT },
    { "qwen3_moe", EXPERTS },
    { "qwen3_next", RECURRENT },
    { "seed_oss", "its biases have keys of their own" },
    { "smollm3", "some of its layers have no rotation" },
    { "stablelm", LAYER_NORM },
    { "starcoder2", LAYER_NORM },
};

static bool refuse(struct str model_type, struct err *err)
{
    struct buf list;
    buf_init(&list, 256);
    for (size_t f = 0; families[f] != NULL; f++) {
        for (size_t t = 0; families[f]->model_types[t] != NULL; t++)
            buf_printf(&list, "%s%s", list.size == 0 ? "" : ", ", families[f]->model_types[t]);
    }
    const char *reason = "this program does not know it";
    for (size_t i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++) {
        if (str_is(model_type, unsupported[i].model_type))
            reason = unsupported[i].reason;
    }
    const int shown = model_type.size < 80 ? (int)model_type.size : 80;
    err_set(err, ERR_UNSUPPORTED, "model_type \"%.*s\" is not supported: %s (supported: %s)", shown,
            model_type.data, reason, list.data);
    buf_release(&list);
    return false;
}

const struct family *family_find(struct str model_type, struct err *err)
{
    for (size_t f = 0; families[f] != NULL; f++) {
        for (size_t t = 0; families[f]->model_types[t] != NULL; t++) {
            if (str_is(model_type, families[f]->model_types[t]))
                return families[f];
        }
    }
    refuse(model_type, err);
    return NULL;
}

/* ---- what a checkpoint of a configuration holds ---- */

static uint32_t dim_size(const struct model_config *config, enum family_dim dim)
{
    switch (dim) {
    case DIM_NONE:
        return 1;
    case DIM_HIDDEN:
        return config->hidden;
    case DIM_INTERMEDIATE:
        return config->intermediate;
    case DIM_Q:
        return config->n_heads * config->head_dim;
    case DIM_KV:
        return config->n_kv_heads * config->head_dim;
    case DIM_HEAD:
        return config->head_dim;
    case DIM_VOCAB:
        return config->vocab_size;
    }
    must(false && "a dimension without a size");
    return 0;
}

static bool is_present(const struct model_config *config, const struct family_tensor *tensor)
{
    switch (tensor->when) {
    case WHEN_ALWAYS:
        return true;
    case WHEN_QKV_BIAS:
        return config->has_qkv_bias;
    case WHEN_O_BIAS:
        return config->has_o_bias;
    case WHEN_MLP_BIAS:
        return config->has_mlp_bias;
    case WHEN_QK_NORM:
        return config->has_qk_norm;
    case WHEN_UNTIED:
        return !config->is_tied;
    }
    must(false && "a condition without an answer");
    return false;
}

static bool is_per_layer(const struct family_tensor *tensor)
{
    return tensor_role_info(tensor->role)->is_per_layer;
}

/* Writes a name of the table for a layer. */
static void write_name(const char *pattern, uint32_t layer, char *out, size_t out_bytes)
{
    const char *mark = strstr(pattern, "%u");
    if (mark == NULL) {
        snprintf(out, out_bytes, "%s", pattern);
    } else {
        snprintf(out, out_bytes, "%.*s%u%s", (int)(mark - pattern), pattern, layer, mark + 2);
    }
}

/* True when `name` is the pattern with a layer's number (as printed, no leading zeros) in it. */
static bool match_name(const char *pattern, struct str name, uint32_t n_layers, uint32_t *layer)
{
    const char *mark = strstr(pattern, "%u");
    if (mark == NULL) {
        *layer = TENSOR_NO_LAYER;
        return str_is(name, pattern);
    }
    const struct str before = { pattern, (size_t)(mark - pattern) };
    const struct str after = str_from(mark + 2);
    uint64_t number;
    if (name.size <= before.size + after.size || !str_starts(name, before) ||
        !str_ends(name, after))
        return false;
    const struct str digits = str_slice(name, before.size, name.size - after.size);
    if (!str_to_u64(digits, &number) || number >= n_layers ||
        (digits.size > 1 && digits.data[0] == '0'))
        return false;
    *layer = (uint32_t)number;
    return true;
}

static void fill_need(const struct model_config *config, const struct family_tensor *tensor,
                      uint32_t layer, struct family_need *out)
{
    *out = (struct family_need){
        .role = tensor->role,
        .layer = layer,
        .rows = dim_size(config, tensor->rows),
        .cols = dim_size(config, tensor->cols),
    };
    write_name(tensor->name, layer, out->name, sizeof(out->name));
}

/* Rows of the table that the configuration has, of layers or of the whole model. */
static uint32_t count_rows(const struct model_config *config, bool per_layer)
{
    uint32_t n_rows = 0;
    for (const struct family_tensor *t = config->family->tensors; t->name != NULL; t++)
        n_rows += is_present(config, t) && is_per_layer(t) == per_layer;
    return n_rows;
}

uint32_t family_count_needs(const struct model_config *config)
{
    return count_rows(config, false) + count_rows(config, true) * config->n_layers;
}

void family_need_at(const struct model_config *config, uint32_t index, struct family_need *out)
{
    const uint32_t n_of_layer = count_rows(config, true);
    uint32_t row = 0;   // of the layer's rows
    uint32_t whole = 0; // rows of the whole model so far
    uint32_t layers_from = UINT32_MAX;
    for (const struct family_tensor *t = config->family->tensors; t->name != NULL; t++) {
        if (!is_present(config, t))
            continue;
        if (is_per_layer(t)) {
            layers_from = layers_from == UINT32_MAX ? whole : layers_from;
            if (index >= layers_from && index < layers_from + n_of_layer * config->n_layers &&
                (index - layers_from) % n_of_layer == row) {
                fill_need(config, t, (index - layers_from) / n_of_layer, out);
                return;
            }
            row++;
            continue;
        }
        const uint32_t at =
            layers_from == UINT32_MAX ? whole : whole + n_of_layer * config->n_layers;
        if (index == at) {
            fill_need(config, t, TENSOR_NO_LAYER, out);
            return;
        }
        whole++;
    }
    must(false && "an index past the last need");
}

bool family_need_of(const struct model_config *config, enum tensor_role role, uint32_t layer,
                    struct family_need *out)
{
    for (const struct family_tensor *t = config->family->tensors; t->name != NULL; t++) {
        if (t->role == role && is_present(config, t) &&
            (is_per_layer(t) ? layer < config->n_layers : layer == TENSOR_NO_LAYER)) {
            fill_need(config, t, layer, out);
            return true;
        }
    }
    return false;
}

bool family_need_named(const struct model_config *config, struct str name, struct family_need *out)
{
    for (const struct family_tensor *t = config->family->tensors; t->name != NULL; t++) {
        uint32_t layer;
        if (is_present(config, t) && match_name(t->name, name, config->n_layers, &layer)) {
            fill_need(config, t, layer, out);
            return true;
        }
    }
    return false;
}

bool family_passes_over(const struct model_config *config, struct str name)
{
    uint32_t layer;
    for (const char *const *pattern = config->family->passed_over; *pattern != NULL; pattern++) {
        if (match_name(*pattern, name, config->n_layers, &layer))
            return true;
    }
    return family_is_tied_head(config, name);
}

bool family_is_tied_head(const struct model_config *config, struct str name)
{
    for (const struct family_tensor *t = config->family->tensors; t->name != NULL; t++) {
        if (t->when == WHEN_UNTIED && config->is_tied && str_is(name, t->name))
            return true;
    }
    return false;
}

bool family_check_tensor(const struct model_config *config, const struct tensor *tensor,
                         struct err *err)
{
    char what[64];
    tensor_describe(tensor->role, tensor->layer, what, sizeof(what));
    const bool is_fused = tensor->role == TENSOR_GATE_UP;
    struct family_need need;
    if (!family_need_of(config, is_fused ? TENSOR_GATE : tensor->role, tensor->layer, &need))
        return err_set(err, ERR_FORMAT, "the shard has a tensor %s, and the model has none", what);
    if (is_fused) {
        const uint32_t panels = (need.rows + QUANT_PANEL_ROWS - 1) / QUANT_PANEL_ROWS;
        need.rows = 2 * panels * QUANT_PANEL_ROWS;
    }
    if (tensor->rows != need.rows || tensor->cols != need.cols) {
        return err_set(err, ERR_FORMAT, "tensor %s is %u x %u; config.json makes it %u x %u", what,
                       tensor->rows, tensor->cols, need.rows, need.cols);
    }
    return true;
}
