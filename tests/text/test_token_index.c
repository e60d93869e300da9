#include "text/token_index.h"

#include <stdio.h>

#include "helpers/cm.h"

static void test_finds_and_joins(void **state)
{
    static char texts[1000][8];
    struct str views[1002];
    struct token_index index;
    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        views[i] = (struct str){ texts[i], (size_t)snprintf(texts[i], 8, "%u", i) };
    views[1000] = STR_NONE;  // left out
    views[1001] = STR("42"); // again: the first is found
    token_index_init(&index, views, 1002);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(token_index_find(&index, views[i]), i);
    assert_int_equal(token_index_find(&index, STR("1000")), TOKEN_INDEX_NONE);
    assert_int_equal(token_index_find(&index, STR("")), TOKEN_INDEX_NONE);
    assert_int_equal(token_index_find_joined(&index, STR("9"), STR("87")), 987);
    assert_int_equal(token_index_find_joined(&index, STR("98"), STR("7")), 987);
    assert_int_equal(token_index_find_joined(&index, STR(""), STR("7")), 7);
    assert_int_equal(token_index_find_joined(&index, STR("99"), STR("99")), TOKEN_INDEX_NONE);
    token_index_release(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_finds_and_joins) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
