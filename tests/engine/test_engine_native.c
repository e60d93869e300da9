#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "helpers/engine_suite.h"
#include "helpers/golden.h"
#include "helpers/model_files.h"
#include "weights/safetensors.h"

#define LLAMA SOURCE_DIR "/tests/golden/llama"

static void export_to(const char *source, const char *format, const char *to)
{
    struct err err = { 0 };
    if (!golden_export(source, format, to, &err))
        fail_msg("%s", err.text);
}

static void copy_file(const char *from, const char *to)
{
    struct err err = { 0 };
    struct buf bytes;
    buf_init(&bytes, 1 << 24);
    assert_true(file_read(from, &bytes, &err));
    assert_true(file_write_atomic(to, buf_view(&bytes), &err));
    buf_release(&bytes);
}

/* The llama model with the largest bf16 in a norm of layer 1: its values overflow there. */
static void make_overflowing(const char *directory)
{
    struct err err = { 0 };
    struct buf bytes;
    struct safetensors tensors;
    char *config = path_join(directory, "config.json");
    char *weights = path_join(directory, "model.safetensors");
    copy_file(LLAMA "/config.json", config);
    buf_init(&bytes, 1 << 24);
    assert_true(file_read(LLAMA "/model.safetensors", &bytes, &err));
    assert_true(safetensors_open(&tensors, LLAMA "/model.safetensors", &err));
    const struct safetensors_tensor *norm =
        safetensors_find(&tensors, STR("model.layers.1.input_layernorm.weight"));
    assert_non_null(norm);
    char *at = bytes.data + (norm->data - tensors.map.data);
    for (size_t i = 0; i < norm->bytes; i += 2)
        memcpy(at + i, "\x7f\x7f", 2);
    safetensors_close(&tensors);
    assert_true(file_write_atomic(weights, buf_view(&bytes), &err));
    buf_release(&bytes);
    free(config);
    free(weights);
}

static void test_values_not_finite(void **state)
{
    (void)state;
    static const char *const formats[] = { "f32", "int8" };
    char *directory = golden_make_directory();
    char *shard = path_join(directory, "shard");
    make_overflowing(directory);
    for (size_t i = 0; i < 2; i++) {
        struct engine_options options = { .model = shard, .engine = "native", .threads = 2 };
        struct engine_chain chain;
        struct err err = { 0 };
        export_to(directory, formats[i], shard);
        assert_true(engine_chain_open(&chain, &options, NULL, 0, &err));
        const int32_t ids[] = { 5, 6, 7 };
        for (uint32_t attempt = 0; attempt < 2; attempt++) { // the sequence stays empty
            assert_null(engine_chain_run(&chain, 0, ids, 0, 3, &err));
            assert_int_equal(err.code, ERR_BATCH_LOST);
            assert_non_null(strstr(err.text, "layer 1, attention"));
        }
        engine_chain_add(&chain, 0, 1, 5, ROW_SAMPLE);
        assert_null(engine_chain_step(&chain, &err));
        assert_non_null(strstr(err.text, "does not follow"));
        engine_chain_close(&chain);
    }
    free(shard);
    golden_remove_directory(directory);
}

static void assert_open_fails(const struct engine_options *options, enum err_code code,
                              const char *word)
{
    struct engine engine;
    struct engine_info info;
    struct err err = { 0 };
    assert_false(engine_open(&engine, options, &info, &err));
    assert_int_equal(err.code, code);
    if (strstr(err.text, word) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, word);
    assert_null(engine.ops);
}

static void test_what_cannot_be_opened(void **state)
{
    (void)state;
    struct err err = { 0 };
    char *directory = golden_make_directory();
    char *shard = path_join(directory, "shard");
    export_to(LLAMA, "int4", shard);
    struct engine_options options = { .model = shard, .engine = "native", .threads = 1 };
    options.isa = "neon";
    assert_open_fails(&options, ERR_NOT_FOUND, "it has: scalar");
    options.isa = NULL;
    options.model = NULL;
    assert_open_fails(&options, ERR_ARGUMENT, "model");
    options.model = directory;
    assert_open_fails(&options, ERR_NOT_FOUND, "config.json");
    options.model = shard;
    options.kv_memory_bytes = 100;
    assert_open_fails(&options, ERR_ARGUMENT, "no page");
    options.kv_memory_bytes = 0;
    /* A layer's file is gone: only a stage that needs it fails. */
    char *file = path_join(shard, "layer-002.weights");
    assert_true(file_remove(file, &err));
    assert_open_fails(&options, ERR_NOT_FOUND, "layer-002.weights");
    options.layer_end = 2;
    struct engine engine;
    struct engine_info info;
    assert_true(engine_open(&engine, &options, &info, &err));
    assert_false(engine_is_last(&info));
    engine_close(&engine);
    /* A config.json that is not the one the weights were made from. */
    char *config = path_join(shard, "config.json");
    copy_file(SOURCE_DIR "/tests/golden/qwen3/config.json", config);
    struct engine_options other = { .model = shard, .engine = "native", .layer_end = 1 };
    assert_false(engine_open(&engine, &other, &info, &err));
    free(config);
    free(file);
    free(shard);
    golden_remove_directory(directory);
}

