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
    const struct bar_result unasked = { .state = BAR_NOT_ASKED, .figure = 5 };
    (void)state;
    assert_string_equal(verdict(&rate, 0.79), "miss");
    assert_string_equal(verdict(&rate, 0.8), "pass");
    assert_string_equal(verdict(&rate, 0.9), "stretch");
    assert_string_equal(verdict(&time, 1.5), "miss");
    assert_string_equal(verdict(&time, 1.4), "pass");
    assert_string_equal(verdict(&time, 1.1), "stretch");
    assert_string_equal(bar_verdict(&rate, &absent), "not on this CPU");
    assert_string_equal(bar_verdict(&rate, &unasked), "not asked");
}

static bool three_cases(const struct bar *bar, struct bench *bench, struct bar_result *result,
                        struct err *err)
{
    (void)bar;
    (void)bench;
    (void)err;
    result->n_cases = 3;
    result->cases[0].figure = 2;
    result->cases[1].figure = 1;
    result->cases[2].figure = 3;
    return true;
}

static void the_worst_case_counts(void **state)
{
    struct bench bench = { .options = { .kernel = kernels[0] } };
    struct bar bar = { .measure = three_cases };
    struct bar_result result;
    struct err err;
    (void)state;
    assert_true(bar_measure(&bar, &bench, &result, &err));
    assert_true(result.figure == 1);
    bar.is_time = true;
    assert_true(bar_measure(&bar, &bench, &result, &err));
    assert_true(result.figure == 3);
}

/* A machine without VNNI is never said to pass a bar that is stated with it. */
static void bars_are_for_machines(void **state)
{
    const struct kernel avx2 = { .name = "avx2" }, avx512 = { .name = "avx512" };
    struct bench bench = { .options = { .kernel = &avx2 } };
    struct bar bar = { .measure = three_cases, .stated_for = BAR_FOR_VNNI };
    struct bar_result result;
    struct err err;
    (void)state;
    assert_true(bar_measure(&bar, &bench, &result, &err));
    assert_int_equal(result.state, BAR_NOT_HERE);
    assert_true(bar_is_listed(&bar, &avx2));
    bar.is_replaced = true;
    assert_false(bar_is_listed(&bar, &avx2));
    assert_true(bar_is_listed(&bar, &avx512));
    bar = (struct bar){ .measure = three_cases, .stated_for = BAR_FOR_AVX2 };
    assert_true(bar_is_listed(&bar, &avx2));
    assert_false(bar_is_listed(&bar, &avx512));
    assert_true(bar_measure(&bar, &bench, &result, &err));
    assert_int_equal(result.state, BAR_MEASURED);
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
        cmocka_unit_test(lists_name_bars),       cmocka_unit_test(verdicts),
        cmocka_unit_test(the_worst_case_counts), cmocka_unit_test(bars_are_for_machines),
        cmocka_unit_test(the_table_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
