/* How config.json becomes struct model_config, and what is refused on the way.
 *
 * transformers fills absent keys from defaults of each class; here a default is used only where
 * released files really leave the key out, and a dimension that is missing is an error. Refusals
 * come in three kinds: an unknown model_type (model/family), a key that means mathematics no block
 * here does (`refused_keys`), and a value that does (an activation, a kind of layer, a rotation).
 * All are found before a weight is looked at, because none of them would show as anything but worse
 * text. */
#include "model/config.h"

#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "kernel/kernel.h"
#include "model/config_internal.h"
#include "model/family.h"

/* ---- small readers ---- */

bool config_u32(const struct json *object, const char *key, uint32_t low, uint32_t high,
                uint32_t *out, struct err *err)
{
    uint32_t value;
    if (!config_has(object, key))
        return err_set(err, ERR_FORMAT, "%s is missing", key);
    if (!json_read_u32(json_get(object, key), &value) || value < low || value > high)
        return err_set(err, ERR_FORMAT, "%s is not a whole number from %u to %u", key, low, high);
    *out = value;
    return true;
}

bool config_double(const struct json *object, const char *key, double fallback, double low,
                   double high, double *out, struct err *err)
{
    double value = fallback;
    if (config_has(object, key) &&
        (!json_read_double(json_get(object, key), &value) || !(value >= low && value <= high)))
        return err_set(err, ERR_FORMAT, "%s is not a number from %g to %g", key, low, high);
    *out = value;
    return true;
}

bool config_flag(const struct json *object, const char *key, bool fallback, bool *out,
                 struct err *err)
{
    bool value = fallback;
    if (config_has(object, key) && !json_read_bool(json_get(object, key), &value))
        return err_set(err, ERR_FORMAT, "%s is not true or false", key);
    *out = value;
    return true;
}

/* ---- what is refused by key ---- */

enum refusal {
    REFUSE_ANY,       // whatever it holds, unless null or false
    REFUSE_NOT_ZERO,  // a number other than 0
    REFUSE_NOT_ONE,   // a number other than 1
    REFUSE_ABOVE_ONE, // a number above 1
};

static const struct {
    const char *key;
    enum refusal refusal;
    const char *reason;
} refused_keys[] = {
    { "quantization_config", REFUSE_ANY, "weights in this packed form are not read" },
    { "compression_config", REFUSE_ANY, "weights in this packed form are not read" },
    { "text_config", REFUSE_ANY, "models that wrap a text model are not read" },
    { "llm_config", REFUSE_ANY, "models that wrap a text model are not read" },
    { "vision_config", REFUSE_ANY, "models that take images are not read" },
    { "audio_config", REFUSE_ANY, "models that take sound are not read" },
    { "num_local_experts", REFUSE_ABOVE_ONE, "mixtures of experts are not computed" },
    { "n_routed_experts", REFUSE_ABOVE_ONE, "mixtures of experts are not computed" },
    { "num_experts", REFUSE_ABOVE_ONE, "mixtures of experts are not computed" },
    { "moe_num_experts", REFUSE_ABOVE_ONE, "mixtures of experts are not computed" },
    { "num_experts_per_tok", REFUSE_NOT_ZERO, "mixtures of experts are not computed" },
    { "attn_logit_softcapping", REFUSE_NOT_ZERO, "soft caps are not computed" },
    { "final_logit_softcapping", REFUSE_NOT_ZERO, "soft caps are not computed" },
    { "query_pre_attn_scalar", REFUSE_ANY, "another scale of queries is not computed" },
    { "clip_qkv", REFUSE_NOT_ZERO, "clamped queries, keys and values are not computed" },
    { "no_rope_layers", REFUSE_ANY, "layers without rotation are not computed" },
    { "partial_rotary_factor", REFUSE_NOT_ONE, "partial rotation is not computed" },
    { "embedding_multiplier", REFUSE_NOT_ONE, "multipliers are not computed" },
    { "residual_multiplier", REFUSE_NOT_ONE, "multipliers are not computed" },
    { "attention_multiplier", REFUSE_ANY, "multipliers are not computed" },
    { "logits_scaling", REFUSE_NOT_ONE, "multipliers are not computed" },
    { "logit_scale", REFUSE_NOT_ONE, "multipliers are not computed" },
    { "hidden_size_per_layer_input", REFUSE_NOT_ZERO, "embeddings of layers are not computed" },
    { "num_kv_shared_layers", REFUSE_NOT_ZERO,
      "keys and values shared by layers are not computed" },
    { "linear_attn_config", REFUSE_ANY, "linear attention is not computed" },
    { "ssm_cfg", REFUSE_ANY, "state-space layers are not computed" },
};

