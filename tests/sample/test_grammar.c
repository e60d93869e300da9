/* Masks against what they mean: a token is allowed exactly where the text may go on with it byte by
 * byte, which is found on another way (grammar_follow). Over the schemas of the corpus and grammars
 * that are hard to follow; along random texts. Then that texts end, and the ceilings. */
#include "sample/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "helpers/grammars.h"
#include "helpers/random_bits.h"
#include "sample/grammar_random.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_mock.h"

#include "helpers/cm.h"

#define TEXT_TOKENS 60
#define CORPUS_BYTES_CAP ((size_t)16 << 20)

static struct grammars grammars;

static int set_up(void **state)
{
    (void)state;
    grammars_open(&grammars);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    grammars_close(&grammars);
    return 0;
}

static bool is_allowed(const uint64_t *mask, uint32_t id)
{
    return mask[id >> 6] >> (id & 63) & 1;
}

/* Fails the test unless the mask is that of the place; returns how many tokens it allows. */
static uint32_t check_mask(struct grammar *grammar, const struct grammar_place *place,
                           const int32_t *ids, uint32_t n_ids, const uint64_t *mask)
{
    const uint32_t vocab_size = grammars.trie->vocab_size;
    int32_t next[TEXT_TOKENS + 1];
    uint32_t n_allowed = 0;
    memcpy(next, ids, n_ids * sizeof *ids);
    for (uint32_t id = 0; id < vocab_size; id++) {
        struct grammar_place after = *place;
        struct err err;
        next[n_ids] = (int32_t)id;
        const bool follows = grammar_follow(grammar, &after, next, n_ids + 1, &err);
        if (follows != is_allowed(mask, id))
            fail_msg("after %u tokens: token %u is %sallowed and does %sfollow", n_ids, id,
                     follows ? "not " : "", follows ? "" : "not ");
        n_allowed += follows;
    }
    return n_allowed;
}

/* The token drawn next: seldom a byte of a long run, so that texts get somewhere. */
static int32_t choose(const uint64_t *mask, uint32_t n_allowed, uint64_t *random)
{
    uint32_t wanted = (uint32_t)(random_bits(random) % n_allowed);
    for (uint32_t id = 0;; id++) {
        if (is_allowed(mask, id) && wanted-- == 0)
            return (int32_t)id;
    }
}

/* The place reached in one go is the one reached token by token. */
static void check_replay(struct grammar *grammar, const struct grammar_place *place,
                         const int32_t *ids, uint32_t n_ids)
{
    struct grammar_place again = { 0 };
    struct err err;
    assert_true(grammar_follow(grammar, &again, ids, n_ids, &err));
    assert_int_equal(again.n_configs, place->n_configs);
    assert_memory_equal(again.configs, place->configs, place->n_configs * sizeof again.configs[0]);
}

static void check_text(struct grammar *grammar, uint64_t seed)
{
    const size_t mask_bytes = (grammars.trie->vocab_size + 63) / 64 * sizeof(uint64_t);
    uint64_t *mask = malloc(mask_bytes);
    struct grammar_place place = { 0 };
    int32_t ids[TEXT_TOKENS + 1];
    struct err err = { 0 };
    for (uint32_t n_ids = 0; n_ids < TEXT_TOKENS; n_ids++) {
        if (!grammar_follow(grammar, &place, ids, n_ids, &err))
            fail_msg("%s", err.text);
        const uint64_t *lent = grammar_mask(grammar, &place, &err);
        if (lent == NULL)
            fail_msg("%s", err.text);
        memcpy(mask, lent, mask_bytes);
        const uint32_t n_allowed = check_mask(grammar, &place, ids, n_ids, mask);
        assert_true(n_allowed > 0);
        assert_true(is_allowed(mask, grammars.trie->end_ids[0]) ==
                    (grammar_may_end(grammar, &place) || place.has_ended));
        if (n_ids % 16 == 15 && !place.has_ended)
            check_replay(grammar, &place, ids, n_ids);
        ids[n_ids] = choose(mask, n_allowed, &seed);
    }
    free(mask);
}

