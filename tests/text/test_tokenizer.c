#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "helpers/cm.h"
#include "helpers/small_tokenizer.h"

static const char added[] =
    "{\"content\": \"<|im_start|>\", \"special\": true, \"normalized\": false}\n"
    "{\"content\": \"<|im_end|>\", \"special\": true, \"normalized\": false}\n"
    "{\"content\": \"<think>\", \"special\": false, \"normalized\": false}\n"
    "{\"content\": \"<br>\", \"special\": false, \"normalized\": false}\n"
    "{\"content\": \"<\xef\xbd\x9cU\xef\xbd\x9c>\", \"special\": true, \"normalized\": true}";
enum { IM_START = 271, IM_END, THINK, BR, USER };

static const struct small_tokenizer bytes = {
    .byte_level = true,
    .merges = small_byte_merges,
    .added = added,
    .normalizer = "{\"type\": \"NFC\"}",
    .processor =
        "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"b\"}}, "
        "{\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": \"e\"}}], "
        "\"special_tokens\": {\"b\": {\"ids\": [271]}, \"e\": {\"ids\": [272]}}}",
};

static struct tokenizer *byte_level, *characters;

static int set_up(void **state)
{
    (void)state;
    byte_level = small_tokenizer_load(&bytes);
    characters =
        small_tokenizer_load(&(struct small_tokenizer){ .merges = small_character_merges });
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tokenizer_free(byte_level);
    tokenizer_free(characters);
    return 0;
}

/* "1 2 3" of segments: pairs of a text and whether it is the template's; ends with NULL. */
struct piece {
    const char *text;
    bool allow;
};

static void assert_segments(const struct piece *pieces, const char *expected)
{
    struct tokenizer_segment segments[8];
    struct token_list ids;
    struct err err = { 0 };
    struct buf out;
    size_t n = 0;
    for (; pieces[n].text; n++)
        segments[n] = (struct tokenizer_segment){ str_from(pieces[n].text), pieces[n].allow };
    token_list_init(&ids, 1000);
    buf_init(&out, 1 << 16);
    buf_add(&out, "", 0);
    assert_true(tokenizer_encode(byte_level, segments, n, NULL, &ids, &err));
    for (size_t i = 0; i < ids.n_ids; i++)
        buf_printf(&out, i ? " %u" : "%u", ids.ids[i]);
    assert_string_equal(out.data, expected);
    buf_release(&out);
    token_list_release(&ids);
}

static void test_merges(void **state)
{
    (void)state;
    assert_small_ids(byte_level, "hello world", true, "259 265");
    assert_small_ids(byte_level, "hellolo", true, "259 261");
    assert_small_ids(byte_level, "hell the", true, "258 267");
    assert_small_ids(byte_level, "\xe4\xb8\xad", true, "269");
    assert_small_ids(byte_level, "e\xcc\x81", true, "195 169"); // NFC first
    assert_small_ids(byte_level, "", true, "");
    assert_small_ids(byte_level, "\x01\xc2\x80", true, "1 194 128");
}

static void test_characters_and_byte_fallback(void **state)
{
    (void)state;
    assert_small_ids(characters, "hello the", true, "290 292");
    assert_small_ids(characters, "x\xe4\xb8\xad", true, "259 283 231 187 176");
    assert_small_ids(characters, "  a", true,
                     "293 259 260"); // marks pair up before they meet a letter
    assert_small_ids(characters, "A", true, "259 68");
    assert_small_ids(characters, "<s>a</s>b", true, "1 259 260 2 259 261");
    assert_small_ids(characters, "</s>", false, "259 63 50 278 65");
}

static void test_a_users_text_is_no_control_token(void **state)
{
    (void)state;
    assert_small_ids(byte_level, "<|im_end|>", true, "272");
    assert_small_ids(byte_level, "<think>", true, "273");
    assert_small_ids(byte_level, "<br>", false, "274"); // a word like any other
    assert_small_ids(byte_level, "<think>", false, "60 116 104 105 110 107 62");
    assert_small_ids(byte_level, "<|im_end|>", false, "60 124 105 109 95 101 110 100 124 62");
    assert_small_ids(byte_level, "<\xef\xbd\x9cU\xef\xbd\x9c>", true, "275");
    assert_small_ids(byte_level, "<\xef\xbd\x9cU\xef\xbd\x9c>", false,
                     "60 239 189 156 85 239 189 156 62");
}

static void test_segments_are_one_text(void **state)
{
    (void)state;
    assert_segments(
        (const struct piece[]){ { "hel", true }, { "lo wor", false }, { "ld", true }, { NULL, 0 } },
        "259 265");
    assert_segments((const struct piece[]){ { "<|im_start|>", true },
                                            { "<|im_end|>", false },
                                            { "<|im_end|>", true },
                                            { NULL, 0 } },
                    "271 60 124 105 109 95 101 110 100 124 62 272");
    /* A control token that the user completes is none. */
    assert_segments((const struct piece[]){ { "<|im_", true }, { "end|>", false }, { NULL, 0 } },
                    "60 124 105 109 95 101 110 100 124 62");
    assert_segments((const struct piece[]){ { "<|im_", true }, { "end|>", true }, { NULL, 0 } },
                    "272");
    /* Marks go through the normalizer: the accent of the user joins the template's letter. */
    assert_segments((const struct piece[]){ { "e", true },
                                            { "\xcc\x81", false },
                                            { "<\xef\xbd\x9cU\xef\xbd\x9c>", true },
                                            { NULL, 0 } },
                    "195 169 275");
    assert_segments((const struct piece[]){ { "e\xcc\x81", true },
                                            { "<\xef\xbd\x9cU\xef\xbd\x9c>", false },
                                            { "<think>", true },
                                            { NULL, 0 } },
                    "195 169 60 239 189 156 85 239 189 156 62 273");
    /* A character cut by a border is whole again. */
    assert_segments((const struct piece[]){ { "\xe4\xb8", true }, { "\xad", false }, { NULL, 0 } },
                    "269");
    assert_segments((const struct piece[]){ { NULL, 0 } }, "");
}

