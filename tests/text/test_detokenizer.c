#include "text/detokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "helpers/cm.h"
#include "helpers/small_tokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_mock.h"
#include "text/utf8_repair.h"

#define MARK "\xe2\x96\x81"

/* Pushes ids one by one; every piece must be whole UTF-8. The pieces are parted by '|'. */
static void assert_stream(const struct tokenizer *tokenizer, bool skip_special,
                          const uint32_t *context, size_t n_context, const uint32_t *ids, size_t n,
                          const char *expected)
{
    struct detokenizer detokenizer;
    struct buf out, all;
    buf_init(&out, 1 << 16);
    buf_init(&all, 1 << 16);
    buf_add(&all, "", 0);
    detokenizer_init(&detokenizer, tokenizer, skip_special, context, n_context);
    for (size_t i = 0; i <= n; i++) {
        buf_clear(&out);
        if (i < n)
            detokenizer_push(&detokenizer, ids[i], &out);
        else
            detokenizer_finish(&detokenizer, &out);
        assert_true(utf8_valid(buf_view(&out)));
        if (i < n || out.size)
            buf_printf(&all, "%.*s|", (int)out.size, out.data ? out.data : "");
    }
    assert_string_equal(all.data, expected);
    buf_release(&out);
    buf_release(&all);
}

#define ASSERT_BYTES(text, expected)                                                               \
    do {                                                                                           \
        uint32_t ids_[64];                                                                         \
        for (size_t i_ = 0; i_ < sizeof(text) - 1; i_++)                                           \
            ids_[i_] = (uint8_t)(text)[i_];                                                        \
        assert_stream(mock, false, NULL, 0, ids_, sizeof(text) - 1, expected);                     \
    } while (0)

static void test_characters_over_tokens(void **state)
{
    struct tokenizer *mock = tokenizer_load_mock();
    (void)state;
    ASSERT_BYTES("a\xc3\xa9", "a||\xc3\xa9|");
    ASSERT_BYTES("\xf0\x9f\x8e\x89", "|||\xf0\x9f\x8e\x89|");
    ASSERT_BYTES("\xe4\xb8\xad\xe6", "||\xe4\xb8\xad||\xef\xbf\xbd|"); // ends inside a character
    ASSERT_BYTES("\xffz", "\xef\xbf\xbd|z|");
    ASSERT_BYTES("\xe4\xb8z", "||\xef\xbf\xbdz|"); // one bad part, one sign
    ASSERT_BYTES("\xf0\x9f\xf0\x9f\x8e\x89", "||\xef\xbf\xbd|||\xf0\x9f\x8e\x89|");
    ASSERT_BYTES("\xed\xa0\x80", "|\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd|"); // no surrogates
    ASSERT_BYTES("\xe0\x80", "|\xef\xbf\xbd\xef\xbf\xbd|");
    tokenizer_free(mock);
}

static void test_a_nul_is_a_character(void **state)
{
    struct tokenizer *mock = tokenizer_load_mock();
    struct detokenizer detokenizer;
    struct buf out;
    (void)state;
    buf_init(&out, 100);
    detokenizer_init(&detokenizer, mock, true, NULL, 0);
    detokenizer_push(&detokenizer, 'a', &out);
    detokenizer_push(&detokenizer, 0, &out);
    detokenizer_push(&detokenizer, 'b', &out);
    assert_int_equal(out.size, 3);
    assert_memory_equal(out.data, "a\0b", 3);
    buf_release(&out);
    tokenizer_free(mock);
}

static void test_special_tokens(void **state)
{
    static const uint32_t ids[] = { TOKENIZER_MOCK_USER, 'h',  'i',  TOKENIZER_MOCK_END, 0xc3,
                                    TOKENIZER_MOCK_END,  0xa9, 99999 };
    struct tokenizer *mock = tokenizer_load_mock();
    (void)state;
    assert_stream(mock, true, NULL, 0, ids, 8, "|h|i||||\xc3\xa9||");
    assert_stream(mock, false, NULL, 0, ids, 6, "<|user|>|h|i|<|end|>||\xef\xbf\xbd<|end|>|");
    tokenizer_free(mock);
}

static void test_goes_on_where_the_context_ends(void **state)
{
    static const uint32_t context[] = { 'x', 0xf0, 0x9f, 0x8e };
    static const uint32_t ids[] = { 0x89, '!' };
    struct tokenizer *mock = tokenizer_load_mock();
    (void)state;
    assert_stream(mock, true, context, 4, ids, 2, "\xf0\x9f\x8e\x89|!|");
    assert_stream(mock, true, context, 2, ids, 2, "\xef\xbf\xbd\xef\xbf\xbd|!|");
    tokenizer_free(mock);
}

