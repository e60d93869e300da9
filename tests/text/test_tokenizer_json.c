#include "text/tokenizer_json.h"

#include <string.h>

#include "helpers/cm.h"
#include "helpers/small_tokenizer.h"
#include "text/tokenizer.h"

#define LEVEL "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}"

/* Loads a variant and expects a refusal whose sentence holds `words`. */
static void assert_refused(struct small_tokenizer small, enum err_code code, const char *words)
{
    struct buf text;
    struct err err = { 0 };
    buf_init(&text, 1 << 20);
    if (!small.merges)
        small.merges = small_byte_merges;
    small_tokenizer_write(&small, &text);
    struct tokenizer *tokenizer = tokenizer_load_json(buf_view(&text), STR_NONE, &err);
    buf_release(&text);
    if (tokenizer)
        fail_msg("loaded instead of: %s", words);
    if (err.code != code || !strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

static void test_refuses_by_name(void **state)
{
    (void)state;
    struct small_tokenizer s = { .byte_level = true };
    s.normalizer = "{\"type\": \"Precompiled\"}";
    assert_refused(s, ERR_UNSUPPORTED, "normalizer \"Precompiled\"");
    s.normalizer =
        "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"\\\\h\"}, \"content\": \"\"}";
    assert_refused(s, ERR_UNSUPPORTED, "\\h");
    s = (struct small_tokenizer){ .byte_level = true,
                                  .pretokenizer = "{\"type\": \"UnicodeScripts\"}" };
    assert_refused(s, ERR_UNSUPPORTED, "pre-tokenizer \"UnicodeScripts\"");
    s.pretokenizer =
        "{\"type\": \"Sequence\", \"pretokenizers\": [" LEVEL ", {\"type\": \"Digits\"}]}";
    assert_refused(s, ERR_UNSUPPORTED, "behind ByteLevel");
    s.pretokenizer = "{\"type\": \"Split\", \"behavior\": \"Isolated\"}";
    assert_refused(s, ERR_FORMAT, "no pattern");
    s = (struct small_tokenizer){ .byte_level = true, .decoder = "{\"type\": \"WordPiece\"}" };
    assert_refused(s, ERR_UNSUPPORTED, "decoder \"WordPiece\"");
    s.decoder = "null";
    assert_refused(s, ERR_UNSUPPORTED, "without a decoder");
    s = (struct small_tokenizer){ .byte_level = true, .processor = "{\"type\": \"Odd\"}" };
    assert_refused(s, ERR_UNSUPPORTED, "post-processor \"Odd\"");
    s.processor = "{\"type\": \"BertProcessing\", \"cls\": [\"x\", 99999], \"sep\": [\"y\", 1]}";
    assert_refused(s, ERR_FORMAT, "99999");
    s = (struct small_tokenizer){ .byte_level = true,
                                  .model = ", \"end_of_word_suffix\": \"</w>\"" };
    assert_refused(s, ERR_UNSUPPORTED, "end_of_word_suffix");
    s.model = ", \"dropout\": 0.1";
    assert_refused(s, ERR_UNSUPPORTED, "dropout");
    s = (struct small_tokenizer){ .byte_level = true, .added = "{\"content\": 5}" };
    assert_refused(s, ERR_FORMAT, "no content");
    static const struct small_merge twice[] = { { "a", "b" }, { "ab", "cd" }, { NULL, NULL } };
    s = (struct small_tokenizer){ .byte_level = true, .merges = twice };
    assert_refused(s, ERR_FORMAT, "not in the vocabulary");
}

static void assert_document_refused(const char *text, enum err_code code)
{
    struct err err = { 0 };
    struct tokenizer *tokenizer = tokenizer_load_json(str_from(text), STR_NONE, &err);
    assert_null(tokenizer);
    if (err.code != code)
        fail_msg("%s: %s", text, err.text);
}

static void test_refuses_what_is_no_tokenizer(void **state)
{
    (void)state;
    assert_document_refused("", ERR_FORMAT);
    assert_document_refused("[]", ERR_FORMAT);
    assert_document_refused("{\"model\": {\"type\": \"Unigram\"}}", ERR_UNSUPPORTED);
    assert_document_refused(
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}", ERR_FORMAT);
    assert_document_refused(
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 4294967295}, \"merges\": []}}",
        ERR_FORMAT);
    assert_document_refused(
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1, \"b\": 1}, \"merges\": []}}",
        ERR_FORMAT);
    assert_document_refused(
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1}, \"merges\": [\"a\"]}}", ERR_FORMAT);
}

