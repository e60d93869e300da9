#include "text/tokenizer_bin.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "helpers/cm.h"
#include "helpers/small_tokenizer.h"
#include "helpers/temporary.h"
#include "text/tokenizer.h"
#include "text/tokenizer_image.h"

static const struct small_tokenizer small = {
    .merges = small_character_merges,
    .added = "{\"content\": \"<think>\", \"special\": false}\n{\"content\": \"<|im_end|>\", "
             "\"special\": true}",
    .pretokenizer =
        "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"x+\"}, \"behavior\": \"Isolated\"}",
};

static const char *const texts[] = { "hello the", "x\xe4\xb8\xad xx", "<think> a<|im_end|>", "" };

static void test_written_then_read_is_the_same(void **state)
{
    char *directory = temporary_dir();
    char *path = path_join(directory, "tokenizer.bin");
    struct err err = { 0 };
    struct tokenizer *made = small_tokenizer_load(&small);
    (void)state;
    assert_true(tokenizer_write_bin(made, path, &err));
    struct tokenizer *read = tokenizer_load_bin(path, &err);
    if (!read)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char *ids = small_tokenizer_ids(made, texts[i], true);
        assert_small_ids(read, texts[i], true, ids);
        free(ids);
    }
    size_t n;
    assert_memory_equal(tokenizer_end_ids(read, &n), tokenizer_end_ids(made, &n), 8);
    assert_int_equal(n, 2);
    assert_true(tokenizer_source_hash(read) == tokenizer_source_hash(made));
    tokenizer_free(made);
    tokenizer_free(read);
    free(path);
    temporary_remove(directory);
}

static struct tokenizer *open_copy(struct str image, struct err *err)
{
    char *copy = malloc(image.size ? image.size : 1);
    assert_non_null(copy);
    memcpy(copy, image.data, image.size);
    return tokenizer_open_memory(copy, image.size, err);
}

static void test_every_flipped_bit_is_found(void **state)
{
    struct tokenizer *made = small_tokenizer_load(&small);
    const struct str image = tokenizer_image(made);
    char *bytes = malloc(image.size);
    (void)state;
    assert_non_null(bytes);
    memcpy(bytes, image.data, image.size);
    for (size_t i = 0; i < image.size; i += i < 256 ? 1 : 97) {
        struct err err = { 0 };
        bytes[i] = (char)(bytes[i] ^ (1 << i % 8));
        assert_null(open_copy((struct str){ bytes, image.size }, &err));
        assert_true(err.code == ERR_CORRUPT || err.code == ERR_FORMAT ||
                    err.code == ERR_UNSUPPORTED);
        bytes[i] = image.data[i];
    }
    for (size_t cut = 0; cut < image.size; cut += 61) {
        struct err err = { 0 };
        assert_null(open_copy((struct str){ bytes, cut }, &err));
    }
    free(bytes);
    tokenizer_free(made);
}

/* With a right hash the checks alone must keep a bad image out, or make it harmless. */
static void test_damage_under_a_right_hash_is_harmless(void **state)
{
    struct tokenizer *made = small_tokenizer_load(&small);
    const struct str image = tokenizer_image(made);
    char *bytes = malloc(image.size);
    size_t n_refused = 0;
    (void)state;
    assert_non_null(bytes);
    for (size_t i = 8; i < image.size; i += i < 512 ? 1 : 37) {
        struct tokenizer_image_header header;
        struct err err = { 0 };
        memcpy(bytes, image.data, image.size);
        bytes[i] = (char)(bytes[i] ^ (i % 3 ? 0xff : 1));
        memcpy(&header, bytes, sizeof header);
        header.hash = tokenizer_image_hash((const uint8_t *)bytes, image.size);
        memcpy(bytes, &header, sizeof header);
        struct tokenizer *tokenizer = open_copy((struct str){ bytes, image.size }, &err);
        n_refused += !tokenizer;
        for (size_t t = 0; tokenizer && t < sizeof texts / sizeof texts[0]; t++)
            free(small_tokenizer_ids(tokenizer, texts[t], true));
        tokenizer_free(tokenizer);
    }
    assert_true(n_refused > 100);
    free(bytes);
    tokenizer_free(made);
}

static void test_no_file(void **state)
{
    struct err err = { 0 };
    (void)state;
    assert_null(tokenizer_load_bin("/nonexistent/tokenizer.bin", &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_null(tokenizer_load_bin("/dev/null", &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_then_read_is_the_same),
        cmocka_unit_test(test_every_flipped_bit_is_found),
        cmocka_unit_test(test_damage_under_a_right_hash_is_harmless),
        cmocka_unit_test(test_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
