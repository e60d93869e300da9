/* One compiled grammar a text, kept while it is used and for a while after. */
#include "sample/grammar_cache.h"

#include <stdio.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/tokenizer_mock.h"

#include "helpers/cm.h"

static struct sampling_grammar regex(const char *text)
{
    return (struct sampling_grammar){ SAMPLING_GRAMMAR_REGEX, str_from(text) };
}

static struct grammar *take(struct grammar_cache *cache, const char *text)
{
    const struct sampling_grammar source = regex(text);
    struct err err = { 0 };
    struct grammar *grammar = grammar_cache_take(cache, &source, &err);
    if (grammar == NULL)
        fail_msg("%s: %s", text, err.text);
    return grammar;
}

static void test_sharing(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = tokenizer_load_mock();
    struct grammar_cache *cache = grammar_cache_new(tokenizer, TOKENIZER_MOCK_N_TOKENS);
    struct grammar *a = take(cache, "a"), *b = take(cache, "b");
    char copy[] = "a";
    assert_ptr_equal(take(cache, copy), a); // by its text, not its place
    assert_ptr_not_equal(a, b);
    const struct sampling_grammar gbnf = { SAMPLING_GRAMMAR_GBNF, STR("a") };
    struct err err;
    assert_null(grammar_cache_take(cache, &gbnf, &err)); // another language: no grammar at all
    /* One that is used stays whatever comes after it. */
    grammar_cache_give(cache, b);
    grammar_cache_give(cache, NULL);
    for (int i = 0; i < 100; i++) {
        char text[16];
        snprintf(text, sizeof text, "x{%d}", i + 1);
        grammar_cache_give(cache, take(cache, text));
    }
    assert_ptr_equal(take(cache, "a"), a);
    struct grammar_place place = { 0 };
    const int32_t ids[] = { 'a' };
    assert_true(grammar_follow(a, &place, ids, 1, &err));
    grammar_cache_free(cache);
    tokenizer_free(tokenizer);
}

static void test_errors(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct grammar_cache *cache = grammar_cache_new(NULL, 100);
    const struct sampling_grammar source = regex("a"), bad = regex("(");
    assert_null(grammar_cache_take(cache, &source, &err));
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "no tokenizer"));
    grammar_cache_free(cache);
    struct tokenizer *tokenizer = tokenizer_load_mock();
    cache = grammar_cache_new(tokenizer, TOKENIZER_MOCK_N_TOKENS);
    assert_null(grammar_cache_take(cache, &bad, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    grammar_cache_free(cache);
    grammar_cache_free(NULL);
    tokenizer_free(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests_name("grammar_cache", tests, NULL, NULL);
}
