/* Both kinds of source give the same tensors; what does not fit is refused by its name. */
#include "shard/source.h"

#include "base/file.h"
#include "base/memory.h"
#include "helpers/cm.h"
#include "helpers/model_files.h"
#include "helpers/temporary.h"
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct place {
    char *dir, *hf, *gguf;
};

static void place_make(struct place *place)
{
    struct err err = { 0 };
    place->dir = temporary_dir();
    place->hf = path_join(place->dir, "hf");
    place->gguf = path_join(place->dir, "model.gguf");
    assert_true(dir_make(place->hf, &err));
}

static void place_drop(struct place *place)
{
    free(place->hf);
    free(place->gguf);
    temporary_remove(place->dir);
}

static void open_or_fail(struct source *source, const char *path)
{
    struct err err = { 0 };
    if (!source_open(source, path, &err))
        fail_msg("%s", err.text);
}

/* Every tensor of the source against the values that the model was made of. */
static void check_values(const struct source *source, const struct small_model *model)
{
    for (uint32_t i = 0; i < source->n_tensors; i++) {
        const struct source_tensor *tensor = &source->tensors[i];
        struct family_need need;
        uint32_t rows, cols;
        float got[128];
        assert_true(family_need_of(&source->config, tensor->role, tensor->layer, &need));
        float *values = small_model_values(model, need.name, &rows, &cols);
        assert_true(tensor->rows == rows && tensor->cols == cols);
        if (!tensor_role_info(tensor->role)->is_matrix) {
            source_read_vector(tensor, got);
            assert_memory_equal(got, values, cols * sizeof *values);
        } else {
            for (uint32_t row = 0; row < rows; row++)
                assert_memory_equal(source_row(tensor, row), values + (size_t)row * cols,
                                    cols * sizeof *values);
        }
        free(values);
    }
}

static void test_both_kinds_hold_the_model(void **state)
{
    (void)state;
    for (int is_tied = 0; is_tied < 2; is_tied++) {
        struct small_model model = { .seed = 9, .is_tied = is_tied };
        struct place place;
        struct source source;
        place_make(&place);
        small_model_write_hf(&model, place.hf);
        small_model_write_gguf(&model, place.gguf);
        open_or_fail(&source, place.hf);
        assert_int_equal(source.n_tensors, is_tied ? 20 : 21);
        assert_int_equal(source.config.is_tied, is_tied);
        check_values(&source, &model);
        source_close(&source);
        open_or_fail(&source, place.gguf);
        assert_int_equal(source.config.is_tied, is_tied);
        assert_true(source.config.head_dim == 32 && source.config.n_kv_heads == 1);
        assert_non_null(strstr(source.config_json.data, "\"bos_token_id\":1"));
        assert_non_null(strstr(source.config_json.data, "\"eos_token_id\": [2]"));
        /* the rows of q and k are put back from the rotation's order of neighbours */
        check_values(&source, &model);
        source_close(&source);
        place_drop(&place);
    }
}

static void expect_error(const char *path, enum err_code code, const char *words)
{
    struct source source;
    struct err err = { 0 };
    if (source_open(&source, path, &err))
        fail_msg("expected \"%s\", but it was opened", words);
    if (err.code != code || !strstr(err.text, words))
        fail_msg("expected \"%s\", got %d \"%s\"", words, err.code, err.text);
}

