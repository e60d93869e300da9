#include "weights/safetensors.h"

#include "helpers/cm.h"
#include "helpers/model_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAP ((size_t)1 << 20)

static const struct {
    const char *name;
    uint32_t bits;
    enum quant_source source;
} dtypes[] = {
    { "F64", 64, QUANT_SOURCE_F64 },        { "F32", 32, QUANT_SOURCE_F32 },
    { "F16", 16, QUANT_SOURCE_F16 },        { "BF16", 16, QUANT_SOURCE_BF16 },
    { "F8_E4M3", 8, QUANT_SOURCE_F8_E4M3 }, { "F8_E5M2", 8, QUANT_SOURCE_F8_E5M2 },
    { "I64", 64, QUANT_SOURCE_COUNT },      { "I32", 32, QUANT_SOURCE_COUNT },
    { "I16", 16, QUANT_SOURCE_COUNT },      { "I8", 8, QUANT_SOURCE_COUNT },
    { "U64", 64, QUANT_SOURCE_COUNT },      { "U32", 32, QUANT_SOURCE_COUNT },
    { "U16", 16, QUANT_SOURCE_COUNT },      { "U8", 8, QUANT_SOURCE_COUNT },
    { "BOOL", 8, QUANT_SOURCE_COUNT },      { "C64", 64, QUANT_SOURCE_COUNT },
    { "F8_E8M0", 8, QUANT_SOURCE_COUNT },   { "F8_E4M3FNUZ", 8, QUANT_SOURCE_COUNT },
    { "F4", 4, QUANT_SOURCE_COUNT },        { "F8_E5M2FNUZ", 8, QUANT_SOURCE_COUNT },
    { "F6_E2M3", 6, QUANT_SOURCE_COUNT },   { "F6_E3M2", 6, QUANT_SOURCE_COUNT },
};
#define N_DTYPES (sizeof dtypes / sizeof dtypes[0])

static void test_every_dtype_is_read(void **state)
{
    struct safetensors_builder builder;
    struct safetensors st;
    struct buf file;
    struct err err = { 0 };
    uint8_t bytes[64];
    (void)state;
    memset(bytes, 7, sizeof bytes);
    safetensors_builder_init(&builder);
    for (size_t i = 0; i < N_DTYPES; i++)
        safetensors_add(&builder, dtypes[i].name, dtypes[i].name, (uint64_t[]){ 2, 4 }, 2, bytes,
                        dtypes[i].bits);
    safetensors_add(&builder, "scalar", "F32", NULL, 0, bytes, 4);
    safetensors_add(&builder, "nothing", "F32", (uint64_t[]){ 0, 5 }, 2, bytes, 0);
    buf_init(&file, CAP);
    safetensors_builder_finish(&builder, &file);
    if (!safetensors_parse(&st, (const uint8_t *)file.data, file.size, &err))
        fail_msg("%s", err.text);
    assert_int_equal(st.n_tensors, N_DTYPES + 2);
    for (size_t i = 0; i < N_DTYPES; i++) {
        const struct safetensors_tensor *t = safetensors_find(&st, str_from(dtypes[i].name));
        assert_non_null(t);
        assert_int_equal(t->bytes, dtypes[i].bits);
        assert_int_equal(t->source, dtypes[i].source);
        assert_true(t->n_dims == 2 && t->dims[0] == 2 && t->dims[1] == 4 && t->data[0] == 7);
    }
    assert_int_equal(safetensors_find(&st, STR("scalar"))->n_dims, 0);
    assert_null(safetensors_find(&st, STR("none")));
    safetensors_close(&st);
    safetensors_builder_release(&builder);
    buf_release(&file);
}

/* A file of a header text and so many zero bytes of data. */
static void make_file(struct buf *file, const char *header, size_t data_bytes)
{
    uint64_t size = strlen(header);
    buf_init(file, CAP);
    buf_add(file, &size, sizeof size);
    buf_add_text(file, header);
    for (size_t i = 0; i < data_bytes; i++)
        buf_add_char(file, 0);
}

static void expect(const char *header, size_t data_bytes, const char *words)
{
    struct buf file;
    struct safetensors st;
    struct err err = { 0 };
    make_file(&file, header, data_bytes);
    bool good = safetensors_parse(&st, (const uint8_t *)file.data, file.size, &err);
    if (good != (words == NULL))
        fail_msg("%s: %s", header, good ? "was read" : err.text);
    if (words && !strstr(err.text, words))
        fail_msg("%s: expected \"%s\", got \"%s\"", header, words, err.text);
    safetensors_close(&st);
    buf_release(&file);
}

#define T(name, rest) "\"" name "\":{\"dtype\":\"F32\"," rest "}"

static void test_headers(void **state)
{
    (void)state;
    expect("{" T("a", "\"shape\":[2],\"data_offsets\":[0,8]") "}", 8, NULL);
    expect("{\"__metadata__\":{\"format\":\"pt\"}," T("a",
                                                      "\"shape\":[2],\"data_offsets\":[0,8]") "}  ",
           8, NULL);
    expect("{}", 0, NULL);
    expect("[]", 0, "no object");
    expect("{", 0, "JSON");
    expect("{" T("a", "\"shape\":[2],\"data_offsets\":[0,8]") "}", 9, "belong to no tensor");
    expect("{" T("a", "\"shape\":[2],\"data_offsets\":[0,8]") "}", 7, "past the end");
    expect("{" T("a", "\"shape\":[3],\"data_offsets\":[0,8]") "}", 8, "its shape says 12");
    expect("{" T("a", "\"shape\":[2],\"data_offsets\":[8,0]") "}", 8, "not a range");
    expect("{" T("a", "\"shape\":[2],\"data_offsets\":[0]") "}", 8, "not a range");
    expect("{" T("a", "\"shape\":[-2],\"data_offsets\":[0,8]") "}", 8, "its shape is not one");
    expect("{" T("a", "\"shape\":2,\"data_offsets\":[0,8]") "}", 8, "its shape is not one");
    expect("{" T("a", "\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]") "}", 8,
           "its shape is not one");
    expect("{" T("a", "\"shape\":[1],\"data_offsets\":[0,4]") "," T(
               "b", "\"shape\":[1],\"data_offsets\":[0,4]") "}",
           4, "overlaps");
    expect("{" T("a", "\"shape\":[1],\"data_offsets\":[0,4]") "," T(
               "b", "\"shape\":[1],\"data_offsets\":[8,12]") "}",
           12, "leaves a gap");
    expect("{" T("a", "\"shape\":[1],\"data_offsets\":[0,4]") "," T(
               "a", "\"shape\":[1],\"data_offsets\":[4,8]") "}",
           8, "JSON");
    expect("{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
           "unknown dtype F33");
    expect("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no dtype");
    expect("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "its shape");
    expect("{\"a\":7}", 0, "no dtype");
}

static void test_lengths(void **state)
{
    struct buf file;
    struct safetensors st;
    struct err err = { 0 };
    (void)state;
    make_file(&file, "{" T("a", "\"shape\":[2],\"data_offsets\":[0,8]") "}", 8);
    for (size_t size = 0; size < file.size; size++) {
        uint8_t *copy = malloc(size ? size : 1);
        assert_non_null(copy);
        memcpy(copy, file.data, size);
        assert_false(safetensors_parse(&st, copy, size, &err));
        free(copy);
    }
    memset(file.data, 0xff, 8); // a header of 2^64 - 1 bytes
    assert_false(safetensors_parse(&st, (const uint8_t *)file.data, file.size, &err));
    assert_int_equal(err.code, ERR_FORMAT);
    buf_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_dtype_is_read),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
