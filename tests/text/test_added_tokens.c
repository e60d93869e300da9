#include "text/added_tokens.h"

#include <string.h>

#include "base/buf.h"
#include "helpers/cm.h"

/* Sorted by content, as an image has them. */
static const char bytes[] = "<a><ab><abc>_word|left|right";
static const struct added_token tokens[] = {
    { .first = 0, .size = 3, .id = 1, .flags = ADDED_TOKEN_CONTROL },      // <a>
    { .first = 3, .size = 3, .id = 2 },                                    // <ab
    { .first = 7, .size = 5, .id = 3, .flags = ADDED_TOKEN_CONTROL },      // <abc>
    { .first = 12, .size = 5, .id = 4, .flags = ADDED_TOKEN_SINGLE_WORD }, // _word
    { .first = 17, .size = 5, .id = 5, .flags = ADDED_TOKEN_LEFT_STRIP },  // |left
    { .first = 22, .size = 6, .id = 6, .flags = ADDED_TOKEN_RIGHT_STRIP }, // |right
};

/* "3:0-5 " for each match. */
static void assert_matches(const char *text, const char *marks, bool allow_control,
                           const char *expected)
{
    struct added_tokens added = { .tokens = tokens, .n_tokens = 6, .bytes = bytes };
    uint8_t mark_bytes[64];
    struct marked_text marked = { .text = str_from(text) };
    struct buf out;
    struct added_match match;
    size_t from = 0;
    added_tokens_index(&added);
    for (size_t i = 0; marks && marks[i]; i++)
        mark_bytes[i] = marks[i] == '1';
    if (marks)
        marked.marks = mark_bytes;
    buf_init(&out, 1 << 16);
    buf_add(&out, "", 0);
    while (added_tokens_find(&added, marked, allow_control, &from, &match))
        buf_printf(&out, "%u:%zu-%zu ", match.id, match.first, match.last);
    assert_int_equal(from, strlen(text));
    assert_string_equal(out.data, expected);
    buf_release(&out);
}

static void test_longest_wins(void **state)
{
    (void)state;
    assert_matches("x<abc><a><ab", NULL, true, "3:1-6 1:6-9 2:9-12 ");
    assert_matches("<ab<a", NULL, true, "2:0-3 ");
    assert_matches("<<<", NULL, true, "");
    assert_matches("", NULL, true, "");
}

static void test_control_only_where_allowed(void **state)
{
    (void)state;
    assert_matches("<abc><a>", NULL, false, "2:0-3 ");
    assert_matches("<abc><a>", "11111111", false, "3:0-5 1:5-8 ");
    assert_matches("<abc><a>", "11110111", false, "2:0-3 1:5-8 "); // one byte is the user's
    assert_matches("<abc><a>", "01111011", false, "2:0-3 ");
    assert_matches("<abc><a>", "00000111", true, "2:0-3 1:5-8 ");
}

static void test_white_space_and_words(void **state)
{
    (void)state;
    assert_matches("a_word b", NULL, true, "");
    assert_matches("-_word b", NULL, true, "4:1-6 ");
    assert_matches("_words", NULL, true, "");
    assert_matches("a \xc2\xa0|left  b", NULL, true, "5:1-9 ");
    assert_matches("a |right \n b", NULL, true, "6:2-11 ");
    assert_matches("|right  |left", NULL, true, "6:0-8 5:8-13 "); // never past the match before
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest_wins),
        cmocka_unit_test(test_control_only_where_allowed),
        cmocka_unit_test(test_white_space_and_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
