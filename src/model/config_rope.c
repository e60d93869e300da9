/* The rotation's settings, wherever a config.json keeps them.
 *
 * transformers up to 4: rope_theta and rope_scaling at the top. transformers 5: rope_parameters,
 * one object for all layers or one for each kind. theta has moved once already, and a default in
 * its place gives fluent garbage, so a family states a default only if it was released without the
 * key. rope_scaling beside rope_parameters is what a user adds for longer contexts, as model cards
 * tell: it wins, as in transformers, and theta stays where it was said.
 * original_max_position_embeddings at the top beats the one inside, as in transformers. */
#include "model/config_internal.h"

#include "base/memory.h"
#include "model/family.h"

static const struct {
    const char *name;
    enum rope_type type;
} rope_names[] = {
    { "default", ROPE_DEFAULT }, { "linear", ROPE_LINEAR },     { "dynamic", ROPE_DYNAMIC },
    { "llama3", ROPE_LLAMA3 },   { "yarn", ROPE_YARN },         { "longrope", ROPE_LONGROPE },
    { "su", ROPE_LONGROPE },     { "divisors", ROPE_DIVISORS },
};

/* Keys inside the object that change the rotation in ways not computed here. */
static const char *const refused_inside[] = {
    "alpha",
    "llama_4_scaling_beta",
    "short_mscale",
    "long_mscale",
};

static bool read_type(const struct json *settings, enum rope_type *out, struct err *err)
{
    *out = ROPE_DEFAULT;
    const char *key = config_has(settings, "rope_type") ? "rope_type" : "type";
    if (!config_has(settings, key))
        return true;
    const struct str name = json_text(json_get(settings, key));
    for (size_t i = 0; i < sizeof(rope_names) / sizeof(rope_names[0]); i++) {
        if (str_is(name, rope_names[i].name)) {
            *out = rope_names[i].type;
            return true;
        }
    }
    return err_set(err, ERR_UNSUPPORTED, "%s \"%.*s\" of the rotation is not computed", key,
                   name.size < 40 ? (int)name.size : 40, name.data != NULL ? name.data : "");
}

static bool check_inside(const struct json *settings, struct err *err)
{
    for (size_t i = 0; i < sizeof(refused_inside) / sizeof(refused_inside[0]); i++) {
        if (config_has(settings, refused_inside[i])) {
            return err_set(err, ERR_UNSUPPORTED, "%s of the rotation is not computed",
                           refused_inside[i]);
        }
    }
    double part;
    if (!config_double(settings, "partial_rotary_factor", 1, 0, 1, &part, err))
        return false;
    return part == 1 || err_set(err, ERR_UNSUPPORTED, "partial rotation is not computed");
}

static bool read_divisors(struct model_config *config, const struct json *settings, const char *key,
                          const double **out, struct err *err)
{
    const struct json *list = json_get(settings, key);
    const uint32_t n_pairs = config->head_dim / 2;
    if (json_kind(list) != JSON_KIND_ARRAY || json_size(list) != n_pairs) {
        return err_set(err, ERR_FORMAT, "%s of the rotation is not a list of %u numbers", key,
                       n_pairs);
    }
    double *divisors = arena_array(&config->arena, n_pairs, sizeof(*divisors));
    for (uint32_t i = 0; i < n_pairs; i++) {
        if (!json_read_double(json_at(list, i), &divisors[i]) || !(divisors[i] > 0))
            return err_set(err, ERR_FORMAT, "%s of the rotation: number %u is not above 0", key, i);
    }
    *out = divisors;
    return true;
}

static bool read_factor(const struct model_config *config, const struct json *settings,
                        struct rope_config *rope, struct err *err)
{
    if (!config_double(settings, "factor", 0, 1e-6, 1e6, &rope->factor, err))
        return false;
    if (rope->factor == 0 && rope->type == ROPE_YARN)
        rope->factor = (double)config->max_positions / rope->original_positions;
    const bool is_needed =
        rope->type == ROPE_LINEAR || rope->type == ROPE_DYNAMIC || rope->type == ROPE_LLAMA3;
    if (rope->factor == 0 && is_needed)
        return err_set(err, ERR_FORMAT, "factor of the rotation is missing");
    return true;
}

