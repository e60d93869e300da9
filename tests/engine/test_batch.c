#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/batch.h"

static void test_room(void **state)
{
    (void)state;
    struct batch batch;
    struct err err = { 0 };
    assert_true(batch_init(&batch, 5, 100, &err));
    assert_int_equal(batch.n_rows, 0);
    assert_int_equal(batch.rows_cap, 5);
    assert_int_equal(batch.values_cap, 100);
    assert_int_equal((uintptr_t)batch.values % 64, 0);
    batch.rows[4].token = 7;
    batch.values[99] = 1.0f;
    batch_release(&batch);
    assert_null(batch.rows);
    batch_release(&batch);
    assert_true(batch_init(&batch, 5, 0, &err)); // a head's own batch carries no values
    assert_null(batch.values);
    batch_release(&batch);
}

static void test_too_large(void **state)
{
    (void)state;
    struct batch batch;
    struct err err = { 0 };
    memset(&batch, 0xa5, sizeof(batch));
    assert_false(batch_init(&batch, 5, SIZE_MAX / 2, &err));
    assert_int_equal(err.code, ERR_NO_MEMORY);
    batch_release(&batch); // zeroed
    assert_false(batch_init(&batch, 5, SIZE_MAX / 64, &err));
    assert_int_equal(err.code, ERR_NO_MEMORY);
    assert_null(batch.rows);
}

static void test_copy_and_count(void **state)
{
    (void)state;
    struct batch from, to;
    struct err err = { 0 };
    assert_true(batch_init(&from, 4, 8, &err));
    assert_true(batch_init(&to, 4, 8, &err));
    from.id = 42;
    from.n_rows = 3;
    from.rows[0] = (struct row){ 1, 2, 3, ROW_SAMPLE };
    from.rows[1] = (struct row){ 4, 5, 6, ROW_LAST_OF_PROMPT };
    from.rows[2] = (struct row){ 7, 8, 9, ROW_LOGITS | ROW_CHECKPOINT };
    from.values[0] = 5.0f;
    batch_copy_rows(&to, &from);
    assert_true(to.id == 42);
    assert_int_equal(to.n_rows, 3);
    assert_memory_equal(to.rows, from.rows, 3 * sizeof(struct row));
    assert_true(to.values[0] == 0.0f);
    assert_int_equal(batch_count_logits(&to), 2);
    to.n_rows = 0;
    assert_int_equal(batch_count_logits(&to), 0);
    batch_release(&from);
    batch_release(&to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_copy_and_count),
    };
    return cmocka_run_group_tests_name("batch", tests, NULL, NULL);
}