static struct engine_info open_info(const struct engine_options *options)
{
    struct engine engine;
    struct engine_info info;
    struct err err = { 0 };
    if (!engine_open(&engine, options, &info, &err))
        fail_msg("%s", err.text);
    engine_close(&engine);
    return info;
}

static void test_hashes(void **state)
{
    (void)state;
    char *directory = golden_make_directory();
    char *shard = path_join(directory, "shard");
    export_to(LLAMA, "int4", shard);
    struct engine_options options = { .model = shard, .engine = "native", .threads = 1 };
    const struct engine_info plain = open_info(&options);
    options.layer_end = 1;
    const struct engine_info stage = open_info(&options);
    assert_true(plain.model_hash == stage.model_hash);
    assert_true(plain.settings_hash == stage.settings_hash);
    options.ctx_size = 64;
    assert_true(plain.settings_hash == open_info(&options).settings_hash);
    options.kv_type = ENGINE_KV_F32;
    const struct engine_info f32 = open_info(&options);
    assert_true(plain.settings_hash != f32.settings_hash);
    options.kv_type = ENGINE_KV_Q8;
    const struct engine_info q8 = open_info(&options);
    assert_true(q8.settings_hash != plain.settings_hash && q8.settings_hash != f32.settings_hash);
    options.kv_type = ENGINE_KV_DEFAULT;
    options.activation = ENGINE_ACTIVATION_WEIGHT;
    assert_true(plain.settings_hash == open_info(&options).settings_hash);
    uint64_t hashes[ENGINE_ACTIVATION_NONE + 1];
    for (int i = ENGINE_ACTIVATION_WEIGHT; i <= ENGINE_ACTIVATION_NONE; i++) {
        options.activation = (enum engine_activation)i;
        hashes[i] = open_info(&options).settings_hash;
        for (int j = ENGINE_ACTIVATION_WEIGHT; j < i; j++)
            assert_true(hashes[i] != hashes[j]);
    }
    export_to(LLAMA, "int8", shard);
    options = (struct engine_options){ .model = shard, .engine = "native", .threads = 1 };
    assert_true(plain.settings_hash != open_info(&options).settings_hash);
    free(shard);
    golden_remove_directory(directory);
}

enum { ROWS = 20, VOCABULARY = 70, LOGITS = ROWS * VOCABULARY };

/* Logits of some rows of a shard of the small model. */
static void run_shard(const char *shard, enum engine_activation activation,
                      enum engine_kv_type kv_type, float *logits)
{
    const struct engine_options options = {
        .model = shard,
        .engine = "native",
        .ctx_size = 64,
        .threads = 2,
        .kv_type = kv_type,
        .activation = activation,
    };
    int32_t ids[ROWS];
    struct engine_chain chain;
    struct err err = { 0 };
    for (int32_t i = 0; i < ROWS; i++)
        ids[i] = i * 11 % VOCABULARY;
    if (!engine_chain_open(&chain, &options, NULL, 0, &err))
        fail_msg("%s", err.text);
    const struct batch *out = engine_chain_run(&chain, 0, ids, 0, ROWS, &err);
    assert_non_null(out);
    memcpy(logits, out->values, sizeof(float) * LOGITS);
    engine_chain_close(&chain);
}

/* Float weights know no mode; the groups of weights are the finest of what is multiplied together.
 */
static void test_activation_groups(void **state)
{
    static float plain[LOGITS], other[LOGITS];
    (void)state;
    char *directory = golden_make_directory();
    char *gguf = path_join(directory, "model.gguf"), *shard = path_join(directory, "shard");
    const struct small_model model = { .seed = 21, .gguf_type = 3 };
    small_model_write_gguf(&model, gguf);
    export_to(gguf, "f32", shard);
    run_shard(shard, ENGINE_ACTIVATION_DEFAULT, ENGINE_KV_DEFAULT, plain);
    for (int i = ENGINE_ACTIVATION_WEIGHT; i <= ENGINE_ACTIVATION_NONE; i++) {
        run_shard(shard, (enum engine_activation)i, ENGINE_KV_DEFAULT, other);
        assert_memory_equal(other, plain, sizeof(plain));
    }
    export_to(gguf, "int4", shard); // groups of 32
    run_shard(shard, ENGINE_ACTIVATION_WEIGHT, ENGINE_KV_DEFAULT, plain);
    run_shard(shard, ENGINE_ACTIVATION_32, ENGINE_KV_DEFAULT, other);
    assert_memory_equal(other, plain, sizeof(plain));
    for (int i = ENGINE_ACTIVATION_64; i <= ENGINE_ACTIVATION_NONE; i++) {
        run_shard(shard, (enum engine_activation)i, ENGINE_KV_DEFAULT, other);
        assert_memory_not_equal(other, plain, sizeof(plain));
    }
    free(shard);
    free(gguf);
    golden_remove_directory(directory);
}