static void test_masks_of_the_corpus(void **state)
{
    (void)state;
    struct buf corpus;
    struct err err = { 0 };
    struct str rest, line;
    uint32_t n_schemas = 0;
    buf_init(&corpus, CORPUS_BYTES_CAP);
    assert_true(file_read(SOURCE_DIR "/tests/sample/schemas.jsonl", &corpus, &err));
    rest = buf_view(&corpus);
    while (str_split(&rest, '\n', &line)) {
        if (line.size == 0)
            continue;
        const struct sampling_grammar source = { SAMPLING_GRAMMAR_JSON_SCHEMA, line };
        struct grammar *grammar = grammar_new(&source, grammars.trie, &err);
        if (grammar == NULL)
            fail_msg("%.*s: %s", STR_ARG(line), err.text);
        check_text(grammar, ++n_schemas);
        grammar_free(grammar);
    }
    assert_true(n_schemas >= 150);
    buf_release(&corpus);
}

/* Nested and side by side, in loops and out of them, with tokens that cross several frames. */
static const char *const hard_grammars[] = {
    "root ::= s\ns ::= \"(\" s \")\" s |",
    "root ::= a | b\na ::= \"(\" a \")\" | \"ab\"\nb ::= \"(\" b \")\" | \"abc\"",
    "root ::= v\nv ::= \"[\" (v (\",\" v){0,30})? \"]\" | [0-9]{1,60} | w\nw ::= \"a\" w \"b\" | "
    "\"c\"",
    "root ::= (x \",\"){20,40} x\nx ::= y{1,25} | \"(\" x \")\"\ny ::= [a-c1] z?\nz ::= \"\\\"\" y "
    "\"\\\"\" | "
    "\"-\"",
    "root ::= p\np ::= \"a\" p \"a\" | \"b\" p \"b\" | \"(\" p{1,70} \")\" | \"1\"",
    "root ::= ([a-z\"]{1,50} \",\"){3,90}",
    "root ::= l{2,}\nl ::= \"[\" [^\\]]{0,100} \"]\" | \"[\" l \"]\" | \"{\" l{60,} \"}\"",
    "root ::= a a a\na ::= (\"1\" | b)*\nb ::= \"(\" a \")\"",
};

static void test_masks_of_hard_grammars(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hard_grammars / sizeof hard_grammars[0]; i++) {
        struct grammar *grammar =
            grammars_compile(&grammars, SAMPLING_GRAMMAR_GBNF, hard_grammars[i]);
        for (uint64_t seed = 0; seed < 8; seed++)
            check_text(grammar, seed);
        grammar_free(grammar);
    }
}

/* From random logits every text ends, and is what it should be. */
static void test_texts_end(void **state)
{
    (void)state;
    const char *source =
        "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"k\":{\"type\":"
        "\"string\",\"maxLength\":30},\"v\":{}},\"required\":[\"k\"]}}";
    struct grammar *grammar = grammars_compile(&grammars, SAMPLING_GRAMMAR_JSON_SCHEMA, source);
    struct buf text;
    struct err err = { 0 };
    buf_init(&text, 1 << 20);
    for (uint64_t seed = 0; seed < 200; seed++) {
        const struct grammar_random_options options = { .seed = seed,
                                                        .n_random = (uint32_t)seed,
                                                        .n_tokens_cap = 5000 };
        buf_clear(&text);
        if (!grammar_random(grammar, grammars.trie, &options, &text, NULL, &err))
            fail_msg("seed %u: %s", (unsigned)seed, err.text);
        struct json *json = json_parse(buf_view(&text), &err);
        if (json == NULL && strstr(err.text, "duplicate") == NULL)
            fail_msg("%.*s: %s", STR_ARG(buf_view(&text)), err.text);
        json_free(json);
    }
    buf_release(&text);
    grammar_free(grammar);
}

