#include "text/token_list.h"

#include "helpers/cm.h"

static void test_grows_to_its_ceiling(void **state)
{
    struct token_list list;
    (void)state;
    token_list_init(&list, 1000);
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(token_list_add(&list, i));
    assert_false(list.overflowed);
    assert_false(token_list_add(&list, 1000));
    assert_true(list.overflowed);
    assert_int_equal(list.n_ids, 1000);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(list.ids[i], i);
    token_list_clear(&list);
    assert_true(list.n_ids == 0 && !list.overflowed);
    assert_true(token_list_add(&list, 7));
    assert_int_equal(list.ids[0], 7);
    token_list_release(&list);
    token_list_release(NULL);
    token_list_init(&list, 0);
    assert_false(token_list_add(&list, 1));
    token_list_release(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_grows_to_its_ceiling) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
