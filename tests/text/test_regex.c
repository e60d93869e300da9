#include "text/regex.h"

#include <stdlib.h>
#include <string.h>

#include "helpers/cm.h"

static void assert_finds(const char *pattern, const char *text, size_t first, size_t last)
{
    struct err err = { 0 };
    struct regex *regex = regex_new(str_from(pattern), &err);
    struct regex_state *state = regex_state_new();
    size_t have_first, have_last;
    if (!regex)
        fail_msg("%s", err.text);
    assert_int_equal(regex_find(regex, state, str_from(text), 0, &have_first, &have_last, &err),
                     REGEX_FOUND);
    assert_int_equal(have_first, first);
    assert_int_equal(have_last, last);
    regex_state_free(state);
    regex_free(regex);
}

static void test_means_what_oniguruma_means(void **state)
{
    (void)state;
    assert_finds("\\s+", "a\xe1\xa0\x8e b", 4, 5); // U+180E is no white space
    assert_finds("[^\\s]+", " \xe1\xa0\x8e ", 1, 4);
    assert_finds("\\p{Han}+", "\xe3\x80\x81\xe4\xb8\xad", 3, 6); // U+3001 is of no script
    assert_finds("\\w+", "-a\xcc\x81_9", 1, 6);                  // marks are of words
    assert_finds("[\\p{L}&&[^\\p{Han}]]+",
                 "\xe4\xb8\xad"
                 "ab\xe4\xb8\xad",
                 3, 5);
    assert_finds("(?i:'s|'t)", "x'S", 1, 3);
    assert_finds("\\d{1,3}", "a1234", 1, 4);
    assert_finds("[\\x{4e00}-\\u9fa5]+", "a\xe4\xb8\xad", 1, 4);
    assert_finds("b$", "ab\nc", 1, 2); // lines, as in Ruby
    assert_finds("[^\\D]+", "a12", 1, 3);
    assert_finds("a++b|c", "aac", 2, 3);
}

static void test_refuses_what_it_does_not_know(void **state)
{
    static const char *const patterns[] = { "\\h",      "a{,3}",  "a{2}+",      "[[:punct:]]",
                                            "[a[bc]]",  "[a&&b]", "(?<name>a)", "a(?i)b",
                                            "\\p{Foo}", "\\G",    "\\1",        "[\\W]",
                                            "a\\",      "[a",     "(*FAIL)",    "\\bx",
                                            "(a" };
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        struct err err = { 0 };
        struct regex *regex = regex_new(str_from(patterns[i]), &err);
        if (regex)
            fail_msg("%s", patterns[i]);
        assert_int_equal(err.code, ERR_UNSUPPORTED);
    }
}

/* The machine stack that the JIT takes by default ends here without a match. */
static void test_long_matches_need_no_luck(void **state)
{
    const size_t n = 1000000;
    char *text = malloc(n + 1);
    (void)state;
    assert_non_null(text);
    memset(text, 'a', n);
    text[n] = '\0';
    assert_finds("(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+", text, 0, n);
    free(text);
}

static void test_runaway_match_is_an_error(void **state)
{
    struct err err = { 0 };
    struct regex *regex = regex_new(STR("(a+)+d"), &err);
    struct regex_state *match = regex_state_new();
    size_t first, last;
    (void)state;
    assert_non_null(regex);
    const struct str text = STR("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaacd");
    assert_int_equal(regex_find(regex, match, text, 0, &first, &last, &err), REGEX_FAILED);
    assert_int_equal(err.code, ERR_ARGUMENT);
    regex_state_free(match);
    regex_free(regex);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_means_what_oniguruma_means),
        cmocka_unit_test(test_refuses_what_it_does_not_know),
        cmocka_unit_test(test_long_matches_need_no_luck),
        cmocka_unit_test(test_runaway_match_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