/* An id that is not allowed is an error, and the place can be used again. */
static void test_wrong_ids(void **state)
{
    (void)state;
    struct grammar *grammar =
        grammars_compile(&grammars, SAMPLING_GRAMMAR_GBNF, "root ::= \"ab\"+");
    const int32_t end = (int32_t)grammars.trie->end_ids[0];
    const int32_t good[] = { 'a', 'b', end, end }, early[] = { 'a', end }, wrong[] = { 'a', 'a' },
                  beyond[] = { 'a', 9999999 }, after[] = { 'a', 'b', end, 'a' };
    const int32_t special[] = { end + 1 };
    struct grammar_place place = { 0 };
    struct err err = { 0 };
    assert_true(grammar_follow(grammar, &place, good, 4, &err));
    assert_true(place.has_ended);
    place = (struct grammar_place){ 0 };
    assert_false(grammar_follow(grammar, &place, early, 2, &err));
    assert_int_equal(err.code, ERR_BATCH_LOST);
    assert_false(grammar_follow(grammar, &place, wrong, 2, &err));
    assert_false(grammar_follow(grammar, &place, beyond, 2, &err));
    assert_false(grammar_follow(grammar, &place, after, 4, &err));
    assert_false(grammar_follow(grammar, &place, special, 1, &err)); // special: no text
    assert_true(grammar_follow(grammar, &place, good, 2, &err));
    assert_true(grammar_follow(grammar, &place, good, 1, &err)); // back
    assert_int_equal(place.n_ids, 1);
    grammar_free(grammar);
}

static bool follow_text(struct grammar *grammar, const char *pattern, size_t n_times,
                        struct err *err)
{
    const size_t size = strlen(pattern) * n_times;
    int32_t *ids = malloc(size * sizeof *ids);
    struct grammar_place place = { 0 };
    for (size_t i = 0; i < size; i++)
        ids[i] = (uint8_t)pattern[i % strlen(pattern)];
    const bool good = grammar_follow(grammar, &place, ids, (uint32_t)size, err) &&
                      grammar_mask(grammar, &place, err) != NULL;
    free(ids);
    return good;
}

static void test_ceilings(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct grammar *grammar = grammars_compile(&grammars, SAMPLING_GRAMMAR_JSON_SCHEMA, "true");
    assert_true(follow_text(grammar, "[", GRAMMAR_DEPTH_CAP / 2 - 2, &err));
    assert_false(follow_text(grammar, "[", 2 * GRAMMAR_DEPTH_CAP, &err));
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "nested more than 1000 levels"));
    grammar_free(grammar);

    /* After n letters the text has been read in n ways. */
    grammar =
        grammars_compile(&grammars, SAMPLING_GRAMMAR_GBNF,
                         "root ::= s\ns ::= \"a\" s [a-z]{1,30} | \"a\" s [0-9]{1,30} | \"a\"");
    assert_true(follow_text(grammar, "a", 3, &err));
    assert_false(follow_text(grammar, "a", 40, &err));
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "more than 256 ways"));
    grammar_free(grammar);
}

/* The memory of masks and stacks is bounded; when it is forgotten places are found again. */
static void test_forgetting(void **state)
{
    (void)state;
    struct grammar *grammar = grammars_compile(&grammars, SAMPLING_GRAMMAR_GBNF, hard_grammars[4]);
    struct err err = { 0 };
    const int32_t ids[] = { '(', 'a', 'b', '1', 'b', 'a', '1', ')' };
    struct grammar_place kept = { 0 }, place;
    assert_true(grammar_follow(grammar, &kept, ids, 5, &err));
    for (uint32_t i = 0; i < 3000; i++) { // each text has stacks of its own
        int32_t text[24] = { 0 };
        for (uint32_t bit = 0; bit < 20; bit++)
            text[bit] = "ab("[(i * 2654435761u >> bit) % 3];
        place = (struct grammar_place){ 0 };
        assert_true(grammar_follow(grammar, &place, text, 20, &err));
        assert_non_null(grammar_mask(grammar, &place, &err));
    }
    assert_true(grammar_follow(grammar, &kept, ids, 8, &err));
    assert_non_null(grammar_mask(grammar, &kept, &err));
    assert_true(grammar_may_end(grammar, &kept));
    grammar_free(grammar);
}

