#include "shard/split.h"

#include "helpers/cm.h"

#include <string.h>

static void test_even(void **state)
{
    struct split split;
    struct err err;
    (void)state;
    for (uint32_t n_layers = 1; n_layers <= 40; n_layers++) {
        for (uint32_t n = 1; n <= n_layers; n++) {
            uint32_t next = 0, least = n_layers, most = 0;
            assert_true(split_even(n_layers, n, &split, &err));
            assert_int_equal(split.n_stages, n);
            for (uint32_t i = 0; i < n; i++) {
                uint32_t size = split.stages[i].layer_end - split.stages[i].layer_first;
                assert_int_equal(split.stages[i].layer_first, next);
                next = split.stages[i].layer_end;
                least = size < least ? size : least;
                most = size > most ? size : most;
            }
            assert_int_equal(next, n_layers);
            assert_true(least >= 1 && most - least <= 1);
        }
    }
    assert_false(split_even(4, 0, &split, &err));
    assert_false(split_even(4, 5, &split, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
}

static void test_boundaries(void **state)
{
    struct split split = { 0 };
    struct err err;
    (void)state;
    assert_true(split_parse(STR("10,20"), 30, &split, &err));
    assert_int_equal(split.n_stages, 3);
    assert_true(split.stages[1].layer_first == 10 && split.stages[1].layer_end == 20);
    assert_int_equal(split.stages[2].layer_end, 30);
    assert_true(split_parse(STR("29"), 30, &split, &err));
    assert_int_equal(split.n_stages, 2);
    static const char *const wrong[] = { "", "0", "30", "10,10", "20,10", "a", "10,", "-1", "1.5" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(split_parse(str_from(wrong[i]), 30, &split, &err));
        assert_int_equal(err.code, ERR_ARGUMENT);
    }
    assert_int_equal(split.n_stages, 2); // untouched by failures
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_even),
        cmocka_unit_test(test_boundaries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
