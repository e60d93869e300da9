#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "model/config.h"
#include "model/family.h"

#define GOLDEN SHARED_DIR "/golden"

/* A complete llama config.json with `extra` members put in front (a first key wins nowhere: doubled
 * keys are refused, so extras name keys that are not there). */
static bool parse(struct model_config *config, const char *model_type, const char *extra,
                  struct err *err)
{
    char text[4096];
    snprintf(text, sizeof(text),
             "{%s \"model_type\": \"%s\", \"hidden_size\": 64, \"intermediate_size\": 96,"
             "\"num_hidden_layers\": 4, \"vocab_size\": 272, \"max_position_embeddings\": 256,"
             "\"num_attention_heads\": 4}",
             extra, model_type);
    return model_config_parse(config, str_from(text), err);
}

static void assert_refused(const char *model_type, const char *extra, enum err_code code,
                           const char *word)
{
    struct model_config config;
    struct err err = { 0 };
    if (parse(&config, model_type, extra, &err))
        fail_msg("%s with %s was taken", model_type, extra);
    assert_int_equal(err.code, code);
    if (strstr(err.text, word) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, word);
    assert_null(config.family);
}

static void take(struct model_config *config, const char *model_type, const char *extra)
{
    struct err err = { 0 };
    if (!parse(config, model_type, extra, &err))
        fail_msg("%s", err.text);
}

static void test_defaults(void **state)
{
    (void)state;
    struct model_config config;
    take(&config, "llama", "");
    assert_string_equal(config.family->name, "llama");
    assert_int_equal(config.n_kv_heads, 4);
    assert_int_equal(config.head_dim, 16);
    assert_true(config.norm_eps == 1e-6f);
    assert_false(config.is_tied || config.has_qkv_bias || config.has_o_bias || config.has_mlp_bias);
    assert_true(config.rope[LAYER_FULL].theta == 10000.0);
    assert_int_equal(config.rope[LAYER_FULL].type, ROPE_DEFAULT);
    assert_int_equal(model_config_window(&config, 3), UINT32_MAX);
    model_config_release(&config);
    model_config_release(&config);
    take(&config, "qwen2", "\"rope_theta\": 1e6,");
    assert_true(config.has_qkv_bias && !config.has_o_bias);
    assert_int_equal(config.window, 0);
    model_config_release(&config);
    take(&config, "qwen3", "\"rope_theta\": 1e6,");
    assert_true(config.has_qk_norm && !config.has_qkv_bias);
    assert_int_equal(config.head_dim, 128);
    model_config_release(&config);
    take(&config, "mistral", "\"rope_theta\": 1e6,");
    assert_int_equal(model_config_window(&config, 3), 4096);
    model_config_release(&config);
    take(&config, "mistral", "\"rope_theta\": 1e6, \"sliding_window\": null,");
    assert_int_equal(model_config_window(&config, 3), UINT32_MAX);
    model_config_release(&config);
}

static void test_windows(void **state)
{
    (void)state;
    struct model_config config;
    take(&config, "qwen2",
         "\"rope_theta\": 1e6, \"use_sliding_window\": true, \"sliding_window\": 16,"
         "\"max_window_layers\": 3,");
    assert_int_equal(model_config_window(&config, 2), UINT32_MAX);
    assert_int_equal(model_config_window(&config, 3), 16);
    model_config_release(&config);
    take(&config, "qwen2",
         "\"rope_theta\": 1e6, \"use_sliding_window\": true, \"sliding_window\": 16,"
         "\"max_window_layers\": 3, \"layer_types\": [\"sliding_attention\", \"full_attention\","
         "\"full_attention\", \"full_attention\"],");
    assert_int_equal(model_config_window(&config, 0), 16);
    assert_int_equal(model_config_window(&config, 3), UINT32_MAX);
    model_config_release(&config);
    assert_refused("llama", "\"sliding_window\": 16,", ERR_UNSUPPORTED, "sliding_window");
    assert_refused("qwen3",
                   "\"rope_theta\": 1e6, \"layer_types\": [\"full_attention\", \"full_attention\","
                   "\"full_attention\", \"sliding_attention\"],",
                   ERR_UNSUPPORTED, "layer 3");
    assert_refused("llama",
                   "\"layer_types\": [\"full_attention\", \"linear_attention\","
                   "\"full_attention\", \"full_attention\"],",
                   ERR_UNSUPPORTED, "linear_attention");
    assert_refused("llama", "\"layer_types\": [\"full_attention\"],", ERR_FORMAT, "layer_types");
}

