/* Which bars a list names, what a verdict is, which case counts; the table of bars is whole. */
#include <string.h>

#include "bench/bar.h"
#include "helpers/cm.h"

static void lists_name_bars(void **state)
{
    const struct bar k1 = { .id = "K1" }, k10 = { .id = "K10" }, k3a = { .id = "K3a" };
    (void)state;
    assert_true(bar_is_named(&k1, "K1"));
    assert_true(bar_is_named(&k1, "A1,K1"));
    assert_true(bar_is_named(&k3a, "K3"));
    assert_true(bar_is_named(&k3a, "K3a"));
    assert_true(bar_is_named(&k10, "K"));
    assert_false(bar_is_named(&k10, "K1"));
    assert_false(bar_is_named(&k1, "K10"));
    assert_false(bar_is_named(&k1, "A,T1"));
    assert_false(bar_is_named(&k1, ""));
    assert_false(bar_is_named(&k1, "K11,,"));
}

static const char *verdict(const struct bar *bar, double figure)
{
    const struct bar_result result = { .figure = figure };
    return bar_verdict(bar, &result);
}

static void verdicts(void **state)
{
    const struct bar rate = { .must = 0.8, .stretch = 0.9 };
    const struct bar time = { .must = 1.4, .stretch = 1.2, .is_time = true };
    const struct bar_result absent = { .state = BAR_NOT_HERE, .figure = 5 };
    const struct bar_result unbuilt = { .state = BAR_NOT_BUILT, .figure = 5 };
    (void)state;
    assert_string_equal(verdict(&rate, 0.79), "miss");
    assert_string_equal(verdict(&rate, 0.8), "pass");
    assert_string_equal(verdict(&rate, 0.9), "stretch");
    assert_string_equal(verdict(&time, 1.5), "miss");
    assert_string_equal(verdict(&time, 1.4), "pass");
    assert_string_equal(verdict(&time, 1.1), "stretch");
    assert_string_equal(bar_verdict(&rate, &absent), "not on this CPU");
    assert_string_equal(bar_verdict(&rate, &unbuilt), "not built");
}

static void the_worst_case_counts(void **state)
{
    struct bar_result result = { .n_cases = 3,
                                 .cases = { { .figure = 2 }, { .figure = 1 }, { .figure = 3 } } };
    (void)state;
    bar_settle(&(struct bar){ .is_time = false }, &result);
    assert_true(result.figure == 1);
    bar_settle(&(struct bar){ .is_time = true }, &result);
    assert_true(result.figure == 3);
}

static void the_table_is_whole(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_bars; i++) {
        assert_true(strlen(bars[i].id) >= 2 && strlen(bars[i].id) <= 4);
        assert_true(strlen(bars[i].what) > 10 && strlen(bars[i].what) <= 58);
        assert_non_null(bars[i].measure);
        assert_true(bars[i].is_time ? bars[i].stretch <= bars[i].must
                                    : bars[i].stretch >= bars[i].must);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_name_bars),
        cmocka_unit_test(verdicts),
        cmocka_unit_test(the_worst_case_counts),
        cmocka_unit_test(the_table_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
