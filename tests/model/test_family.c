#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "model/family.h"

static void parse(struct model_config *config, const char *text)
{
    struct err err = { 0 };
    if (!model_config_parse(config, str_from(text), &err))
        fail_msg("%s", err.text);
}

static const char llama_text[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 96,"
    "\"num_hidden_layers\": 12, \"vocab_size\": 272, \"max_position_embeddings\": 256,"
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 32,"
    "\"attention_bias\": true, \"tie_word_embeddings\": true}";
static const char qwen3_text[] =
    "{\"model_type\": \"qwen3\", \"hidden_size\": 64, \"intermediate_size\": 96,"
    "\"num_hidden_layers\": 2, \"vocab_size\": 272, \"max_position_embeddings\": 256,"
    "\"num_attention_heads\": 4, \"head_dim\": 16, \"rope_theta\": 1e6}";

/* Every need is found again by its name and by its role, and none twice. */
static void check_needs(const struct model_config *config, uint32_t n_expected)
{
    const uint32_t n_needs = family_count_needs(config);
    assert_int_equal(n_needs, n_expected);
    for (uint32_t i = 0; i < n_needs; i++) {
        struct family_need need, again, other;
        family_need_at(config, i, &need);
        assert_true(family_need_named(config, str_from(need.name), &again));
        assert_int_equal(again.role, need.role);
        assert_int_equal(again.layer, need.layer);
        assert_true(family_need_of(config, need.role, need.layer, &again));
        assert_string_equal(again.name, need.name);
        for (uint32_t j = 0; j < i; j++) {
            family_need_at(config, j, &other);
            assert_string_not_equal(other.name, need.name);
        }
    }
}

static void test_needs(void **state)
{
    (void)state;
    struct model_config config;
    parse(&config, llama_text);
    check_needs(&config, 1 + 12 * (9 + 4) + 1);
    struct family_need need;
    family_need_at(&config, 0, &need);
    assert_string_equal(need.name, "model.embed_tokens.weight");
    assert_int_equal(need.rows, 272);
    assert_true(family_need_named(&config, STR("model.layers.11.self_attn.k_proj.bias"), &need));
    assert_int_equal(need.role, TENSOR_K_BIAS);
    assert_int_equal(need.layer, 11);
    assert_int_equal(need.rows, 1);
    assert_int_equal(need.cols, 64);
    assert_true(family_need_of(&config, TENSOR_O, 3, &need));
    assert_int_equal(need.rows, 64);
    assert_int_equal(need.cols, 128);
    model_config_release(&config);
    parse(&config, qwen3_text);
    check_needs(&config, 1 + 2 * (9 + 2) + 2);
    model_config_release(&config);
}

static void test_names_that_are_none(void **state)
{
    (void)state;
    struct model_config config;
    parse(&config, llama_text);
    static const char *const names[] = {
        "model.layers.12.self_attn.q_proj.weight", // past the last layer
        "model.layers.01.self_attn.q_proj.weight",
        "model.layers..self_attn.q_proj.weight",
        "model.layers.-1.self_attn.q_proj.weight",
        "model.layers.1.self_attn.q_proj.weightx",
        "model.layers.1.mlp.up_proj.bias", // no mlp_bias
        "lm_head.weight",                  // tied
        "embed_tokens.weight",
        "",
    };
    struct family_need need;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (family_need_named(&config, str_from(names[i]), &need))
            fail_msg("%s was found", names[i]);
    }
    assert_true(family_passes_over(&config, STR("lm_head.weight")));
    assert_true(family_is_tied_head(&config, STR("lm_head.weight")));
    assert_false(family_is_tied_head(&config, STR("model.norm.weight")));
    assert_true(family_passes_over(&config, STR("model.layers.3.self_attn.rotary_emb.inv_freq")));
    assert_false(family_passes_over(&config, STR("model.layers.3.self_attn.sinks")));
    model_config_release(&config);
    parse(&config, qwen3_text);
    assert_false(family_passes_over(&config, STR("lm_head.weight")));
    assert_false(family_is_tied_head(&config, STR("lm_head.weight")));
    model_config_release(&config);
}

static void test_shard_tensors(void **state)
{
    (void)state;
    struct model_config config;
    struct err err = { 0 };
    parse(&config, llama_text);
    struct tensor tensor = { .role = TENSOR_GATE_UP, .layer = 2, .rows = 192, .cols = 64 };
    assert_true(family_check_tensor(&config, &tensor, &err));
    tensor.rows = 96;
    assert_false(family_check_tensor(&config, &tensor, &err));
    assert_int_equal(err.code, ERR_FORMAT);
    assert_non_null(strstr(err.text, "layer 2 gate_up"));
    assert_non_null(strstr(err.text, "192"));
    tensor = (struct tensor){ .role = TENSOR_Q_NORM, .layer = 2, .rows = 1, .cols = 32 };
    assert_false(family_check_tensor(&config, &tensor, &err));
    assert_non_null(strstr(err.text, "q_norm"));
    model_config_release(&config);
}

static void test_whole_names_only(void **state)
{
    (void)state;
    struct err err = { 0 };
    assert_non_null(family_find(STR("qwen3"), &err));
    static const char *const others[] = { "qwen", "qwen3_5", "qwen3_moe", "xqwen3", "Llama", "" };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_null(family_find(str_from(others[i]), &err));
        assert_int_equal(err.code, ERR_UNSUPPORTED);
        assert_non_null(strstr(err.text, "supported: llama, mistral, qwen2, qwen3"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_needs),
        cmocka_unit_test(test_names_that_are_none),
        cmocka_unit_test(test_shard_tensors),
        cmocka_unit_test(test_whole_names_only),
    };
    return cmocka_run_group_tests_name("family", tests, NULL, NULL);
}
