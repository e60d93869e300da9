/* Regular expressions: what they match, what of them is refused. */
#include "sample/pattern.h"

#include "helpers/grammars.h"

#include "helpers/cm.h"

#define TEXTS(...) ((const char *const[]){ __VA_ARGS__, NULL })

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

static void check(const char *source, const char *const *texts)
{
    assert_grammar(&grammars, SAMPLING_GRAMMAR_REGEX, source, texts);
}

static void test_constructs(void **state)
{
    (void)state;
    check("abc", TEXTS("+abc", "-ab", "-abcd", "-xabc"));
    check("^a|b$", TEXTS("+a", "+b", "-ab"));
    check("(a|bc)*d?", TEXTS("+", "+abcad", "+d", "-b"));
    check("a{2}b{1,}c{0,2}", TEXTS("+aab", "+aabbcc", "-ab", "-aabccc"));
    check("a+?b*?c??", TEXTS("+a", "+aabbc", "-b"));
    check("(?:x)(?<n>y)(?P<m>z)", TEXTS("+xyz", "-xy"));
    check("[a-c][^a-c]", TEXTS("+ad", "-ab"));
    check("[a\\]\\-b-d.]+", TEXTS("+a]-bcd.", "-e"));
    check(".", TEXTS("+a", "+\xc3\xa9", "-\n", "-\r", "-\xe2\x80\xa8"));
    check("\\.\\*\\/\\{", TEXTS("+.*/{"));
    check("\\x41\\u00e9\\u{1F642}\\ud83d\\ude42\\n\\t\\cA\\0", TEXTS("-A"));
    check("\\x41\\u00e9\\u{1F642}\\ud83d\\ude42\\n\\t\\cA",
          TEXTS("+A\xc3\xa9\xf0\x9f\x99\x82\xf0\x9f\x99\x82\n\t\x01"));
    check("", TEXTS("+", "-a"));
    check("a||b", TEXTS("+", "+a", "+b"));
}

/* Only what all dialects agree on: U+0661 is a digit to some, U+00E9 a word character to most. */
static void test_classes(void **state)
{
    (void)state;
    check("\\d", TEXTS("+5", "-a", "-\xd9\xa1"));
    check("\\D", TEXTS("+a", "+\xc3\xa9", "-5", "-\xd9\xa1"));
    check("\\w", TEXTS("+_", "+Z", "-\xc3\xa9", "--"));
    check("\\W", TEXTS("+-", "+\xe2\x82\xac", "-a", "-\xc3\xa9"));
    check("\\s", TEXTS("+ ", "+\v", "-\xc2\xa0"));
    check("\\S", TEXTS("+a", "+\xc3\xa9", "- ", "-\xc2\xa0", "-\x1c"));
    check("[\\d.]+", TEXTS("+1.5", "-\xd9\xa1"));
    check("[^\\d.]", TEXTS("+a", "-.", "-\xd9\xa1"));
    check("[^\\D]", TEXTS("+5", "-a", "-\xd9\xa1"));
    check("[\\s\\S]", TEXTS("+ ", "+a"));
    check("\\p{L}\\P{L}", TEXTS("+\xc3\xa9"
                                "5",
                                "-5a"));
    check("[\\p{N}x]", TEXTS("+\xd9\xa1", "+x", "-a"));
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        enum err_code code;
        const char *words;
    } wrong[] = {
        { "(?=a)b", ERR_UNSUPPORTED, "look-around" },
        { "(?<!a)b", ERR_UNSUPPORTED, "look-around" },
        { "(?i)a", ERR_UNSUPPORTED, "look-around and flags" },
        { "(a)\\1", ERR_UNSUPPORTED, "back references" },
        { "a\\b", ERR_UNSUPPORTED, "\\b" },
        { "a++", ERR_UNSUPPORTED, "possessive" },
        { "a^b", ERR_UNSUPPORTED, "^ is supported at the beginning" },
        { "(^a)", ERR_UNSUPPORTED, "^ is supported at the beginning" },
        { "\\p{Greek}", ERR_UNSUPPORTED, "\\p{L}" },
        { "[[:alpha:]]", ERR_UNSUPPORTED, "POSIX" },
        { "\\q", ERR_UNSUPPORTED, "escape" },
        { "a{10001}", ERR_UNSUPPORTED, "too long" },
        { "*a", ERR_ARGUMENT, "nothing to repeat" },
        { "a**", ERR_ARGUMENT, "nothing to repeat" },
        { "[z-a]", ERR_ARGUMENT, "ends before it begins" },
        { "a{,2}", ERR_ARGUMENT, "a number is missing" },
        { "a{3,1}", ERR_ARGUMENT, "ends before it begins" },
        { "[a", ERR_ARGUMENT, "] is missing" },
        { "(a", ERR_ARGUMENT, ") is missing" },
        { "a)", ERR_ARGUMENT, "closes nothing" },
        { "a\\", ERR_ARGUMENT, "missing behind" },
        { "\\xg", ERR_ARGUMENT, "hexadecimal" },
        { "\xff", ERR_ARGUMENT, "UTF-8" },
        { "[]", ERR_ARGUMENT, "no text that satisfies" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_no_grammar(SAMPLING_GRAMMAR_REGEX, wrong[i].source, wrong[i].code, wrong[i].words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constructs),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("pattern", tests, set_up, tear_down);
}
