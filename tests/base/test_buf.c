#include "base/arena.h"
#include "base/buf.h"
#include "base/memory.h"
#include "helpers/cm.h"

#include <stdlib.h>

static void test_grows_to_its_ceiling(void **state)
{
    struct buf buf;
    (void)state;
    buf_init(&buf, 10);
    buf_printf(&buf, "%d-%s", 12, "abc");
    assert_true(buf_ok(&buf));
    assert_string_equal(buf.data, "12-abc");
    buf_add_text(&buf, "12345"); // one too many: dropped whole
    assert_false(buf_ok(&buf));
    assert_string_equal(buf.data, "12-abc");
    buf_add_text(&buf, "1234");
    assert_string_equal(buf.data, "12-abc1234");
    buf_drop_front(&buf, 3);
    assert_string_equal(buf.data, "abc1234");
    buf_clear(&buf);
    assert_true(buf_ok(&buf));
    char *taken = buf_take(&buf);
    assert_string_equal(taken, "");
    free(taken);
    buf_release(&buf);
}

static void test_arena_is_zeroed_aligned_and_limited(void **state)
{
    struct arena arena;
    (void)state;
    arena_init(&arena, 100000);
    for (size_t i = 1; i < 300; i++) {
        unsigned char *block = arena_alloc(&arena, i);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 16, 0);
        for (size_t j = 0; j < i; j++)
            assert_int_equal(block[j], 0);
        memset(block, 0xFF, i);
    }
    assert_null(arena_alloc(&arena, 100000));
    assert_null(arena_array(&arena, SIZE_MAX / 2, 4));
    assert_string_equal(arena_printf(&arena, "%s=%d", "x", 5), "x=5");
    assert_true(str_is(arena_str(&arena, STR("abc")), "abc"));
    arena_release(&arena);
}

static void test_pages(void **state)
{
    struct err err = { 0 };
    (void)state;
    size_t bytes = (5u << 20) + 123;
    unsigned char *pages = memory_pages(bytes, &err);
    assert_non_null(pages);
    assert_int_equal((uintptr_t)pages % (2u << 20), 0);
    pages[0] = pages[bytes - 1] = 1;
    memory_pages_free(pages, bytes);
    assert_null(memory_pages(SIZE_MAX / 4, &err));
    assert_int_equal(err.code, ERR_NO_MEMORY);
    assert_true(memory_available_bytes() > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows_to_its_ceiling),
        cmocka_unit_test(test_arena_is_zeroed_aligned_and_limited),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