static bool is_refused(const struct json *value, enum refusal refusal)
{
    const enum json_kind type = json_kind(value);
    if (type == JSON_KIND_MISSING || type == JSON_KIND_NULL ||
        (type == JSON_KIND_BOOL && !json_bool(value, true)))
        return false;
    const double number = json_number(value, NAN);
    switch (refusal) {
    case REFUSE_ANY:
        return true;
    case REFUSE_NOT_ZERO:
        return number != 0;
    case REFUSE_NOT_ONE:
        return number != 1;
    case REFUSE_ABOVE_ONE:
        return !(number <= 1);
    }
    return true;
}

static bool check_refused_keys(const struct json *root, struct err *err)
{
    for (size_t i = 0; i < sizeof(refused_keys) / sizeof(refused_keys[0]); i++) {
        if (!is_refused(json_get(root, refused_keys[i].key), refused_keys[i].refusal))
            continue;
        const struct str method =
            json_text(json_get(json_get(root, refused_keys[i].key), "quant_method"));
        const int shown = method.size < 40 ? (int)method.size : 40;
        return err_set(err, ERR_UNSUPPORTED, "%s%s%.*s: %s", refused_keys[i].key,
                       method.size > 0 ? " " : "", shown, method.size > 0 ? method.data : "",
                       refused_keys[i].reason);
    }
    const struct json *act = json_get(root, "hidden_act");
    const struct str name = json_text(act);
    if (config_has(root, "hidden_act") && !str_is(name, "silu") && !str_is(name, "swish")) {
        return err_set(err, ERR_UNSUPPORTED, "hidden_act \"%.*s\": the MLP computes silu alone",
                       name.size < 40 ? (int)name.size : 40, name.data != NULL ? name.data : "");
    }
    return true;
}

/* ---- dimensions and switches ---- */

static bool read_heads(struct model_config *config, const struct json *root, struct err *err)
{
    if (!config_u32(root, "num_attention_heads", 1, 4096, &config->n_heads, err))
        return false;
    config->n_kv_heads = config->n_heads;
    if (config_has(root, "num_key_value_heads") &&
        !config_u32(root, "num_key_value_heads", 1, config->n_heads, &config->n_kv_heads, err))
        return false;
    if (config->n_heads % config->n_kv_heads != 0) {
        return err_set(err, ERR_FORMAT,
                       "num_attention_heads %u is no multiple of "
                       "num_key_value_heads %u",
                       config->n_heads, config->n_kv_heads);
    }
    config->head_dim = config->family->head_dim_default != 0 ? config->family->head_dim_default
                                                             : config->hidden / config->n_heads;
    if (config_has(root, "head_dim") &&
        !config_u32(root, "head_dim", 1, 1 << 16, &config->head_dim, err))
        return false;
    if (config->head_dim < 2 || config->head_dim % 2 != 0 ||
        config->head_dim > ATTEND_HEAD_DIM_CAP) {
        return err_set(err, ERR_UNSUPPORTED, "head_dim %u: attention computes even ones up to %u",
                       config->head_dim, ATTEND_HEAD_DIM_CAP);
    }
    return true;
}