static void test_the_first_blank(void **state)
{
    const uint32_t hello = 290, the = 292, bos = 1, marks = 293, a = 260;
    struct tokenizer *tokenizer =
        small_tokenizer_load(&(struct small_tokenizer){ .merges = small_character_merges });
    (void)state;
    assert_stream(tokenizer, true, NULL, 0, (uint32_t[]){ bos, hello, the }, 3, "|hello| the|");
    assert_stream(tokenizer, false, NULL, 0, (uint32_t[]){ bos, hello }, 2, "<s>| hello|");
    assert_stream(tokenizer, true, (uint32_t[]){ bos }, 1, (uint32_t[]){ hello }, 1, "hello|");
    assert_stream(tokenizer, true, (uint32_t[]){ bos, the }, 2, (uint32_t[]){ hello }, 1,
                  " hello|");
    assert_stream(tokenizer, true, NULL, 0, (uint32_t[]){ marks, hello }, 2, " | hello|");
    assert_stream(tokenizer, true, NULL, 0, (uint32_t[]){ 259, 259, a }, 3,
                  "| |a|"); // one, not two
    uint32_t long_context[40];
    for (size_t i = 0; i < 40; i++)
        long_context[i] = 259;
    assert_stream(tokenizer, true, long_context, 40, (uint32_t[]){ hello }, 1, " hello|");
    tokenizer_free(tokenizer);
}

static void test_metaspace_drops_the_marks_of_the_first_token(void **state)
{
    struct small_tokenizer small = {
        .merges = small_character_merges,
        .normalizer = "null",
        .pretokenizer = "{\"type\": \"Metaspace\", \"replacement\": \"" MARK
                        "\", \"prepend_scheme\": \"always\"}",
        .decoder = "{\"type\": \"Metaspace\", \"replacement\": \"" MARK
                   "\", \"prepend_scheme\": \"always\"}",
    };
    struct tokenizer *tokenizer = small_tokenizer_load(&small);
    (void)state;
    assert_stream(tokenizer, true, NULL, 0, (uint32_t[]){ 293, 290, 292 }, 3, "| hello| the|");
    assert_stream(tokenizer, true, NULL, 0, (uint32_t[]){ 1, 290 }, 2, "|hello|");
    assert_stream(tokenizer, true, (uint32_t[]){ 260 }, 1, (uint32_t[]){ 290 }, 1, " hello|");
    tokenizer_free(tokenizer);
}

/* Random bytes in random pieces: the stream is the decoding of the whole. */
static void test_stream_is_the_whole(void **state)
{
    static const uint8_t pool[] = { 'a',  ' ',  0xc3, 0xa9, 0xe4, 0xb8, 0xad, 0xf0,
                                    0x9f, 0x8e, 0x89, 0xff, 0xed, 0x80, 0xc0 };
    struct tokenizer *mock = tokenizer_load_mock();
    uint32_t random = 5;
    (void)state;
    for (unsigned round = 0; round < 3000; round++) {
        struct detokenizer detokenizer;
        struct buf stream, whole, bytes;
        buf_init(&stream, 1 << 16);
        buf_init(&whole, 1 << 16);
        buf_init(&bytes, 1 << 16);
        detokenizer_init(&detokenizer, mock, true, NULL, 0);
        for (unsigned i = 0; i < round % 40; i++) {
            random = random * 1664525u + 1013904223u;
            const uint8_t byte = pool[(random >> 16) % sizeof pool];
            buf_add(&bytes, &byte, 1);
            detokenizer_push(&detokenizer, byte, &stream);
            assert_true(utf8_valid(buf_view(&stream)));
        }
        detokenizer_finish(&detokenizer, &stream);
        utf8_repair(buf_view(&bytes), &whole);
        assert_true(str_equal(buf_view(&stream), buf_view(&whole)));
        buf_release(&stream);
        buf_release(&whole);
        buf_release(&bytes);
    }
    tokenizer_free(mock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters_over_tokens),
        cmocka_unit_test(test_a_nul_is_a_character),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_goes_on_where_the_context_ends),
        cmocka_unit_test(test_the_first_blank),
        cmocka_unit_test(test_metaspace_drops_the_marks_of_the_first_token),
        cmocka_unit_test(test_stream_is_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