static bool read_theta(const struct model_config *config, const struct json *root,
                       const struct json *settings, double *out, struct err *err)
{
    const struct json *parameters = json_get(root, "rope_parameters");
    const struct json *from = config_has(settings, "rope_theta") ? settings
                              : config_has(root, "rope_theta")   ? root
                                                                 : parameters;
    if (!config_double(from, "rope_theta", config->family->rope_theta_default, 1e-3, 1e15, out,
                       err))
        return false;
    return *out != 0 || err_set(err, ERR_FORMAT, "rope_theta is missing");
}

static bool read_settings(struct model_config *config, const struct json *root,
                          const struct json *settings, struct rope_config *rope, struct err *err)
{
    rope->original_positions = config->max_positions;
    const char *original = "original_max_position_embeddings";
    const struct json *says_original = config_has(root, original) ? root : settings;
    if (config_has(says_original, original) &&
        !config_u32(says_original, original, 1, MODEL_CONFIG_POSITIONS_CAP,
                    &rope->original_positions, err))
        return false;
    if (!read_type(settings, &rope->type, err) || !check_inside(settings, err) ||
        !read_theta(config, root, settings, &rope->theta, err) ||
        !read_factor(config, settings, rope, err) ||
        !config_double(settings, "low_freq_factor", 0, 1e-6, 1e6, &rope->low_freq_factor, err) ||
        !config_double(settings, "high_freq_factor", 0, 1e-6, 1e6, &rope->high_freq_factor, err) ||
        !config_double(settings, "beta_fast", 32, 1e-6, 1e6, &rope->beta_fast, err) ||
        !config_double(settings, "beta_slow", 1, 1e-6, 1e6, &rope->beta_slow, err) ||
        !config_flag(settings, "truncate", true, &rope->truncate, err) ||
        !config_double(settings, "mscale", 0, 0, 1e3, &rope->mscale, err) ||
        !config_double(settings, "mscale_all_dim", 0, 0, 1e3, &rope->mscale_all_dim, err) ||
        !config_double(settings, "attention_factor", 0, 0, 1e3, &rope->attention_factor, err))
        return false;
    if (rope->type == ROPE_LLAMA3 && (rope->low_freq_factor == 0 || rope->high_freq_factor == 0))
        return err_set(err, ERR_FORMAT, "low_freq_factor or high_freq_factor is missing");
    if (rope->type == ROPE_LLAMA3 && !(rope->high_freq_factor > rope->low_freq_factor))
        return err_set(err, ERR_FORMAT, "high_freq_factor is not above low_freq_factor");
    if (rope->type == ROPE_LONGROPE) {
        return read_divisors(config, settings, "short_factor", &rope->short_divisors, err) &&
               read_divisors(config, settings, "long_factor", &rope->long_divisors, err);
    }
    return rope->type != ROPE_DIVISORS ||
           read_divisors(config, settings, "divisors", &rope->divisors, err);
}

bool config_read_rope(struct model_config *config, const struct json *root, struct err *err)
{
    static const char *const kind_names[LAYER_KIND_COUNT] = {
        [LAYER_FULL] = "full_attention",
        [LAYER_SLIDING] = "sliding_attention",
    };
    const bool is_old = json_size(json_get(root, "rope_scaling")) > 0;
    const char *key =
        is_old || !config_has(root, "rope_parameters") ? "rope_scaling" : "rope_parameters";
    const struct json *settings = json_get(root, key);
    if (config_has(root, key) && json_kind(settings) != JSON_KIND_OBJECT)
        return err_set(err, ERR_FORMAT, "%s is not an object", key);
    bool by_kind = false;
    for (uint32_t kind = 0; kind < LAYER_KIND_COUNT; kind++)
        by_kind = by_kind || json_kind(json_get(settings, kind_names[kind])) == JSON_KIND_OBJECT;
    for (uint32_t kind = 0; kind < LAYER_KIND_COUNT; kind++) {
        const struct json *own = by_kind ? json_get(settings, kind_names[kind]) : settings;
        bool is_used = false;
        for (uint32_t layer = 0; layer < config->n_layers; layer++)
            is_used = is_used || config->layer_kinds[layer] == kind;
        if (is_used && by_kind && json_kind(own) != JSON_KIND_OBJECT)
            return err_set(err, ERR_FORMAT, "%s has nothing for %s", key, kind_names[kind]);
        if (is_used && !read_settings(config, root, own, &config->rope[kind], err))
            return err_wrap(err, "%s", key);
    }
    return true;
}
