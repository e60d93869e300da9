#include "weights/gguf.h"

#include "helpers/cm.h"
#include "helpers/model_files.h"

#include <stdlib.h>
#include <string.h>

#define CAP ((size_t)1 << 20)

/* A file with one value of each type, arrays, and two tensors. */
static void build_example(struct buf *out, uint32_t version)
{
    struct gguf_builder builder;
    float tensor[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    uint8_t blocks[36] = { 0 };
    gguf_builder_init(&builder);
    builder.version = version;
    int8_t i8 = -3;
    uint16_t u16 = 65535;
    int64_t i64 = -5000000000;
    uint64_t u64 = UINT64_MAX;
    double f64 = 0.1;
    uint8_t yes = 1;
    gguf_add_str(&builder, "s", "text");
    gguf_add_u32(&builder, "u32", 7);
    gguf_add_raw(&builder, "i8", 1, &i8, 1);
    gguf_add_raw(&builder, "u16", 2, &u16, 2);
    gguf_add_raw(&builder, "i64", 11, &i64, 8);
    gguf_add_raw(&builder, "u64", 10, &u64, 8);
    gguf_add_raw(&builder, "f64", 12, &f64, 8);
    gguf_add_f32(&builder, "f32", 0.5f);
    gguf_add_raw(&builder, "yes", 7, &yes, 1);
    gguf_add_raw(&builder, "strings", 9,
                 "\10\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0a\0\0\0\0\0\0\0\0", 4 + 8 + 9 + 8);
    gguf_add_raw(&builder, "i16s", 9, "\3\0\0\0\2\0\0\0\0\0\0\0\1\0\377\377", 16);
    gguf_add_raw(&builder, "nested", 9, "\11\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\1\2",
                 4 + 8 + 4 + 8 + 2);
    gguf_add_tensor(&builder, "w", 0, (uint64_t[]){ 4, 2 }, 2, tensor, sizeof tensor);
    gguf_add_tensor(&builder, "q", 2, (uint64_t[]){ 32, 2 }, 2, blocks, sizeof blocks);
    buf_init(out, CAP);
    gguf_builder_finish(&builder, out);
    gguf_builder_release(&builder);
}

static void test_every_type_is_read(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct buf file;
        struct gguf gguf;
        struct err err = { 0 };
        uint32_t u32 = 0;
        uint64_t u64 = 0;
        double number = 0;
        bool flag = false;
        struct str text;
        build_example(&file, version);
        if (!gguf_parse(&gguf, (const uint8_t *)file.data, file.size, &err))
            fail_msg("%s", err.text);
        assert_true(gguf_read_str(gguf_find(&gguf, "s"), &text) && str_is(text, "text"));
        assert_true(gguf_read_u32(gguf_find(&gguf, "u32"), &u32) && u32 == 7);
        assert_true(gguf_read_u32(gguf_find(&gguf, "u16"), &u32) && u32 == 65535);
        assert_true(gguf_read_u64(gguf_find(&gguf, "u64"), &u64) && u64 == UINT64_MAX);
        assert_false(gguf_read_u32(gguf_find(&gguf, "u64"), &u32)); // does not fit
        assert_false(gguf_read_u32(gguf_find(&gguf, "i8"), &u32));  // negative
        assert_int_equal(u32, 65535);
        assert_true(gguf_read_double(gguf_find(&gguf, "i8"), &number) && number == -3);
        assert_true(gguf_read_double(gguf_find(&gguf, "i64"), &number) && number == -5e9);
        assert_true(gguf_read_double(gguf_find(&gguf, "f32"), &number) && number == 0.5);
        assert_true(gguf_read_double(gguf_find(&gguf, "f64"), &number) && number == 0.1);
        assert_true(gguf_read_bool(gguf_find(&gguf, "yes"), &flag) && flag);
        assert_false(gguf_read_bool(gguf_find(&gguf, "u32"), &flag));
        assert_null(gguf_find(&gguf, "none"));
        assert_false(gguf_read_u32(NULL, &u32));
        gguf_close(&gguf);
        buf_release(&file);
    }
}