/* Where the rotation depends on the context, the context is one of the settings. */
static void test_hash_of_dynamic_rotation(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct buf text;
    char *directory = golden_make_directory();
    char *shard = path_join(directory, "shard");
    char *config = path_join(directory, "config.json");
    char *weights = path_join(directory, "model.safetensors");
    copy_file(LLAMA "/model.safetensors", weights);
    buf_init(&text, 1 << 16);
    assert_true(file_read(LLAMA "/config.json", &text, &err));
    char *at = strstr(text.data, "\"rope_scaling\": null");
    assert_non_null(at);
    struct buf edited;
    buf_init(&edited, 1 << 16);
    buf_add(&edited, text.data, (size_t)(at - text.data));
    buf_add_text(&edited, "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}");
    buf_add_text(&edited, at + strlen("\"rope_scaling\": null"));
    assert_true(file_write_atomic(config, buf_view(&edited), &err));
    export_to(directory, "int4", shard);
    struct engine_options options = { .model = shard, .engine = "native", .ctx_size = 300 };
    const struct engine_info first = open_info(&options);
    options.ctx_size = 301;
    const struct engine_info second = open_info(&options);
    assert_true(first.settings_hash != second.settings_hash);
    assert_true(first.model_hash == second.model_hash);
    buf_release(&edited);
    buf_release(&text);
    free(weights);
    free(config);
    free(shard);
    golden_remove_directory(directory);
}

/* What a step reads: the parts of a model add up to the whole, and the limits follow. */
static void test_costs(void **state)
{
    (void)state;
    char *directory = golden_make_directory();
    char *shard = path_join(directory, "shard");
    export_to(LLAMA, "int4", shard);
    struct engine_options options = { .model = shard, .engine = "native", .threads = 2 };
    const struct engine_info whole = open_info(&options);
    options.layer_end = 1;
    const struct engine_info first = open_info(&options);
    options.layer_first = 1;
    options.layer_end = 0;
    const struct engine_info rest = open_info(&options);
    assert_true(first.cost.row_macs > 0 && first.cost.logits_macs == 0);
    assert_true(rest.cost.logits_macs == (uint64_t)whole.vocab_size * whole.carry);
    assert_true(whole.cost.row_macs == first.cost.row_macs + rest.cost.row_macs);
    assert_true(whole.cost.weights_bytes == first.cost.weights_bytes + rest.cost.weights_bytes);
    assert_true(whole.cost.weights_bytes > (whole.cost.row_macs + whole.cost.logits_macs) / 2);
    assert_true(whole.cost.position_bytes == first.cost.position_bytes + rest.cost.position_bytes);
    assert_true(whole.cost.read_bytes_per_s > 1e7 && whole.step_read_ns > 0);
    struct engine_info info = { .cost = { .weights_bytes = 3000, .position_bytes = 7 } };
    engine_info_limits(&info);
    assert_true(info.step_read_ns == 0 && info.position_read_ps == 0);
    info.cost.read_bytes_per_s = 1e9;
    engine_info_limits(&info);
    assert_int_equal(info.step_read_ns, 3000);
    assert_int_equal(info.position_read_ps, 7000);
    free(shard);
    golden_remove_directory(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_not_finite),
        cmocka_unit_test(test_what_cannot_be_opened),
        cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_activation_groups),
        cmocka_unit_test(test_hash_of_dynamic_rotation),
        cmocka_unit_test(test_costs),
    };
    char *directory = golden_make_directory();
    char *shard = path_join(directory, "shard");
    struct err err = { 0 };
    if (!golden_export(LLAMA, "int4", shard, &err)) {
        print_error("%s\n", err.text);
        return 1;
    }
    struct engine_suite suite = {
        .options = { .model = shard, .engine = "native", .threads = 2 },
    };
    for (uint32_t i = 0; i < 200; i++)
        suite.ids[i] = (int32_t)((i * 37 + i * i) % 272);
    int failed = engine_suite_run("engine suite: native", &suite);
    failed += cmocka_run_group_tests_name("engine_native", tests, NULL, NULL);
    free(shard);
    golden_remove_directory(directory);
    return failed;
}
