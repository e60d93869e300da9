#include "text/normalizer.h"

#include <stdlib.h>
#include <string.h>

#include "helpers/cm.h"

static void assert_normal(struct normalizer_rule rule, const char *in, const char *expected)
{
    struct err err = { 0 };
    struct normalizer *normalizer = normalizer_new(&rule, 1, &err);
    struct normalizer_scratch *scratch = normalizer_scratch_new();
    struct marked_text out;
    assert_non_null(normalizer);
    assert_true(normalizer_run(normalizer, scratch, (struct marked_text){ .text = str_from(in) },
                               1 << 20, &out, &err));
    if (!str_is(out.text, expected))
        fail_msg("\"%s\" became \"%.*s\"", in, STR_ARG(out.text));
    normalizer_scratch_free(scratch);
    normalizer_free(normalizer);
}

static struct normalizer_rule form(enum normalizer_kind kind)
{
    return (struct normalizer_rule){ .kind = kind };
}

static void test_normal_forms(void **state)
{
    (void)state;
    assert_normal(form(NORMALIZER_NFC), "plain", "plain");
    assert_normal(form(NORMALIZER_NFC), "e\xcc\x81x", "\xc3\xa9x");
    assert_normal(form(NORMALIZER_NFC), "\xe2\x84\xab", "\xc3\x85");              // angstrom sign
    assert_normal(form(NORMALIZER_NFC), "a\xcc\x95\xcc\x80", "\xc3\xa0\xcc\x95"); // reordered
    assert_normal(form(NORMALIZER_NFC), "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81");
    assert_normal(form(NORMALIZER_NFC), "\xea\xb0\x80\xe1\x86\xa8", "\xea\xb0\x81"); // LV + T
    assert_normal(form(NORMALIZER_NFD), "\xc3\xa9 \xea\xb0\x81",
                  "e\xcc\x81 \xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8");
    assert_normal(form(NORMALIZER_NFKC), "\xef\xac\x81 \xe2\x85\xa7", "fi VIII");
    assert_normal(form(NORMALIZER_NFKC), "\xef\xbd\xb6\xef\xbe\x9e", "\xe3\x82\xac"); // half width
    assert_normal(form(NORMALIZER_NFKD), "\xc2\xbd",
                  "1\xe2\x81\x84"
                  "2");
    assert_normal(form(NORMALIZER_LOWERCASE),
                  "\xc4\xb0\xc3\x89"
                  "A",
                  "i\xcc\x87\xc3\xa9"
                  "a");
}

/* Marks that came after Unicode 9 are not reordered, as the peer does not know them. */
static void test_normal_forms_are_those_of_unicode_9(void **state)
{
    (void)state;
    assert_normal(form(NORMALIZER_NFC), "a\xcc\x95\xe0\xba\xba", "a\xcc\x95\xe0\xba\xba");
}

static void test_rewriting(void **state)
{
    (void)state;
    assert_normal((struct normalizer_rule){ .kind = NORMALIZER_PREPEND, .with = STR("_") }, "a",
                  "_a");
    assert_normal((struct normalizer_rule){ .kind = NORMALIZER_PREPEND, .with = STR("_") }, "", "");
    assert_normal(
        (struct normalizer_rule){ NORMALIZER_REPLACE, .find = STR("aa"), .with = STR("b") },
        "aaaxa", "baxa");
    assert_normal(
        (struct normalizer_rule){ NORMALIZER_REPLACE_REGEX, .find = STR("\\s+"), .with = STR("-") },
        " a \n b", "-a-b");
    assert_normal(
        (struct normalizer_rule){ NORMALIZER_REPLACE_REGEX, .find = STR("x*"), .with = STR("-") },
        "axb", "-a-b-");
    assert_normal((struct normalizer_rule){ .kind = NORMALIZER_STRIP, .left = true },
                  " \xc2\xa0 a ", "a ");
    assert_normal((struct normalizer_rule){ .kind = NORMALIZER_STRIP, .left = true, .right = true },
                  " a\xe3\x80\x80", "a");
    assert_normal((struct normalizer_rule){ .kind = NORMALIZER_STRIP, .left = true, .right = true },
                  "  ", "");
}

/* What is made of bytes of both kinds is not marked. */
static void test_marks_follow(void **state)
{
    const struct normalizer_rule rules[] = {
        { .kind = NORMALIZER_NFC },
        { .kind = NORMALIZER_PREPEND, .with = STR("_") },
        { .kind = NORMALIZER_REPLACE, .find = STR("xy"), .with = STR("12345") },
    };
    const uint8_t marks[] = { 1, 0, 0, 1, 1, 1, 0, 1, 1 };
    const uint8_t expected[] = { 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1 };
    struct err err;
    struct normalizer *normalizer = normalizer_new(rules, 3, &err);
    struct normalizer_scratch *scratch = normalizer_scratch_new();
    struct marked_text out;
    (void)state;
    assert_true(normalizer_run(normalizer, scratch,
                               (struct marked_text){ STR("e\xcc\x81xyxyzw"), marks }, 1 << 20, &out,
                               &err));
    /* e (marked) and its accent (not) join to one unmarked character. */
    assert_true(str_is(out.text, "_\xc3\xa9"
                                 "1234512345zw"));
    assert_int_equal(out.text.size, sizeof expected);
    assert_memory_equal(out.marks, expected, sizeof expected);
    normalizer_scratch_free(scratch);
    normalizer_free(normalizer);
}

/* Alternating marks must be sorted; exchanging neighbours takes minutes for this many. */
static void test_a_run_of_marks_is_not_quadratic(void **state)
{
    const size_t n = 200000;
    char *text = malloc(4 * n + 2);
    const struct normalizer_rule rule = { .kind = NORMALIZER_NFC };
    struct err err;
    struct normalizer *normalizer = normalizer_new(&rule, 1, &err);
    struct normalizer_scratch *scratch = normalizer_scratch_new();
    struct marked_text out;
    (void)state;
    assert_non_null(text);
    text[0] = 'q';
    for (size_t i = 0; i < n; i++)
        memcpy(text + 1 + 4 * i, "\xcc\x95\xcc\x96", 4); // classes 232 and 220
    assert_true(normalizer_run(normalizer, scratch,
                               (struct marked_text){ .text = { text, 4 * n + 1 } }, 8 * n, &out,
                               &err));
    assert_int_equal(out.text.size, 4 * n + 1);
    assert_memory_equal(out.text.data + 1, "\xcc\x96\xcc\x96", 4);
    assert_memory_equal(out.text.data + 4 * n - 3, "\xcc\x95\xcc\x95", 4);
    normalizer_scratch_free(scratch);
    normalizer_free(normalizer);
    free(text);
}

static void test_growth_has_a_ceiling(void **state)
{
    const struct normalizer_rule rule = { NORMALIZER_REPLACE, .find = STR("a"),
                                          .with = STR("bbbbbbbb") };
    struct err err = { 0 };
    struct normalizer *normalizer = normalizer_new(&rule, 1, &err);
    struct normalizer_scratch *scratch = normalizer_scratch_new();
    struct marked_text out;
    (void)state;
    assert_false(normalizer_run(normalizer, scratch, (struct marked_text){ .text = STR("aaaa") },
                                31, &out, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    normalizer_scratch_free(scratch);
    normalizer_free(normalizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_normal_forms),
        cmocka_unit_test(test_normal_forms_are_those_of_unicode_9),
        cmocka_unit_test(test_rewriting),
        cmocka_unit_test(test_marks_follow),
        cmocka_unit_test(test_a_run_of_marks_is_not_quadratic),
        cmocka_unit_test(test_growth_has_a_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
