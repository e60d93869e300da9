/* The config.json that GGUF metadata becomes. */
#include "base/file.h"
#include "base/memory.h"
#include "helpers/cm.h"
#include "helpers/model_files.h"
#include "helpers/temporary.h"
#include "shard/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One layer of hidden 8, 2 heads of 4, f32; `arch` is the prefix of all keys. */
struct little {
    struct gguf_builder builder;
    char key[128];
    const char *arch;
};

static const char *key(struct little *l, const char *name)
{
    snprintf(l->key, sizeof l->key, "%s.%s", l->arch, name);
    return l->key;
}

static void add_floats(struct little *l, const char *name, uint64_t cols, uint64_t rows)
{
    float *ones = xcalloc(cols * (rows ? rows : 1), sizeof *ones);
    for (uint64_t i = 0; i < cols * (rows ? rows : 1); i++)
        ones[i] = 1;
    gguf_add_tensor(&l->builder, name, 0, (uint64_t[]){ cols, rows }, rows ? 2 : 1, ones,
                    cols * (rows ? rows : 1) * sizeof *ones);
    free(ones);
}

static void little_init(struct little *l, const char *arch)
{
    *l = (struct little){ .arch = arch };
    gguf_builder_init(&l->builder);
    gguf_add_str(&l->builder, "general.architecture", arch);
    gguf_add_u32(&l->builder, key(l, "block_count"), 1);
    gguf_add_u32(&l->builder, key(l, "embedding_length"), 8);
    gguf_add_u32(&l->builder, key(l, "feed_forward_length"), 12);
    gguf_add_u32(&l->builder, key(l, "context_length"), 64);
    gguf_add_u32(&l->builder, key(l, "attention.head_count"), 2);
    gguf_add_f32(&l->builder, key(l, "attention.layer_norm_rms_epsilon"), 1e-6f);
    add_floats(l, "token_embd.weight", 8, 16);
    add_floats(l, "output_norm.weight", 8, 0);
    add_floats(l, "blk.0.attn_norm.weight", 8, 0);
    add_floats(l, "blk.0.attn_q.weight", 8, 8);
    add_floats(l, "blk.0.attn_k.weight", 8, 8);
    add_floats(l, "blk.0.attn_v.weight", 8, 8);
    add_floats(l, "blk.0.attn_output.weight", 8, 8);
    add_floats(l, "blk.0.ffn_norm.weight", 8, 0);
    add_floats(l, "blk.0.ffn_gate.weight", 8, 12);
    add_floats(l, "blk.0.ffn_up.weight", 8, 12);
    add_floats(l, "blk.0.ffn_down.weight", 12, 8);
}

/* Opens what was built; `words` NULL: must succeed (caller closes). */
static void finish(struct little *l, struct source *source, const char *words)
{
    struct buf file;
    struct err err = { 0 };
    char *dir = temporary_dir(), *path = path_join(dir, "m.gguf");
    buf_init(&file, 1 << 20);
    gguf_builder_finish(&l->builder, &file);
    gguf_builder_release(&l->builder);
    assert_true(file_write_atomic(path, buf_view(&file), &err));
    bool good = source_open(source, path, &err);
    if (!good && !words)
        fail_msg("%s", err.text);
    if (words && (good || !strstr(err.text, words)))
        fail_msg("expected \"%s\", got \"%s\"", words, good ? "success" : err.text);
    buf_release(&file);
    free(path);
    temporary_remove(dir); // the map stays
}

static void test_plain(void **state)
{
    struct little l;
    struct source source;
    (void)state;
    little_init(&l, "llama");
    uint32_t end = 7;
    gguf_add_u32(&l.builder, "tokenizer.ggml.eos_token_id", 5);
    gguf_add_u32(&l.builder, "tokenizer.ggml.eot_token_id", end);
    gguf_add_u32(&l.builder, "tokenizer.ggml.eom_token_id", 5);
    gguf_add_f32(&l.builder, key(&l, "rope.freq_base"), 500000.0f);
    finish(&l, &source, NULL);
    const struct model_config *config = &source.config;
    assert_string_equal(config->model_type, "llama");
    assert_true(config->n_layers == 1 && config->hidden == 8 && config->intermediate == 12);
    assert_true(config->n_heads == 2 && config->n_kv_heads == 2 && config->head_dim == 4);
    assert_true(config->vocab_size == 16 && config->max_positions == 64 && config->is_tied);
    assert_true(config->norm_eps == 1e-6f);
    assert_true(config->rope[LAYER_FULL].theta == 500000.0);
    assert_int_equal(config->rope[LAYER_FULL].type, ROPE_DEFAULT);
    assert_non_null(strstr(source.config_json.data, "\"eos_token_id\": [5, 7]"));
    assert_null(strstr(source.config_json.data, "bos_token_id"));
    source_close(&source);
}