static void test_rotation(void **state)
{
    (void)state;
    struct model_config config;
    take(&config, "llama",
         "\"rope_theta\": 5e5, \"rope_scaling\": {\"type\": \"yarn\", \"factor\": null,"
         "\"original_max_position_embeddings\": 32, \"mscale\": 1.5},");
    const struct rope_config *rope = &config.rope[LAYER_FULL];
    assert_int_equal(rope->type, ROPE_YARN);
    assert_true(rope->theta == 5e5 && rope->factor == 8 && rope->mscale == 1.5);
    assert_true(rope->beta_fast == 32 && rope->beta_slow == 1 && rope->truncate);
    assert_int_equal(rope->original_positions, 32);
    assert_false(model_config_rope_depends_on_context(&config));
    model_config_release(&config);
    /* The new generation wins over old keys beside it; the top beats the inside for the original.
     */
    take(&config, "llama",
         "\"rope_theta\": 1, \"original_max_position_embeddings\": 77, \"rope_parameters\": {"
         "\"rope_type\": \"dynamic\", \"rope_theta\": 9, \"factor\": 2,"
         "\"original_max_position_embeddings\": 5},");
    assert_true(config.rope[LAYER_FULL].theta == 9);
    assert_int_equal(config.rope[LAYER_FULL].original_positions, 77);
    assert_true(model_config_rope_depends_on_context(&config));
    model_config_release(&config);
    /* rope_scaling added by hand to a configuration of the new generation, beside its theta. */
    take(&config, "llama",
         "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4},"
         "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 9},");
    assert_int_equal(config.rope[LAYER_FULL].type, ROPE_YARN);
    assert_true(config.rope[LAYER_FULL].theta == 9 && config.rope[LAYER_FULL].factor == 4);
    model_config_release(&config);
    take(&config, "llama",
         "\"rope_scaling\": {}, \"rope_parameters\": {\"rope_type\": \"linear\","
         "\"rope_theta\": 9, \"factor\": 2},");
    assert_int_equal(config.rope[LAYER_FULL].type, ROPE_LINEAR);
    model_config_release(&config);
    take(&config, "llama",
         "\"rope_scaling\": {\"rope_type\": \"divisors\","
         "\"divisors\": [1, 1, 1, 1.5, 2, 4, 8, 8]},");
    assert_true(config.rope[LAYER_FULL].divisors[3] == 1.5);
    model_config_release(&config);
    /* One object for each kind of layer. */
    take(&config, "qwen3",
         "\"use_sliding_window\": true, \"sliding_window\": 16, \"max_window_layers\": 2,"
         "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 7},"
         "\"sliding_attention\": {\"rope_theta\": 8, \"rope_type\": \"linear\", \"factor\": 4}},");
    assert_true(config.rope[LAYER_FULL].theta == 7 && config.rope[LAYER_SLIDING].theta == 8);
    assert_int_equal(config.rope[LAYER_SLIDING].type, ROPE_LINEAR);
    model_config_release(&config);
}

static void test_refused_rotation(void **state)
{
    (void)state;
    assert_refused("mistral", "", ERR_FORMAT, "rope_theta"); // no default where files write it
    assert_refused("llama", "\"rope_scaling\": {\"type\": \"spiral\", \"factor\": 2},",
                   ERR_UNSUPPORTED, "spiral");
    assert_refused("llama", "\"rope_scaling\": {\"type\": \"linear\"},", ERR_FORMAT, "factor");
    assert_refused("llama",
                   "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8,"
                   "\"high_freq_factor\": 4},",
                   ERR_FORMAT, "low_freq_factor");
    assert_refused("llama", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": \"4\"},",
                   ERR_FORMAT, "factor");
    assert_refused("llama", "\"rope_scaling\": [1],", ERR_FORMAT, "rope_scaling");
    assert_refused("llama", "\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1]},",
                   ERR_FORMAT, "short_factor");
    assert_refused("llama",
                   "\"rope_scaling\": {\"type\": \"divisors\","
                   "\"divisors\": [1, 1, 1, 0, 2, 4, 8, 8]},",
                   ERR_FORMAT, "number 3");
    assert_refused("llama", "\"rope_scaling\": {\"type\": \"dynamic\", \"alpha\": 2},",
                   ERR_UNSUPPORTED, "alpha");
    assert_refused("llama", "\"rope_parameters\": {\"partial_rotary_factor\": 0.5},",
                   ERR_UNSUPPORTED, "partial");
}