static void test_arrays(void **state)
{
    struct buf file;
    struct gguf gguf;
    struct err err = { 0 };
    struct str *strings;
    int64_t *integers;
    float *floats;
    size_t count;
    (void)state;
    build_example(&file, 3);
    assert_true(gguf_parse(&gguf, (const uint8_t *)file.data, file.size, &err));
    assert_true(gguf_read_strings(gguf_find(&gguf, "strings"), &strings, &count));
    assert_int_equal(count, 2);
    assert_true(str_is(strings[0], "a") && strings[1].size == 0);
    free(strings);
    assert_true(gguf_read_integers(gguf_find(&gguf, "i16s"), &integers, &count));
    assert_true(count == 2 && integers[0] == 1 && integers[1] == -1);
    free(integers);
    assert_true(gguf_read_floats(gguf_find(&gguf, "i16s"), &floats, &count));
    assert_true(count == 2 && floats[1] == -1);
    free(floats);
    assert_false(gguf_read_strings(gguf_find(&gguf, "i16s"), &strings, &count));
    assert_false(gguf_read_integers(gguf_find(&gguf, "nested"), &integers, &count));
    assert_false(gguf_read_floats(gguf_find(&gguf, "f32"), &floats, &count));
    assert_int_equal(gguf_find(&gguf, "nested")->item_type, GGUF_ARRAY);
    gguf_close(&gguf);
    buf_release(&file);
}

static void test_tensors(void **state)
{
    struct buf file;
    struct gguf gguf;
    struct err err = { 0 };
    (void)state;
    build_example(&file, 3);
    assert_true(gguf_parse(&gguf, (const uint8_t *)file.data, file.size, &err));
    assert_int_equal(gguf.n_tensors, 2);
    const struct gguf_tensor *w = gguf_find_tensor(&gguf, "w"), *q = gguf_find_tensor(&gguf, "q");
    float last;
    memcpy(&last, w->data + 28, 4);
    assert_true(w->bytes == 32 && w->dims[0] == 4 && w->dims[1] == 2 && last == 8);
    assert_int_equal(w->source, QUANT_SOURCE_F32);
    assert_int_equal(q->bytes, 36);
    assert_string_equal(q->type_name, "q4_0");
    assert_int_equal((q->data - (const uint8_t *)file.data) % 32, 0);
    assert_null(gguf_find_tensor(&gguf, "x"));
    gguf_close(&gguf);
    buf_release(&file);
}

/* Every way to be wrong has a sentence that names the thing. */
static void expect_error(struct gguf_builder *builder, enum err_code code, const char *words)
{
    struct buf file;
    struct gguf gguf;
    struct err err = { 0 };
    buf_init(&file, CAP);
    gguf_builder_finish(builder, &file);
    gguf_builder_release(builder);
    assert_false(gguf_parse(&gguf, (const uint8_t *)file.data, file.size, &err));
    if (err.code != code || !strstr(err.text, words))
        fail_msg("expected \"%s\", got %d \"%s\"", words, err.code, err.text);
    buf_release(&file);
}

