#include "weights/manifest.h"

#include "helpers/cm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAP ((size_t)1 << 20)

/* Two layers of one norm each, and head.weights; sizes that agree with the shapes. */
struct example {
    struct manifest manifest;
    struct manifest_file files[4];
    struct manifest_tensor tensors[4];
    struct manifest_stage stages[2];
};

static void example_init(struct example *e)
{
    *e = (struct example){ 0 };
    for (uint32_t i = 0; i < 3; i++) {
        e->tensors[i] = (struct manifest_tensor){
            .source_name = STR("a \"name\""),
            .role = i < 2 ? TENSOR_ATTN_NORM : TENSOR_FINAL_NORM,
            .layer = i < 2 ? i : TENSOR_NO_LAYER,
            .format = QUANT_F32,
            .rows = 1,
            .cols = 16,
            .bytes = 64,
            .xxh3 = 0xfedcba9876543210u + i,
            .relative_error = 0.125,
        };
        e->files[i] = (struct manifest_file){ .bytes = 64, .tensors = &e->tensors[i] };
        e->files[i].n_tensors = 1;
    }
    e->files[0].name = STR("layer-000.weights");
    e->files[1].name = STR("layer-001.weights");
    e->files[2].name = STR("head.weights");
    e->files[3] = (struct manifest_file){ .name = STR("config.json"), .bytes = 5, .xxh3 = 9 };
    e->stages[0] = (struct manifest_stage){ 0, 1 };
    e->stages[1] = (struct manifest_stage){ 1, 2 };
    e->manifest = (struct manifest){
        .family = STR("llama"),
        .source = STR("{\"path\":\"x\"}"),
        .model = STR("{}"),
        .quantization = STR("int4"),
        .tool_version = STR("1"),
        .group_size = 32,
        .settings_hash = 77,
        .n_layers = 2,
        .is_tied = true,
        .stages = e->stages,
        .n_stages = 2,
        .files = e->files,
        .n_files = 4,
    };
}

static void test_what_is_written_is_read(void **state)
{
    struct example e;
    struct buf text;
    struct manifest back;
    struct err err = { 0 };
    (void)state;
    example_init(&e);
    buf_init(&text, CAP);
    manifest_write(&e.manifest, &text);
    if (!manifest_parse(&back, buf_view(&text), &err))
        fail_msg("%s", err.text);
    assert_true(str_is(back.family, "llama") && str_is(back.source, "{\"path\":\"x\"}"));
    assert_true(back.n_layers == 2 && back.is_tied && back.settings_hash == 77);
    assert_int_equal(back.n_files, 4);
    assert_int_equal(back.stages[1].layer_first, 1);
    const struct manifest_tensor *tensor = &back.files[1].tensors[0];
    assert_true(str_is(tensor->source_name, "a \"name\"") && tensor->layer == 1);
    assert_true(tensor->xxh3 == 0xfedcba9876543211u && tensor->relative_error == 0.125);
    assert_ptr_equal(manifest_find_file(&back, "head.weights"), &back.files[2]);
    assert_null(manifest_find_file(&back, "layer-002.weights"));
    /* written again it is the same text */
    struct buf again;
    buf_init(&again, CAP);
    manifest_write(&back, &again);
    assert_int_equal(again.size, text.size);
    assert_memory_equal(again.data, text.data, text.size);
    buf_release(&again);
    manifest_release(&back);
    buf_release(&text);
}

static void test_every_flipped_bit_is_found(void **state)
{
    struct example e;
    struct buf text;
    struct manifest back;
    (void)state;
    example_init(&e);
    buf_init(&text, CAP);
    manifest_write(&e.manifest, &text);
    for (size_t bit = 0; bit < 8 * text.size; bit++) {
        struct err err = { 0 };
        text.data[bit / 8] = (char)(text.data[bit / 8] ^ 1 << bit % 8);
        assert_false(manifest_parse(&back, buf_view(&text), &err));
        assert_int_not_equal(err.code, ERR_NONE);
        text.data[bit / 8] = (char)(text.data[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t size = 0; size < text.size; size++) {
        struct err err = { 0 };
        assert_false(manifest_parse(&back, (struct str){ text.data, size }, &err));
    }
    assert_true(manifest_parse(&back, buf_view(&text), &(struct err){ 0 }));
    manifest_release(&back);
    buf_release(&text);
}

/* Manifests that a wrong writer might write, hash and all. */
static void expect(const struct example *e, const char *words)
{
    struct buf text;
    struct manifest back;
    struct err err = { 0 };
    buf_init(&text, CAP);
    manifest_write(&e->manifest, &text);
    if (manifest_parse(&back, buf_view(&text), &err))
        fail_msg("expected \"%s\", but it was read", words);
    if (!strstr(err.text, words))
        fail_msg("expected \"%s\", got \"%s\"", words, err.text);
    buf_release(&text);
}

static void test_refusals(void **state)
{
    struct example e;
    (void)state;
    example_init(&e);
    e.tensors[0].bytes = 60;
    expect(&e, "layer-000.weights: tensor 0: \"bytes\" does not agree");
    example_init(&e);
    e.tensors[0].offset = 32;
    expect(&e, "not aligned or outside");
    example_init(&e);
    e.tensors[1].offset = (uint64_t)1 << 62;
    expect(&e, "not aligned or outside");
    example_init(&e);
    e.tensors[1].layer = 0;
    expect(&e, "it belongs into layer-000.weights");
    example_init(&e);
    e.tensors[1].layer = 2;
    expect(&e, "attn_norm has a wrong \"layer\"");
    example_init(&e);
    e.tensors[2].layer = 1;
    expect(&e, "final_norm has a wrong \"layer\"");
    example_init(&e);
    e.files[1].name = STR("layer-000.weights");
    expect(&e, "layer-000.weights is there twice");
    example_init(&e);
    e.files[3].name = STR("../config.json");
    expect(&e, "no plain file name");
    example_init(&e);
    e.files[3].name = STR("a/b");
    expect(&e, "no plain file name");
    example_init(&e);
    e.stages[1].layer_first = 0;
    expect(&e, "stage 1");
    example_init(&e);
    e.manifest.n_stages = 1;
    expect(&e, "ends at layer 1 of 2");
    example_init(&e);
    e.manifest.n_layers = 100000;
    expect(&e, "\"layers\"");
    example_init(&e);
    e.files[0].tensors = e.tensors;
    e.files[0].n_tensors = 2;
    e.files[0].bytes = 128;
    e.tensors[1] = e.tensors[0];
    e.tensors[1].offset = 64;
    e.manifest.n_files = 1;
    expect(&e, "layer 0 attn_norm is there twice");
    e.tensors[1].role = TENSOR_MLP_NORM;
    e.tensors[1].offset = 0;
    expect(&e, "layer 0 mlp_norm overlaps");
}

static void test_versions(void **state)
{
    struct manifest back;
    struct err err = { 0 };
    (void)state;
    assert_false(manifest_parse(&back, STR("{\"format\":\"cascadia-shard\",\"version\":2}"), &err));
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_false(manifest_parse(&back, STR("{\"format\":\"other\",\"version\":1}"), &err));
    assert_int_equal(err.code, ERR_FORMAT);
    assert_false(manifest_parse(&back, STR("{\"format\":\"cascadia-shard\",\"version\":1}"), &err));
    assert_non_null(strstr(err.text, "hash"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_every_flipped_bit_is_found),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