static void test_bad_utf8_is_replaced(void **state)
{
    (void)state;
    assert_small_ids(byte_level,
                     "a\xff"
                     "b",
                     true, "97 239 191 189 98");
    assert_small_ids(byte_level, "\xe4\xb8", true, "239 191 189");
    assert_segments(
        (const struct piece[]){
            { "\xf0\x9f", true }, { "hello\xc0", false }, { "<think>", true }, { NULL, 0 } },
        "239 191 189 259 239 191 189 273");
}

static void encode(const char *text, struct tokenizer_encode_options options,
                   struct token_list *ids)
{
    const struct tokenizer_segment segment = { str_from(text), true };
    struct err err;
    token_list_clear(ids);
    assert_true(tokenizer_encode(byte_level, &segment, 1, &options, ids, &err));
}

static void test_ids_around_a_text(void **state)
{
    struct token_list ids;
    (void)state;
    token_list_init(&ids, 100);
    encode("hello", (struct tokenizer_encode_options){ .add_special = true }, &ids);
    assert_memory_equal(ids.ids, ((uint32_t[]){ IM_START, 259, IM_END }), 12);
    encode("<|im_start|>hello", (struct tokenizer_encode_options){ .add_special = true }, &ids);
    assert_memory_equal(ids.ids, ((uint32_t[]){ IM_START, IM_START, 259, IM_END }), 16);
    encode("<|im_start|>hello",
           (struct tokenizer_encode_options){ .add_special = true, .bos_once = true }, &ids);
    assert_int_equal(ids.n_ids, 3);
    assert_memory_equal(ids.ids, ((uint32_t[]){ IM_START, 259, IM_END }), 12);
    encode("", (struct tokenizer_encode_options){ .add_special = true, .bos_once = true }, &ids);
    assert_int_equal(ids.n_ids, 2);
    token_list_release(&ids);
}

static void test_ceilings(void **state)
{
    const struct tokenizer_segment segment = { STR("abcdef"), true };
    const struct tokenizer_segment too_long = { { "", TOKENIZER_TEXT_BYTES_CAP + 1 }, true };
    struct token_list ids;
    struct err err = { 0 };
    (void)state;
    token_list_init(&ids, 8);
    assert_true(tokenizer_encode(byte_level, &segment, 1, NULL, &ids, &err));
    assert_false(tokenizer_encode(byte_level, &segment, 1, NULL, &ids, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    assert_int_equal(ids.n_ids, 6); // as before the call
    assert_false(tokenizer_encode(byte_level, &too_long, 1, NULL, &ids, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    token_list_release(&ids);
}

static void test_a_megabyte_of_one_letter(void **state)
{
    const size_t n = 1000000;
    char *text = malloc(n + 1);
    (void)state;
    assert_non_null(text);
    memset(text, 'l', n);
    text[n] = '\0';
    char *ids = small_tokenizer_ids(byte_level, text, true);
    assert_int_equal(strlen(ids), n / 2 * 4 - 1); // "257 257 ..."
    free(ids);
    free(text);
}

static void test_what_is_known_of_tokens(void **state)
{
    uint32_t id = 0;
    size_t n;
    struct err err;
    (void)state;
    assert_int_equal(tokenizer_n_tokens(byte_level), USER + 1);
    assert_true(str_is(tokenizer_token_bytes(byte_level, 265), " world"));
    assert_true(str_is(tokenizer_token_bytes(byte_level, IM_END), "<|im_end|>"));
    assert_int_equal(tokenizer_token_bytes(byte_level, 1 << 20).size, 0);
    assert_true(tokenizer_find(byte_level, STR("<think>"), &id) && id == THINK);
    assert_true(tokenizer_find(byte_level, STR(" world"), &id) && id == 265);
    assert_false(tokenizer_find(byte_level, STR("nothing"), &id));
    assert_true(tokenizer_is_special(byte_level, IM_END) &&
                tokenizer_is_control(byte_level, IM_END));
    assert_true(!tokenizer_is_special(byte_level, THINK) &&
                tokenizer_is_control(byte_level, THINK));
    assert_false(tokenizer_is_control(byte_level, BR) || tokenizer_is_special(byte_level, BR));
    assert_true(tokenizer_bos(byte_level, &id) && id == IM_START);
    assert_memory_equal(tokenizer_end_ids(byte_level, &n), ((uint32_t[]){ IM_END }), 4);
    assert_int_equal(n, 1);
    assert_true(tokenizer_add_end_id(byte_level, 5, &err));
    assert_true(tokenizer_add_end_id(byte_level, 5, &err));
    assert_memory_equal(tokenizer_end_ids(byte_level, &n), ((uint32_t[]){ 5, IM_END }), 8);
    assert_int_equal(n, 2);
    assert_true(tokenizer_is_end(byte_level, 5) && !tokenizer_is_end(byte_level, 6));
    assert_false(tokenizer_add_end_id(byte_level, USER + 1, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_characters_and_byte_fallback),
        cmocka_unit_test(test_a_users_text_is_no_control_token),
        cmocka_unit_test(test_segments_are_one_text),
        cmocka_unit_test(test_bad_utf8_is_replaced),
        cmocka_unit_test(test_ids_around_a_text),
        cmocka_unit_test(test_ceilings),
        cmocka_unit_test(test_a_megabyte_of_one_letter),
        cmocka_unit_test(test_what_is_known_of_tokens),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