static void test_refusals(void **state)
{
    struct gguf_builder b;
    uint8_t zeros[128] = { 0 };
    (void)state;
    gguf_builder_init(&b);
    b.version = 1;
    expect_error(&b, ERR_UNSUPPORTED, "version 1");
    gguf_builder_init(&b);
    b.version = 3u << 24;
    expect_error(&b, ERR_UNSUPPORTED, "big-endian");
    gguf_builder_init(&b);
    gguf_add_u32(&b, "k", 1);
    gguf_add_u32(&b, "k", 1);
    expect_error(&b, ERR_FORMAT, "k is there twice");
    gguf_builder_init(&b);
    gguf_add_raw(&b, "k", 13, zeros, 8);
    expect_error(&b, ERR_FORMAT, "k: cut short or of an unknown type");
    gguf_builder_init(&b);
    gguf_add_raw(&b, "k", 7, "\2", 1);
    expect_error(&b, ERR_FORMAT, "k: its value");
    gguf_builder_init(&b); // an array that says it is larger than the file
    gguf_add_raw(&b, "k", 9, "\0\0\0\0\377\377\377\377\377\377\377\177", 12);
    expect_error(&b, ERR_FORMAT, "k: its value");
    gguf_builder_init(&b); // arrays in arrays in arrays ...
    gguf_add_raw(&b, "k", 9,
                 "\11\0\0\0\1\0\0\0\0\0\0\0\11\0\0\0\1\0\0\0\0\0\0\0\11\0\0\0\1\0\0\0\0\0\0\0"
                 "\11\0\0\0\1\0\0\0\0\0\0\0\11\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                 72);
    expect_error(&b, ERR_FORMAT, "k: its value");
    gguf_builder_init(&b);
    b.n_values = (uint64_t)1 << 60;
    expect_error(&b, ERR_FORMAT, "metadata values cannot be");
    gguf_builder_init(&b);
    b.n_tensors = (uint64_t)1 << 60;
    expect_error(&b, ERR_FORMAT, "tensors cannot be");
    gguf_builder_init(&b);
    gguf_add_u32(&b, "general.alignment", 24);
    expect_error(&b, ERR_FORMAT, "power of two");
    gguf_builder_init(&b);
    gguf_add_tensor(&b, "t", 99, (uint64_t[]){ 4 }, 1, zeros, 16);
    expect_error(&b, ERR_UNSUPPORTED, "t has the unknown type 99");
    gguf_builder_init(&b);
    gguf_add_tensor(&b, "t", 2, (uint64_t[]){ 33 }, 1, zeros, 36);
    expect_error(&b, ERR_FORMAT, "impossible shape for q4_0");
    gguf_builder_init(&b);
    gguf_add_tensor(&b, "t", 0, (uint64_t[]){ (uint64_t)1 << 40, (uint64_t)1 << 40 }, 2, zeros, 4);
    expect_error(&b, ERR_FORMAT, "impossible shape");
    gguf_builder_init(&b);
    gguf_add_tensor(&b, "t", 0, (uint64_t[]){ 0 }, 1, zeros, 4);
    expect_error(&b, ERR_FORMAT, "impossible shape");
    gguf_builder_init(&b);
    gguf_add_tensor(&b, "t", 0, (uint64_t[]){ 1, 1, 1, 1, 1 }, 5, zeros, 4);
    expect_error(&b, ERR_FORMAT, "dimensions");
    gguf_builder_init(&b);
    gguf_add_tensor(&b, "t", 0, (uint64_t[]){ 4 }, 1, zeros, 16);
    gguf_add_tensor(&b, "t", 0, (uint64_t[]){ 4 }, 1, zeros, 16);
    expect_error(&b, ERR_FORMAT, "t is there twice");
    gguf_builder_init(&b);
    b.alignment = 16; // the file does not say so
    gguf_add_tensor(&b, "t", 0, (uint64_t[]){ 4 }, 1, zeros, 16);
    gguf_add_tensor(&b, "u", 0, (uint64_t[]){ 4 }, 1, zeros, 16);
    expect_error(&b, ERR_FORMAT, "u is not aligned");
    gguf_builder_init(&b);
    gguf_add_tensor(&b, "t", 0, (uint64_t[]){ 64 }, 1, zeros, 16);
    gguf_add_tensor(&b, "u", 0, (uint64_t[]){ 4 }, 1, zeros, 128);
    gguf_add_tensor(&b, "v", 0, (uint64_t[]){ 4 }, 1, zeros, 128);
    expect_error(&b, ERR_FORMAT, "t and u overlap");
    gguf_builder_init(&b);
    gguf_add_tensor(&b, "t", 0, (uint64_t[]){ 5 }, 1, zeros, 16);
    expect_error(&b, ERR_FORMAT, "reaches past the end");
}

/* A file cut at any byte is an error; it is never read past its end (asan watches). */
static void test_truncation(void **state)
{
    struct buf file;
    (void)state;
    build_example(&file, 3);
    for (size_t size = 0; size < file.size; size++) {
        struct gguf gguf;
        struct err err = { 0 };
        uint8_t *copy = malloc(size ? size : 1);
        assert_non_null(copy);
        memcpy(copy, file.data, size);
        assert_false(gguf_parse(&gguf, copy, size, &err));
        assert_int_not_equal(err.code, ERR_NONE);
        free(copy);
    }
    buf_release(&file);
}

static void test_empty_vocabulary_file(void **state)
{
    struct gguf_builder builder;
    struct buf file;
    struct gguf gguf;
    struct err err = { 0 };
    (void)state;
    gguf_builder_init(&builder);
    builder.alignment = 1; // no padding behind the metadata: there is no data
    gguf_add_str(&builder, "k", "v");
    buf_init(&file, CAP);
    gguf_builder_finish(&builder, &file);
    assert_true(gguf_parse(&gguf, (const uint8_t *)file.data, file.size, &err));
    gguf_close(&gguf);
    gguf_builder_release(&builder);
    buf_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_is_read),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_empty_vocabulary_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