/* A vocabulary without bytes: only what its tokens can write, and no text gets stuck. */
static void test_vocabulary_without_bytes(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"vocab\": {\"<unk>\": 0, "
        "\"a\": 1, "
        "\"b\": 2, \"ab\": 3, \"\xc3\xa9\": 4, \"c\": 5, \"(\": 6, \")\": 7, \"))\": 8}, "
        "\"merges\": "
        "[\"a b\", \") )\"]}, "
        "\"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true}, "
        "{\"id\": 9, \"content\": \"<end>\", \"special\": true}], \"normalizer\": null, "
        "\"pre_tokenizer\": null, \"post_processor\": null, \"decoder\": {\"type\": \"Fuse\"}}";
    struct err err = { 0 };
    struct tokenizer *tokenizer = tokenizer_load_json(STR(text), STR_NONE, &err);
    if (tokenizer == NULL)
        fail_msg("%s", err.text);
    assert_true(tokenizer_add_end_id(tokenizer, 9, &err));
    struct token_trie *trie = token_trie_new(tokenizer, 10);
    assert_non_null(trie->characters);
    struct sampling_grammar source = {
        SAMPLING_GRAMMAR_GBNF, STR("root ::= \"(\" root \")\" | [a-z\xc3\xa8-\xc3\xaa]{3} | "
                                   "\"z\" root")
    };
    struct grammar *grammar = grammar_new(&source, trie, &err);
    if (grammar == NULL)
        fail_msg("%s", err.text);
    struct buf out;
    buf_init(&out, 1 << 16);
    for (uint64_t seed = 0; seed < 100; seed++) {
        const struct grammar_random_options options = { seed, 12, 200 };
        if (!grammar_random(grammar, trie, &options, &out, NULL, &err))
            fail_msg("seed %u: %s", (unsigned)seed, err.text);
    }
    assert_true(str_find_char(buf_view(&out), 'z') == SIZE_MAX);
    assert_true(str_find(buf_view(&out), STR("\xc3\xa9")) != SIZE_MAX);
    assert_true(str_find(buf_view(&out), STR("\xc3\xa8")) == SIZE_MAX);
    buf_release(&out);
    grammar_free(grammar);
    source.text = STR("root ::= \"x\" | \"\xc3\xa8\"");
    assert_null(grammar_new(&source, trie, &err));
    assert_non_null(strstr(err.text, "no text"));
    token_trie_free(trie);
    tokenizer_free(tokenizer);
}

static void test_the_mocks_vocabulary(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = tokenizer_load_mock();
    struct token_trie *trie = token_trie_new(tokenizer, TOKENIZER_MOCK_N_TOKENS);
    assert_int_equal(trie->n_tokens, 256);
    assert_int_equal(trie->n_nodes, 257);
    assert_null(trie->characters);
    assert_int_equal(trie->n_end_ids, 1);
    assert_int_equal(trie->end_ids[0], TOKENIZER_MOCK_END);
    token_trie_free(trie);
    tokenizer_free(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks_of_the_corpus),
        cmocka_unit_test(test_masks_of_hard_grammars),
        cmocka_unit_test(test_texts_end),
        cmocka_unit_test(test_wrong_ids),
        cmocka_unit_test(test_ceilings),
        cmocka_unit_test(test_forgetting),
        cmocka_unit_test(test_vocabulary_without_bytes),
        cmocka_unit_test(test_the_mocks_vocabulary),
    };
    return cmocka_run_group_tests_name("grammar", tests, set_up, tear_down);
}