static void test_rope(void **state)
{
    struct little l;
    struct source source;
    float divisors[2] = { 1, 8 };
    (void)state;
    little_init(&l, "llama");
    gguf_add_tensor(&l.builder, "rope_freqs.weight", 0, (uint64_t[]){ 2 }, 1, divisors, 8);
    finish(&l, &source, NULL);
    assert_int_equal(source.config.rope[LAYER_FULL].type, ROPE_DIVISORS);
    assert_true(source.config.rope[LAYER_FULL].divisors[1] == 8);
    source_close(&source);
    little_init(&l, "llama");
    gguf_add_str(&l.builder, key(&l, "rope.scaling.type"), "linear");
    gguf_add_f32(&l.builder, key(&l, "rope.scaling.factor"), 4);
    finish(&l, &source, NULL);
    assert_int_equal(source.config.rope[LAYER_FULL].type, ROPE_LINEAR);
    assert_true(source.config.rope[LAYER_FULL].factor == 4);
    assert_true(source.config.rope[LAYER_FULL].theta == 10000);
    source_close(&source);
    little_init(&l, "llama"); // the key of older files
    gguf_add_f32(&l.builder, key(&l, "rope.scale_linear"), 2);
    finish(&l, &source, NULL);
    assert_true(source.config.rope[LAYER_FULL].type == ROPE_LINEAR &&
                source.config.rope[LAYER_FULL].factor == 2);
    source_close(&source);
    little_init(&l, "llama");
    gguf_add_str(&l.builder, key(&l, "rope.scaling.type"), "yarn");
    gguf_add_f32(&l.builder, key(&l, "rope.scaling.factor"), 4);
    gguf_add_u32(&l.builder, key(&l, "rope.scaling.original_context_length"), 16);
    gguf_add_f32(&l.builder, key(&l, "rope.scaling.attn_factor"), 0.5f);
    finish(&l, &source, NULL);
    const struct rope_config *rope = &source.config.rope[LAYER_FULL];
    assert_true(rope->type == ROPE_YARN && rope->factor == 4 && rope->original_positions == 16);
    assert_true(fabs(rope->attention_factor - 0.5 * (1 + 0.1 * log(4))) < 1e-12);
    assert_true(rope->beta_fast == 32 && rope->beta_slow == 1);
    source_close(&source);
    little_init(&l, "llama");
    gguf_add_str(&l.builder, key(&l, "rope.scaling.type"), "longrope");
    finish(&l, &source, "rope scaling \"longrope\"");
    little_init(&l, "llama");
    divisors[0] = 0;
    gguf_add_tensor(&l.builder, "rope_freqs.weight", 0, (uint64_t[]){ 2 }, 1, divisors, 8);
    finish(&l, &source, "no divisor");
}

static void test_families(void **state)
{
    struct little l;
    struct source source;
    (void)state;
    little_init(&l, "qwen2");
    add_floats(&l, "blk.0.attn_q.bias", 8, 0);
    add_floats(&l, "blk.0.attn_k.bias", 8, 0);
    add_floats(&l, "blk.0.attn_v.bias", 8, 0);
    finish(&l, &source, NULL);
    assert_true(source.config.has_qkv_bias && !source.config.has_o_bias);
    assert_int_equal(source_find(&source, 0, TENSOR_Q)->paired_heads, 0);
    source_close(&source);
    little_init(&l, "qwen3");
    add_floats(&l, "blk.0.attn_q_norm.weight", 4, 0);
    add_floats(&l, "blk.0.attn_k_norm.weight", 4, 0);
    finish(&l, &source, NULL);
    assert_true(source.config.has_qk_norm && !source.config.has_qkv_bias);
    source_close(&source);
    little_init(&l, "qwen3"); // saved with attention_bias
    add_floats(&l, "blk.0.attn_q_norm.weight", 4, 0);
    add_floats(&l, "blk.0.attn_k_norm.weight", 4, 0);
    add_floats(&l, "blk.0.attn_q.bias", 8, 0);
    add_floats(&l, "blk.0.attn_k.bias", 8, 0);
    add_floats(&l, "blk.0.attn_v.bias", 8, 0);
    add_floats(&l, "blk.0.attn_output.bias", 8, 0);
    finish(&l, &source, NULL);
    assert_true(source.config.has_qkv_bias && source.config.has_o_bias);
    source_close(&source);
    little_init(&l, "llama"); // biases everywhere
    add_floats(&l, "blk.0.attn_q.bias", 8, 0);
    add_floats(&l, "blk.0.attn_k.bias", 8, 0);
    add_floats(&l, "blk.0.attn_v.bias", 8, 0);
    add_floats(&l, "blk.0.attn_output.bias", 8, 0);
    finish(&l, &source, NULL);
    assert_true(source.config.has_qkv_bias && source.config.has_o_bias);
    assert_int_equal(source_find(&source, 0, TENSOR_Q_BIAS)->paired_heads, 2);
    source_close(&source);
    little_init(&l, "llama"); // mistral's window
    gguf_add_u32(&l.builder, key(&l, "attention.sliding_window"), 16);
    finish(&l, &source, NULL);
    assert_string_equal(source.config.model_type, "mistral");
    assert_int_equal(model_config_window(&source.config, 0), 16);
    assert_int_equal(source_find(&source, 0, TENSOR_K)->paired_heads, 2);
    source_close(&source);
}

