#include "text/pretoken.h"

#include <string.h>

#include "base/buf.h"
#include "helpers/cm.h"

static bool add_piece(void *context, struct str piece, struct err *err)
{
    (void)err;
    buf_printf(context, "[%.*s]", STR_ARG(piece));
    return true;
}

static void assert_split(const struct pretoken_rule *rules, size_t n_rules, const char *text,
                         bool at_start, const char *expected)
{
    struct err err = { 0 };
    struct buf out;
    struct pretoken *pretoken = pretoken_new(rules, n_rules, &err);
    if (!pretoken)
        fail_msg("%s", err.text);
    struct pretoken_run *run = pretoken_run_new(pretoken);
    buf_init(&out, 1 << 16);
    buf_add(&out, "", 0);
    assert_true(pretoken_split(run, str_from(text), at_start, add_piece, &out, &err));
    assert_string_equal(out.data, expected);
    buf_release(&out);
    pretoken_run_free(run);
    pretoken_free(pretoken);
}

static void test_behaviours(void **state)
{
    static const struct {
        enum pretoken_behaviour behaviour;
        const char *plain, *inverted;
    } cases[] = {
        { PRETOKEN_ISOLATED, "[-][a][-][-][b]", "[-][a][-][-][b]" },
        { PRETOKEN_REMOVED, "[a][b]", "[-][-][-]" },
        { PRETOKEN_MERGED_WITH_PREVIOUS, "[-][a-][-][b]", "[-a][-][-b]" },
        { PRETOKEN_MERGED_WITH_NEXT, "[-a][-][-b]", "[-][a-][-][b]" },
        { PRETOKEN_CONTIGUOUS, "[-][a][--][b]", "[-][a][--][b]" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pretoken_rule rule = { .kind = PRETOKEN_SPLIT_TEXT,
                                      .behaviour = cases[i].behaviour,
                                      .pattern = STR("-") };
        assert_split(&rule, 1, "-a--b", true, cases[i].plain);
        rule.invert = true;
        assert_split(&rule, 1, "-a--b", true, cases[i].inverted);
    }
}

static void test_steps_follow_one_another(void **state)
{
    const struct pretoken_rule rules[] = {
        { .kind = PRETOKEN_WHITE_SPACE, .behaviour = PRETOKEN_REMOVED },
        { .kind = PRETOKEN_NUMBERS, .behaviour = PRETOKEN_CONTIGUOUS },
        { .kind = PRETOKEN_PUNCTUATION, .behaviour = PRETOKEN_ISOLATED },
    };
    (void)state;
    assert_split(rules, 3, " a12,b\n$\xc2\xbd\xe3\x80\x81x ", true,
                 "[a][12][,][b][$][\xc2\xbd][\xe3\x80\x81][x]");
    assert_split(rules, 3, " \n", true, "");
    assert_split(rules, 0, "as it is", true, "[as it is]");
}

static void test_empty_matches_cut(void **state)
{
    const struct pretoken_rule rule = { .kind = PRETOKEN_SPLIT_REGEX, .pattern = STR("(?=b)") };
    (void)state;
    assert_split(&rule, 1, "abba", true, "[a][b][ba]");
}

static void test_metaspace(void **state)
{
    struct pretoken_rule rules[] = {
        { .kind = PRETOKEN_METASPACE, .prefix = PRETOKEN_PREFIX_FIRST, .pattern = STR("_") },
        { .kind = PRETOKEN_SPLIT_TEXT,
          .behaviour = PRETOKEN_MERGED_WITH_NEXT,
          .pattern = STR("_") },
    };
    (void)state;
    assert_split(rules, 2, "a  b", true, "[_a][_][_b]");
    assert_split(rules, 2, "a b", false, "[a][_b]");
    assert_split(rules, 2, " a", true, "[_a]");
    rules[0].prefix = PRETOKEN_PREFIX_ALWAYS;
    assert_split(rules, 2, "a b", false, "[_a][_b]");
    rules[0].prefix = PRETOKEN_PREFIX_NEVER;
    assert_split(rules, 1, "a b", true, "[a_b]");
}

static void test_blank_prefix(void **state)
{
    const struct pretoken_rule rule = { .kind = PRETOKEN_BLANK_PREFIX };
    (void)state;
    assert_split(&rule, 1, "a", false, "[ a]");
    assert_split(&rule, 1, " a", true, "[ a]");
}

static void test_bad_expression_is_refused(void **state)
{
    const struct pretoken_rule rule = { .kind = PRETOKEN_SPLIT_REGEX, .pattern = STR("\\h") };
    struct err err = { 0 };
    (void)state;
    assert_null(pretoken_new(&rule, 1, &err));
    assert_int_equal(err.code, ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_behaviours),        cmocka_unit_test(test_steps_follow_one_another),
        cmocka_unit_test(test_empty_matches_cut), cmocka_unit_test(test_metaspace),
        cmocka_unit_test(test_blank_prefix),      cmocka_unit_test(test_bad_expression_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