static void test_refusals(void **state)
{
    (void)state;
    assert_refused("qwen3_5_moe_text", "", ERR_UNSUPPORTED, "recurrent");
    assert_refused("llamas", "", ERR_UNSUPPORTED, "does not know");
    assert_refused("", "", ERR_FORMAT, "model_type");
    assert_refused("llama", "\"quantization_config\": {\"quant_method\": \"gptq\"},",
                   ERR_UNSUPPORTED, "quantization_config gptq");
    assert_refused("llama", "\"num_local_experts\": 8,", ERR_UNSUPPORTED, "experts");
    assert_refused("llama", "\"final_logit_softcapping\": 30.0,", ERR_UNSUPPORTED, "softcapping");
    assert_refused("llama", "\"hidden_act\": \"gelu\",", ERR_UNSUPPORTED, "gelu");
    assert_refused("llama", "\"hidden_act\": 3,", ERR_UNSUPPORTED, "hidden_act");
    assert_refused("llama", "\"text_config\": {\"hidden_size\": 3},", ERR_UNSUPPORTED,
                   "text_config");
    assert_refused("llama", "\"use_qk_norm\": true,", ERR_UNSUPPORTED, "use_qk_norm");
    assert_refused("llama", "\"num_key_value_heads\": 3,", ERR_FORMAT, "multiple");
    assert_refused("llama", "\"num_key_value_heads\": 0,", ERR_FORMAT, "num_key_value_heads");
    assert_refused("llama", "\"head_dim\": 15,", ERR_UNSUPPORTED, "head_dim");
    assert_refused("llama", "\"head_dim\": 4096,", ERR_UNSUPPORTED, "head_dim");
    assert_refused("llama", "\"rms_norm_eps\": \"small\",", ERR_FORMAT, "rms_norm_eps");
    assert_refused("llama", "\"tie_word_embeddings\": 1,", ERR_FORMAT, "tie_word_embeddings");
    /* Neutral values of refused keys are taken, and ids that the vocabulary has not. */
    struct model_config config;
    take(&config, "llama", "\"eos_token_id\": [2, 272], \"bos_token_id\": -1,");
    model_config_release(&config);
    take(&config, "llama",
         "\"quantization_config\": null, \"num_local_experts\": 1, \"logits_scaling\": 1.0,"
         "\"final_logit_softcapping\": null, \"clip_qkv\": false, \"partial_rotary_factor\": 1.0,");
    model_config_release(&config);
}

static void test_missing_dimension(void **state)
{
    (void)state;
    struct model_config config;
    struct err err = { 0 };
    const struct str text = STR("{\"model_type\": \"llama\", \"hidden_size\": 64}");
    assert_false(model_config_parse(&config, text, &err));
    assert_int_equal(err.code, ERR_FORMAT);
    assert_non_null(strstr(err.text, "intermediate_size is missing"));
    assert_false(model_config_parse(&config, STR("[]"), &err));
    assert_int_equal(err.code, ERR_FORMAT);
    assert_false(model_config_parse(&config, STR("{"), &err));
    assert_int_equal(err.code, ERR_FORMAT);
}

/* ---- all golden folders ---- */

static const char *const supported[] = {
    "llama",
    "llama-rope-dynamic",
    "llama-rope-linear",
    "llama-rope-llama3",
    "llama-rope-longrope",
    "llama-rope-yarn",
    "llama-rope-yarn-attn",
    "llama-tied-bias",
    "mistral",
    "mistral-nemo",
    "qwen2",
    "qwen2-tied-window",
    "qwen3",
    "qwen3-yarn",
    NULL,
};

static bool is_supported(const char *name)
{
    for (size_t i = 0; supported[i] != NULL; i++) {
        if (strcmp(supported[i], name) == 0)
            return true;
    }
    return false;
}