static void add_array(struct little *l, const char *name, const uint32_t *items, uint64_t n_items)
{
    uint8_t bytes[64];
    const uint32_t type = 4; // u32
    memcpy(bytes, &type, 4);
    memcpy(bytes + 4, &n_items, 8);
    memcpy(bytes + 12, items, n_items * sizeof *items);
    gguf_add_raw(&l->builder, key(l, name), 9, bytes, 12 + n_items * sizeof *items);
}

static void test_arrays_of_layers(void **state)
{
    struct little l;
    struct source source;
    (void)state;
    little_init(&l, "llama");
    add_array(&l, "attention.head_count_kv", (uint32_t[]){ 2, 2, 2 }, 3);
    finish(&l, &source, NULL);
    assert_int_equal(source.config.n_kv_heads, 2);
    source_close(&source);
    little_init(&l, "llama");
    add_array(&l, "attention.head_count_kv", (uint32_t[]){ 2, 1, 2 }, 3);
    finish(&l, &source, "llama.attention.head_count_kv is not one positive number");
    little_init(&l, "llama");
    add_array(&l, "attention.head_count_kv", (uint32_t[]){ 0, 0 }, 2);
    finish(&l, &source, "llama.attention.head_count_kv is not one positive number");
    little_init(&l, "llama");
    add_array(&l, "attention.head_count_kv", (uint32_t[]){ 2 }, 0);
    finish(&l, &source, "llama.attention.head_count_kv is not one positive number");
}

static void test_refusals(void **state)
{
    struct little l;
    struct source source;
    (void)state;
    little_init(&l, "mamba");
    finish(&l, &source, "architecture \"mamba\"");
    little_init(&l, "llama");
    gguf_add_u32(&l.builder, key(&l, "expert_count"), 8);
    finish(&l, &source, "llama.expert_count: mixtures");
    little_init(&l, "llama");
    gguf_add_u32(&l.builder, key(&l, "rope.dimension_count"), 2);
    finish(&l, &source, "partial rotation");
    little_init(&l, "llama");
    gguf_add_raw(&l.builder, key(&l, "attention.causal"), 7, "\0", 1);
    finish(&l, &source, "llama.attention.causal: attention to later positions");
    little_init(&l, "llama");
    gguf_add_u32(&l.builder, key(&l, "attention.value_length"), 8);
    finish(&l, &source, "keys of 4 and values of 8");
    little_init(&l, "llama");
    gguf_add_f32(&l.builder, key(&l, "attention.head_count_kv"), 1);
    finish(&l, &source, "llama.attention.head_count_kv is no positive number");
    little_init(&l, "llama");
    add_floats(&l, "rope_factors_long.weight", 2, 0);
    finish(&l, &source, "longrope");
    little_init(&l, "llama");
    uint8_t superblock[144] = { 0 };
    gguf_add_tensor(&l.builder, "output.weight", 12, (uint64_t[]){ 256, 1 }, 2, superblock, 144);
    finish(&l, &source,
           "tensor output.weight is of type q4_k, which is not read; these are: f32 f16");
    little_init(&l, "llama");
    gguf_add_u32(&l.builder, "split.count", 3);
    finish(&l, &source, "one of 3 parts");
    gguf_builder_init(&l.builder);
    finish(&l, &source, "general.architecture is missing");
    little_init(&l, "qwen2");
    gguf_add_u32(&l.builder, key(&l, "attention.sliding_window"), 16);
    finish(&l, &source, "qwen2.attention.sliding_window");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),    cmocka_unit_test(test_rope),
        cmocka_unit_test(test_families), cmocka_unit_test(test_arrays_of_layers),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