/* What GPT-2's kind of file says differently from the newest: merges as strings, no model type. */
static void test_older_spelling(void **state)
{
    struct err err = { 0 };
    struct tokenizer *tokenizer =
        tokenizer_load_json(STR("{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, "
                                "\"\xc4\xa0\": 3}, \"merges\": [\"a b\"], "
                                "\"continuing_subword_prefix\": \"\"}, \"pre_tokenizer\": " LEVEL
                                ", \"decoder\": {\"type\": \"ByteLevel\"}}"),
                            STR_NONE, &err);
    (void)state;
    if (!tokenizer)
        fail_msg("%s", err.text);
    assert_small_ids(tokenizer, "ab ba", true, "2 3 1 0");
    assert_small_ids(tokenizer, "axb", true, "2"); // x is dropped before merging, as the peer does
    tokenizer_free(tokenizer);
}

static void test_special_ids_come_from_the_config(void **state)
{
    const struct small_tokenizer small = {
        .merges = small_character_merges,
        .added = "{\"content\": \"<|eot_id|>\", \"special\": true}\n{\"content\": \"[E]\", "
                 "\"special\": true}",
    };
    struct buf text;
    struct err err = { 0 };
    uint32_t id;
    size_t n;
    (void)state;
    buf_init(&text, 1 << 20);
    small_tokenizer_write(&small, &text);
    struct tokenizer *tokenizer = tokenizer_load_json(
        buf_view(&text),
        STR("{\"bos_token\": null, \"eos_token\": {\"content\": \"[E]\"}, \"model_max_length\": "
            "1000000000000000019884624838656, \"tokenizer_class\": \"LlamaTokenizerFast\"}"),
        &err);
    if (!tokenizer)
        fail_msg("%s", err.text);
    assert_false(tokenizer_bos(tokenizer, &id));
    /* </s> and <|eot_id|> are known by name, [E] from the config. */
    assert_memory_equal(tokenizer_end_ids(tokenizer, &n), ((uint32_t[]){ 2, 295, 296 }), 12);
    assert_int_equal(n, 3);
    tokenizer_free(tokenizer);
    tokenizer = tokenizer_load_json(buf_view(&text), STR_NONE, &err);
    assert_true(tokenizer_bos(tokenizer, &id) && id == 1);
    tokenizer_free(tokenizer);
    buf_release(&text);
}

/* In harmony <|end|> ends a message, and more messages follow. */
static void test_harmony_goes_on_after_end(void **state)
{
    struct small_tokenizer small = {
        .byte_level = true,
        .merges = small_byte_merges,
        .added = "{\"content\": \"<|end|>\", \"special\": true}\n{\"content\": \"<|return|>\", "
                 "\"special\": true}",
    };
    (void)state;
    struct tokenizer *tokenizer = small_tokenizer_load(&small);
    assert_true(tokenizer_is_end(tokenizer, 271) && tokenizer_is_end(tokenizer, 272));
    tokenizer_free(tokenizer);
    small.added = "{\"content\": \"<|end|>\", \"special\": true}\n{\"content\": \"<|return|>\", "
                  "\"special\": true}\n"
                  "{\"content\": \"<|call|>\", \"special\": true}";
    tokenizer = small_tokenizer_load(&small);
    assert_false(tokenizer_is_end(tokenizer, 271));
    assert_true(tokenizer_is_end(tokenizer, 272) && tokenizer_is_end(tokenizer, 273));
    tokenizer_free(tokenizer);
}

static void test_whole_pieces_first(void **state)
{
    static const struct small_merge merges[] = {
        { "a", "b" }, { "b", "c" }, { "a", "bc" }, { NULL, NULL }
    };
    struct small_tokenizer small = { .byte_level = true, .merges = merges };
    (void)state;
    struct tokenizer *tokenizer = small_tokenizer_load(&small);
    assert_small_ids(tokenizer, "abc", true, "256 99"); // merges never make the third
    tokenizer_free(tokenizer);
    small.model = ", \"ignore_merges\": true";
    tokenizer = small_tokenizer_load(&small);
    assert_small_ids(tokenizer, "abc", true, "258");
    tokenizer_free(tokenizer);
}

/* Merges that spell a control token are left out. */
static void test_merges_never_make_control_tokens(void **state)
{
    static const struct small_merge merges[] = { { "<", "e" }, { "<e", ">" }, { NULL, NULL } };
    const struct small_tokenizer small = {
        .byte_level = true,
        .merges = merges,
        .pretokenizer = LEVEL,
        .added = "{\"content\": \"<e>\", \"special\": true}",
    };
    (void)state;
    struct tokenizer *tokenizer = small_tokenizer_load(&small);
    assert_small_ids(tokenizer, "<e>", true, "257");
    assert_small_ids(tokenizer, "<e>", false, "256 62");
    tokenizer_free(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refuses_by_name),
        cmocka_unit_test(test_refuses_what_is_no_tokenizer),
        cmocka_unit_test(test_older_spelling),
        cmocka_unit_test(test_special_ids_come_from_the_config),
        cmocka_unit_test(test_harmony_goes_on_after_end),
        cmocka_unit_test(test_whole_pieces_first),
        cmocka_unit_test(test_merges_never_make_control_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