static bool read_switch(const struct family_switch *from, const struct json *root, bool *out,
                        struct err *err)
{
    *out = from->is_on;
    return from->key == NULL || config_flag(root, from->key, false, out, err);
}

static bool read_dimensions(struct model_config *config, const struct json *root, struct err *err)
{
    const struct family *family = config->family;
    double epsilon;
    if (!config_u32(root, "hidden_size", 1, 1 << 20, &config->hidden, err) ||
        !config_u32(root, "intermediate_size", 1, 1 << 22, &config->intermediate, err) ||
        !config_u32(root, "num_hidden_layers", 1, MODEL_CONFIG_LAYERS_CAP, &config->n_layers,
                    err) ||
        !config_u32(root, "vocab_size", 1, 1 << 24, &config->vocab_size, err) ||
        !config_u32(root, "max_position_embeddings", 1, MODEL_CONFIG_POSITIONS_CAP,
                    &config->max_positions, err) ||
        !config_double(root, "rms_norm_eps", 1e-6, 0, 1, &epsilon, err) ||
        !config_flag(root, "tie_word_embeddings", false, &config->is_tied, err) ||
        !read_switch(&family->qkv_bias, root, &config->has_qkv_bias, err) ||
        !read_switch(&family->o_bias, root, &config->has_o_bias, err) ||
        !read_switch(&family->mlp_bias, root, &config->has_mlp_bias, err))
        return false;
    config->norm_eps = (float)epsilon;
    config->has_qk_norm = family->has_qk_norm;
    bool says_qk_norm;
    if (!config_flag(root, "use_qk_norm", config->has_qk_norm, &says_qk_norm, err))
        return false;
    if (says_qk_norm != config->has_qk_norm) {
        return err_set(err, ERR_UNSUPPORTED, "use_qk_norm: family %s has %s norms of q and k",
                       family->name, config->has_qk_norm ? "always" : "no");
    }
    return read_heads(config, root, err);
}

/* ---- windows ---- */

/* Layers as layer_types lists them. */
static bool read_layer_types(const struct model_config *config, const struct json *types,
                             uint8_t *kinds, struct err *err)
{
    if (json_kind(types) != JSON_KIND_ARRAY || json_size(types) != config->n_layers)
        return err_set(err, ERR_FORMAT, "layer_types is not a list of %u names", config->n_layers);
    for (uint32_t layer = 0; layer < config->n_layers; layer++) {
        const struct str name = json_text(json_at(types, layer));
        if (str_is(name, "full_attention")) {
            kinds[layer] = LAYER_FULL;
        } else if (str_is(name, "sliding_attention")) {
            kinds[layer] = LAYER_SLIDING;
        } else {
            return err_set(err, ERR_UNSUPPORTED, "layer_types: a layer of type \"%.*s\"",
                           name.size < 40 ? (int)name.size : 40,
                           name.data != NULL ? name.data : "");
        }
    }
    return true;
}

/* The window of sliding layers, 0 when there are none by the family's rule. */
static bool read_window(const struct model_config *config, const struct json *root,
                        uint32_t *window, struct err *err)
{
    const struct family *family = config->family;
    bool is_used = true;
    if (!config_flag(root, "use_sliding_window", family->window != WINDOW_LISTED, &is_used, err))
        return false;
    const enum json_kind type = json_kind(json_get(root, "sliding_window"));
    *window = type == JSON_KIND_MISSING ? family->window_default : 0;
    if (config_has(root, "sliding_window") &&
        !config_u32(root, "sliding_window", 1, 1u << 30, window, err))
        return false;
    if (!is_used)
        *window = 0;
    if (*window != 0 && family->window == WINDOW_NONE && *window < config->max_positions)
        return err_set(err, ERR_UNSUPPORTED, "sliding_window: family %s has none", family->name);
    return true;
}