static void test_tensors_that_do_not_fit(void **state)
{
    static const struct {
        struct small_model model;
        const char *words;
    } cases[] = {
        { { .skip = "model.layers.1.mlp.up_proj.weight" },
          "tensor model.layers.1.mlp.up_proj.weight is missing" },
        { { .skip = "lm_head.weight" }, "tensor lm_head.weight is missing" },
        { { .extra = "model.layers.0.self_attn.q_proj.bias" }, "self_attn.q_proj.bias" },
        { { .extra = "model.layers.2.input_layernorm.weight" },
          "model.layers.2.input_layernorm.weight in model.safetensors is left over" },
        { { .misshapen = "model.layers.0.mlp.gate_proj.weight" },
          "tensor model.layers.0.mlp.gate_proj.weight has the shape [40, 32]; the configuration "
          "says [40, 64]" },
    };
    static const struct {
        struct small_model model;
        const char *words;
    } gguf_cases[] = {
        { { .skip = "blk.1.ffn_up.weight" }, "tensor blk.1.ffn_up.weight is missing" },
        { { .extra = "blk.0.attn_q_norm.weight" }, "blk.0.attn_q_norm.weight is left over" },
        { { .extra = "blk.2.attn_norm.weight" }, "blk.2.attn_norm.weight is left over" },
        { { .extra = "blk.00.attn_norm.weight" }, "blk.00.attn_norm.weight is left over" },
        { { .misshapen = "blk.0.attn_v.weight" }, "blk.0.attn_v.weight has the shape [32, 32]" },
    };
    struct place place;
    (void)state;
    place_make(&place);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        small_model_write_hf(&cases[i].model, place.hf);
        expect_error(place.hf, ERR_FORMAT, cases[i].words);
    }
    for (size_t i = 0; i < sizeof gguf_cases / sizeof gguf_cases[0]; i++) {
        small_model_write_gguf(&gguf_cases[i].model, place.gguf);
        expect_error(place.gguf, ERR_FORMAT, gguf_cases[i].words);
    }
    struct small_model harmless = { .extra = "model.layers.0.self_attn.rotary_emb.inv_freq" };
    struct source source;
    small_model_write_hf(&harmless, place.hf);
    open_or_fail(&source, place.hf); // a name that the family passes over
    source_close(&source);
    place_drop(&place);
}

static void put_text(const char *directory, const char *name, const char *text)
{
    struct err err = { 0 };
    char *path = path_join(directory, name);
    assert_true(file_write_atomic(path, str_from(text), &err));
    free(path);
}

static void test_directories_that_are_no_model(void **state)
{
    struct place place;
    struct small_model model = { 0 };
    struct err err;
    (void)state;
    place_make(&place);
    expect_error(place.hf, ERR_NOT_FOUND, "no config.json");
    expect_error("/nowhere/at/all", ERR_NOT_FOUND, "/nowhere/at/all");
    put_text(place.dir, "notes.txt", "hello");
    char *notes = path_join(place.dir, "notes.txt");
    expect_error(notes, ERR_UNSUPPORTED, "no GGUF file");
    free(notes);
    small_model_write_hf(&model, place.hf);
    char *weights = path_join(place.hf, "model.safetensors");
    assert_true(file_remove(weights, &err));
    expect_error(place.hf, ERR_NOT_FOUND, "no model.safetensors");
    put_text(place.hf, "pytorch_model.bin", "x");
    expect_error(place.hf, ERR_UNSUPPORTED, "pickled");
    put_text(place.hf, "model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../b\"}}");
    expect_error(place.hf, ERR_FORMAT, "no file name");
    put_text(place.hf, "model.safetensors.index.json", "{}");
    expect_error(place.hf, ERR_FORMAT, "weight_map");
    put_text(place.hf, "model.safetensors.index.json", "{\"weight_map\":{\"a\":\"b\"}}");
    expect_error(place.hf, ERR_NOT_FOUND, "/b");
    free(weights);
    place_drop(&place);
}

/* Moves model.safetensors aside as part 1 and adds an index that says so. */
static void test_an_index_joins_files(void **state)
{
    struct place place;
    struct small_model model = { .seed = 3, .skip = "lm_head.weight" };
    struct source source;
    struct err err = { 0 };
    struct safetensors_builder builder;
    struct buf file;
    uint32_t rows, cols;
    (void)state;
    place_make(&place);
    small_model_write_hf(&model, place.hf);
    char *whole = path_join(place.hf, "model.safetensors");
    char *first = path_join(place.hf, "one.safetensors"), *second = path_join(place.hf, "two");
    assert_true(file_rename(whole, first, &err));
    model.skip = NULL;
    float *head = small_model_values(&model, "lm_head.weight", &rows, &cols);
    safetensors_builder_init(&builder);
    safetensors_add(&builder, "lm_head.weight", "F32", (uint64_t[]){ rows, cols }, 2, head,
                    (size_t)rows * cols * sizeof *head);
    buf_init(&file, 1 << 20);
    safetensors_builder_finish(&builder, &file);
    assert_true(file_write_atomic(second, buf_view(&file), &err));
    put_text(place.hf, "model.safetensors.index.json",
             "{\"metadata\":{},\"weight_map\":{\"lm_head.weight\":\"two\","
             "\"model.norm.weight\":\"one.safetensors\"}}");
    open_or_fail(&source, place.hf);
    assert_int_equal(source.n_files, 2);
    check_values(&source, &model);
    source_close(&source);
    put_text(place.hf, "model.safetensors.index.json",
             "{\"weight_map\":{\"lm_head.weight\":\"one.safetensors\","
             "\"model.norm.weight\":\"two\"}}");
    expect_error(place.hf, ERR_FORMAT, "says that lm_head.weight is in one.safetensors; it is not");
    buf_release(&file);
    safetensors_builder_release(&builder);
    free(head);
    free(whole);
    free(first);
    free(second);
    place_drop(&place);
}

