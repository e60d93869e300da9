#include "shard/tokenizer_source.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "helpers/cm.h"
#include "helpers/model_files.h"
#include "helpers/small_tokenizer.h"
#include "helpers/temporary.h"
#include "text/tokenizer.h"
#include "text/tokenizer_bin.h"
#include "weights/gguf.h"

static void write_file(const char *directory, const char *name, struct str text)
{
    struct err err = { 0 };
    char *path = path_join(directory, name);
    if (!file_write_atomic(path, text, &err))
        fail_msg("%s", err.text);
    free(path);
}

static void write_tokenizer_json(const char *directory)
{
    const struct small_tokenizer small = {
        .byte_level = true,
        .merges = small_byte_merges,
        .added = "{\"content\": \"<e>\", \"special\": true}",
    };
    struct buf text;
    buf_init(&text, 1 << 20);
    small_tokenizer_write(&small, &text);
    write_file(directory, "tokenizer.json", buf_view(&text));
    buf_release(&text);
}

static struct tokenizer *load(const char *path)
{
    struct err err = { 0 };
    struct tokenizer *tokenizer = tokenizer_source_load(path, &err);
    if (!tokenizer)
        fail_msg("%s", err.text);
    return tokenizer;
}

static void assert_refused(const char *path, enum err_code code, const char *words)
{
    struct err err = { 0 };
    assert_null(tokenizer_source_load(path, &err));
    if (err.code != code || !strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

static void test_directory_file_and_shard(void **state)
{
    char *directory = temporary_dir();
    char *file = path_join(directory, "tokenizer.json");
    char *bin = path_join(directory, "tokenizer.bin");
    struct err err;
    size_t n;
    (void)state;
    write_tokenizer_json(directory);
    write_file(directory, "tokenizer_config.json", STR("{\"eos_token\": \"<e>\"}"));
    write_file(directory, "config.json", STR("{\"eos_token_id\": 7}"));
    write_file(directory, "generation_config.json", STR("{\"eos_token_id\": [8, 271, 9]}"));
    const char *const paths[] = { directory, file };
    for (size_t i = 0; i < 2; i++) {
        struct tokenizer *tokenizer = load(paths[i]);
        assert_small_ids(tokenizer, "hello", true, "259");
        assert_memory_equal(tokenizer_end_ids(tokenizer, &n), ((uint32_t[]){ 7, 8, 9, 271 }), 16);
        assert_int_equal(n, 4);
        assert_true(i || tokenizer_write_bin(tokenizer, bin, &err));
        tokenizer_free(tokenizer);
    }
    assert_true(file_remove(file, &err)); // what is left is how a shard looks
    struct tokenizer *tokenizer = load(directory);
    assert_small_ids(tokenizer, "hello", true, "259");
    (void)tokenizer_end_ids(tokenizer, &n);
    assert_int_equal(n, 4);
    tokenizer_free(tokenizer);
    free(file);
    free(bin);
    temporary_remove(directory);
}

static void test_what_is_wrong_is_said(void **state)
{
    char *directory = temporary_dir();
    (void)state;
    assert_refused("/nonexistent", ERR_NOT_FOUND, "/nonexistent");
    assert_refused(directory, ERR_NOT_FOUND, "no tokenizer.bin and no tokenizer.json");
    write_file(directory, "tokenizer.model", STR("a SentencePiece model"));
    assert_refused(directory, ERR_UNSUPPORTED, "tokenizer.model is not read");
    write_tokenizer_json(directory);
    write_file(directory, "generation_config.json", STR("{\"eos_token_id\": [1, \"x\"]}"));
    assert_refused(directory, ERR_FORMAT, "generation_config.json: eos_token_id: item 1");
    write_file(directory, "generation_config.json", STR("{\"eos_token_id\": 99999}"));
    assert_refused(directory, ERR_ARGUMENT, "99999");
    write_file(directory, "tokenizer_config.json", STR("{"));
    assert_refused(directory, ERR_FORMAT, "tokenizer_config.json");
    write_file(directory, "tokenizer.bin", STR("CSCATOK1 and nothing more"));
    assert_refused(directory, ERR_FORMAT, "tokenizer.bin");
    temporary_remove(directory);
}

/* An array of strings as GGUF stores it. */
static void add_strings(struct gguf_builder *builder, const char *key, const char *const *texts,
                        uint64_t n)
{
    struct buf bytes;
    const uint32_t type = GGUF_STRING;
    buf_init(&bytes, 1 << 16);
    buf_add(&bytes, &type, sizeof type);
    buf_add(&bytes, &n, sizeof n);
    for (size_t i = 0; i < n; i++) {
        const uint64_t size = strlen(texts[i]);
        buf_add(&bytes, &size, sizeof size);
        buf_add_text(&bytes, texts[i]);
    }
    gguf_add_raw(builder, key, GGUF_ARRAY, bytes.data, bytes.size);
    buf_release(&bytes);
}

static void add_integers(struct gguf_builder *builder, const char *key, const int32_t *values,
                         uint64_t n)
{
    struct buf bytes;
    const uint32_t type = GGUF_I32;
    buf_init(&bytes, 1 << 16);
    buf_add(&bytes, &type, sizeof type);
    buf_add(&bytes, &n, sizeof n);
    buf_add(&bytes, values, n * sizeof values[0]);
    gguf_add_raw(builder, key, GGUF_ARRAY, bytes.data, bytes.size);
    buf_release(&bytes);
}

/* A GGUF that holds a vocabulary and nothing else. */
static void test_gguf_with_a_vocabulary_alone(void **state)
{
    static const char *const tokens[] = { "<|endoftext|>", "a", "b", "ab", "\xc4\xa0" };
    static const char *const merges[] = { "a b" };
    char *directory = temporary_dir();
    char *path = path_join(directory, "vocabulary.gguf");
    struct gguf_builder builder;
    struct buf out;
    uint32_t id;
    (void)state;
    for (unsigned n_types = 5; n_types >= 4; n_types--) {
        gguf_builder_init(&builder);
        buf_init(&out, 1 << 20);
        gguf_add_str(&builder, "tokenizer.ggml.model", "gpt2");
        gguf_add_str(&builder, "tokenizer.ggml.pre", "smollm");
        add_strings(&builder, "tokenizer.ggml.tokens", tokens, 5);
        add_strings(&builder, "tokenizer.ggml.merges", merges, 1);
        add_integers(&builder, "tokenizer.ggml.token_type", (int32_t[]){ 3, 1, 1, 1, 1 }, n_types);
        gguf_add_u32(&builder, "tokenizer.ggml.bos_token_id", 0);
        gguf_builder_finish(&builder, &out);
        write_file(directory, "vocabulary.gguf", buf_view(&out));
        gguf_builder_release(&builder);
        buf_release(&out);
        if (n_types == 4) {
            assert_refused(path, ERR_FORMAT, "4 types for 5 tokens");
            break;
        }
        struct tokenizer *tokenizer = load(path);
        assert_small_ids(tokenizer, "ab ab<|endoftext|>", true, "3 4 3 0");
        assert_true(tokenizer_bos(tokenizer, &id) && id == 0);
        assert_true(tokenizer_is_end(tokenizer, 0));
        tokenizer_free(tokenizer);
    }
    free(path);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_directory_file_and_shard),
        cmocka_unit_test(test_what_is_wrong_is_said),
        cmocka_unit_test(test_gguf_with_a_vocabulary_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