static bool read_layer_kinds(struct model_config *config, const struct json *root, struct err *err)
{
    const enum family_window rule = config->family->window;
    uint8_t *kinds = arena_array(&config->arena, config->n_layers, sizeof(*kinds));
    uint32_t window, first_sliding = 28; // the class's default of max_window_layers
    if (!read_window(config, root, &window, err))
        return false;
    if (config_has(root, "max_window_layers") &&
        !config_u32(root, "max_window_layers", 0, 1u << 30, &first_sliding, err))
        return false;
    for (uint32_t layer = 0; layer < config->n_layers; layer++) {
        const bool slides = window != 0 && (rule == WINDOW_EACH ||
                                            (rule == WINDOW_LISTED && layer >= first_sliding));
        kinds[layer] = slides ? LAYER_SLIDING : LAYER_FULL;
    }
    config->layer_kinds = kinds;
    config->window = window;
    if (!config_has(root, "layer_types"))
        return true;
    uint8_t *listed = arena_array(&config->arena, config->n_layers, sizeof(*listed));
    if (!read_layer_types(config, json_get(root, "layer_types"), listed, err))
        return false;
    for (uint32_t layer = 0; layer < config->n_layers; layer++) {
        const bool is_free = rule == WINDOW_LISTED && window != 0;
        if (!is_free && listed[layer] != kinds[layer]) {
            return err_set(err, ERR_UNSUPPORTED,
                           "layer_types: layer %u is %s there, and %s by the other keys", layer,
                           listed[layer] == LAYER_SLIDING ? "sliding" : "full",
                           kinds[layer] == LAYER_SLIDING ? "sliding" : "full");
        }
    }
    config->layer_kinds = listed;
    return true;
}

/* ---- the whole ---- */

static bool read_all(struct model_config *config, const struct json *root, struct err *err)
{
    if (json_kind(root) != JSON_KIND_OBJECT)
        return err_set(err, ERR_FORMAT, "not an object");
    const struct str model_type = json_text(json_get(root, "model_type"));
    if (model_type.size == 0)
        return err_set(err, ERR_FORMAT, "model_type is missing");
    config->family = family_find(model_type, err);
    if (config->family == NULL)
        return false;
    config->model_type = arena_strdup(&config->arena, model_type);
    return check_refused_keys(root, err) && read_dimensions(config, root, err) &&
           read_layer_kinds(config, root, err) && config_read_rope(config, root, err);
}

bool model_config_parse(struct model_config *config, struct str text, struct err *err)
{
    *config = (struct model_config){ 0 };
    struct json *root = json_parse(text, err);
    bool ok = root != NULL;
    if (ok) {
        /* Every array in it is bounded by the ceilings of layers and head_dim. */
        arena_init(&config->arena, (size_t)1 << 20);
        ok = read_all(config, root, err);
    }
    json_free(root);
    if (ok)
        return true;
    model_config_release(config);
    return err_wrap(err, "config.json");
}

bool model_config_read(struct model_config *config, const char *directory, struct err *err)
{
    *config = (struct model_config){ 0 };
    struct buf text;
    buf_init(&text, MODEL_CONFIG_BYTES_CAP);
    char *path = path_join(directory, "config.json");
    const bool ok =
        file_read(path, &text, err) &&
        (model_config_parse(config, buf_view(&text), err) || err_wrap(err, "%s", directory));
    free(path);
    buf_release(&text);
    return ok;
}

void model_config_release(struct model_config *config)
{
    arena_release(&config->arena);
    *config = (struct model_config){ 0 };
}

bool model_config_rope_depends_on_context(const struct model_config *config)
{
    for (uint32_t kind = 0; kind < LAYER_KIND_COUNT; kind++) {
        if (config->rope[kind].type == ROPE_DYNAMIC || config->rope[kind].type == ROPE_LONGROPE)
            return true;
    }
    return false;
}