/* Writes `values` as lm_head.weight into a file of its own and an index that joins it. */
static void put_head(const char *directory, const float *values, uint32_t rows, uint32_t cols)
{
    struct safetensors_builder builder;
    struct buf file;
    struct err err = { 0 };
    char *path = path_join(directory, "head.safetensors");
    safetensors_builder_init(&builder);
    safetensors_add(&builder, "lm_head.weight", "F32", (uint64_t[]){ rows, cols }, 2, values,
                    (size_t)rows * cols * sizeof *values);
    buf_init(&file, 1 << 20);
    safetensors_builder_finish(&builder, &file);
    assert_true(file_write_atomic(path, buf_view(&file), &err));
    put_text(directory, "model.safetensors.index.json",
             "{\"weight_map\":{\"lm_head.weight\":\"head.safetensors\","
             "\"model.norm.weight\":\"model.safetensors\"}}");
    buf_release(&file);
    safetensors_builder_release(&builder);
    free(path);
}

static void test_a_head_beside_a_tied_embedding(void **state)
{
    struct place place;
    struct small_model model = { .seed = 5, .is_tied = true };
    struct source source;
    uint32_t rows, cols;
    (void)state;
    place_make(&place);
    small_model_write_hf(&model, place.hf);
    float *values = small_model_values(&model, "model.embed_tokens.weight", &rows, &cols);
    put_head(place.hf, values, rows, cols);
    open_or_fail(&source, place.hf); // the embedding again
    check_values(&source, &model);
    source_close(&source);
    values[rows * cols - 1] += 1;
    put_head(place.hf, values, rows, cols);
    expect_error(place.hf, ERR_FORMAT,
                 "lm_head.weight differs from model.embed_tokens.weight, and tie_word_embeddings");
    put_head(place.hf, values, rows - 1, cols);
    expect_error(place.hf, ERR_FORMAT, "lm_head.weight differs");
    free(values);
    place_drop(&place);
}

static void test_templates(void **state)
{
    struct place place;
    struct small_model model = { 0 };
    struct source source;
    struct buf text;
    struct err err = { 0 };
    const char *from;
    (void)state;
    place_make(&place);
    small_model_write_hf(&model, place.hf);
    open_or_fail(&source, place.hf);
    buf_init(&text, 1 << 16);
    assert_true(source_read_template(&source, &text, &from, &err));
    assert_true(text.size == 0 && from[0] == '\0');
    put_text(place.hf, "tokenizer_config.json", "{\"chat_template\":\"plain\"}");
    assert_true(source_read_template(&source, &text, &from, &err));
    assert_true(str_is(buf_view(&text), "plain"));
    assert_string_equal(from, "tokenizer_config.json");
    buf_clear(&text);
    put_text(place.hf, "tokenizer_config.json",
             "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"no\"},"
             "{\"name\":\"default\",\"template\":\"yes\"}]}");
    assert_true(source_read_template(&source, &text, &from, &err));
    assert_true(str_is(buf_view(&text), "yes"));
    buf_clear(&text);
    put_text(place.hf, "chat_template.jinja", "file");
    assert_true(source_read_template(&source, &text, &from, &err));
    assert_true(str_is(buf_view(&text), "file"));
    assert_string_equal(from, "chat_template.jinja");
    buf_release(&text);
    source_close(&source);
    place_drop(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_kinds_hold_the_model),
        cmocka_unit_test(test_tensors_that_do_not_fit),
        cmocka_unit_test(test_directories_that_are_no_model),
        cmocka_unit_test(test_an_index_joins_files),
        cmocka_unit_test(test_a_head_beside_a_tied_embedding),
        cmocka_unit_test(test_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