static bool read_text(const char *folder, const char *file, struct buf *out)
{
    char path[512];
    snprintf(path, sizeof(path), GOLDEN "/%s/%s", folder, file);
    struct err err = { 0 };
    buf_init(out, 1 << 20);
    return file_read(path, out, &err);
}

static void assert_same_rope(const struct rope_config *a, const struct rope_config *b,
                             uint32_t n_pairs)
{
    struct rope_config x = *a, y = *b;
    x.short_divisors = x.long_divisors = x.divisors = NULL;
    y.short_divisors = y.long_divisors = y.divisors = NULL;
    assert_true(x.type == y.type && x.theta == y.theta && x.factor == y.factor &&
                x.original_positions == y.original_positions && x.beta_fast == y.beta_fast &&
                x.low_freq_factor == y.low_freq_factor &&
                x.high_freq_factor == y.high_freq_factor && x.beta_slow == y.beta_slow &&
                x.truncate == y.truncate && x.mscale == y.mscale &&
                x.mscale_all_dim == y.mscale_all_dim && x.attention_factor == y.attention_factor);
    if (a->type == ROPE_LONGROPE) {
        assert_memory_equal(a->short_divisors, b->short_divisors, n_pairs * sizeof(double));
        assert_memory_equal(a->long_divisors, b->long_divisors, n_pairs * sizeof(double));
    }
}

static void assert_same(const struct model_config *a, const struct model_config *b)
{
    assert_ptr_equal(a->family, b->family);
    assert_true(a->n_layers == b->n_layers && a->hidden == b->hidden &&
                a->intermediate == b->intermediate && a->n_heads == b->n_heads &&
                a->n_kv_heads == b->n_kv_heads && a->head_dim == b->head_dim &&
                a->vocab_size == b->vocab_size && a->max_positions == b->max_positions &&
                a->norm_eps == b->norm_eps && a->has_qkv_bias == b->has_qkv_bias &&
                a->has_o_bias == b->has_o_bias && a->has_mlp_bias == b->has_mlp_bias &&
                a->has_qk_norm == b->has_qk_norm && a->is_tied == b->is_tied &&
                a->window == b->window);
    assert_memory_equal(a->layer_kinds, b->layer_kinds, a->n_layers);
    assert_same_rope(&a->rope[LAYER_FULL], &b->rope[LAYER_FULL], a->head_dim / 2);
    assert_same_rope(&a->rope[LAYER_SLIDING], &b->rope[LAYER_SLIDING], a->head_dim / 2);
}

static void check_folder(const char *name, uint32_t *n_taken, uint32_t *n_refused)
{
    struct buf old, new;
    struct model_config config, config_new;
    struct err err = { 0 };
    const bool has_old = read_text(name, "config.json", &old);
    const bool has_new = read_text(name, "config.v5.json", &new);
    if (has_old && is_supported(name)) {
        assert_true(has_new);
        if (!model_config_parse(&config, buf_view(&old), &err) ||
            !model_config_parse(&config_new, buf_view(&new), &err))
            fail_msg("%s: %s", name, err.text);
        assert_same(&config, &config_new);
        model_config_release(&config);
        model_config_release(&config_new);
        (*n_taken)++;
    } else if (has_old) {
        if (model_config_parse(&config, buf_view(&old), &err))
            fail_msg("%s was taken", name);
        assert_int_equal(err.code, ERR_UNSUPPORTED);
        assert_null(strstr(err.text, "does not know"));
        (*n_refused)++;
    }
    buf_release(&old);
    buf_release(&new);
}

static void test_golden_folders(void **state)
{
    (void)state;
    char **names;
    size_t n_names;
    struct err err = { 0 };
    if (!dir_list(GOLDEN, &names, &n_names, &err)) {
        print_message("skipped: both generations and the refusals of all golden models (no %s)\n",
                      GOLDEN);
        skip();
    }
    uint32_t n_taken = 0, n_refused = 0;
    for (size_t i = 0; i < n_names; i++)
        check_folder(names[i], &n_taken, &n_refused);
    dir_list_free(names, n_names);
    assert_int_equal(n_taken, 14);
    assert_true(n_refused > 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),       cmocka_unit_test(test_windows),
        cmocka_unit_test(test_rotation),       cmocka_unit_test(test_refused_rotation),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_missing_dimension),
        cmocka_unit_test(test_golden_folders),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
