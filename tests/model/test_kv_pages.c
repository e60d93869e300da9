#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/kv_pages.h"

/* Every page is free or held exactly as often as tables name it. */
static void assert_sound(const struct kv_pages *pages)
{
    uint32_t n_held = 0;
    for (uint32_t page = 0; page < pages->n_pages; page++) {
        uint32_t holders = 0;
        for (uint32_t s = 0; s < pages->max_sequences; s++) {
            for (uint32_t i = 0; i < pages->sequences[s].n_pages; i++)
                holders += pages->sequences[s].table[i] == page;
        }
        assert_int_equal(pages->refs[page], holders);
        n_held += holders > 0;
    }
    assert_int_equal(pages->n_free, pages->n_pages - n_held);
    for (uint32_t s = 0; s < pages->max_sequences; s++) {
        const struct kv_sequence *sequence = &pages->sequences[s];
        assert_int_equal(sequence->n_pages, (sequence->length + 63) / 64);
        assert_false(sequence->in_batch);
    }
}

static bool plan(struct kv_pages *pages, uint32_t sequence, uint32_t first, uint32_t end,
                 struct err *err)
{
    static struct kv_row rows[512];
    for (uint32_t position = first; position < end; position++)
        rows[position - first] = (struct kv_row){ sequence, position };
    return kv_pages_plan(pages, rows, end - first, err);
}

static void put(struct kv_pages *pages, uint32_t sequence, uint32_t first, uint32_t end)
{
    struct err err = { 0 };
    assert_true(plan(pages, sequence, first, end, &err));
    kv_pages_commit(pages);
    assert_sound(pages);
    assert_int_equal(kv_pages_length(pages, sequence), end);
}

static void test_growing_and_going_back(void **state)
{
    (void)state;
    struct kv_pages pages;
    kv_pages_init(&pages, 8, 3, 300, 512);
    put(&pages, 0, 0, 64);
    assert_int_equal(pages.n_free, 7);
    put(&pages, 0, 64, 65);
    put(&pages, 1, 0, 200);
    assert_int_equal(pages.n_free, 2);
    put(&pages, 1, 64, 65); // steps back over two pages
    assert_int_equal(pages.n_free, 4);
    kv_pages_drop(&pages, 0);
    assert_sound(&pages);
    assert_int_equal(pages.n_free, 6);
    kv_pages_release(&pages);
    kv_pages_release(&pages);
}

static void test_shared_pages_are_copied(void **state)
{
    (void)state;
    struct kv_pages pages;
    struct err err = { 0 };
    kv_pages_init(&pages, 8, 4, 300, 512);
    put(&pages, 0, 0, 100);
    kv_pages_keep(&pages, 0, 1, 80);
    kv_pages_keep(&pages, 0, 2, 64);
    assert_sound(&pages);
    assert_int_equal(pages.n_free, 6);
    const uint32_t shared = kv_pages_of(&pages, 0, 90);
    assert_true(plan(&pages, 1, 80, 81, &err));
    assert_int_equal(pages.n_copies, 1);
    assert_int_equal(pages.copies[0].from, shared);
    assert_int_equal(pages.copies[0].to, kv_pages_of(&pages, 1, 80));
    assert_int_equal(pages.copies[0].rows, 16);
    kv_pages_commit(&pages);
    assert_sound(&pages);
    assert_true(kv_pages_of(&pages, 1, 80) != shared);
    assert_int_equal(kv_pages_of(&pages, 0, 90), shared);
    assert_int_equal(kv_pages_of(&pages, 1, 0), kv_pages_of(&pages, 0, 0));
    /* Nobody shares it any more: written in place. A whole page more needs no copy. */
    assert_true(plan(&pages, 0, 100, 101, &err));
    assert_int_equal(pages.n_copies, 0);
    kv_pages_commit(&pages);
    assert_true(plan(&pages, 2, 64, 65, &err));
    assert_int_equal(pages.n_copies, 0);
    kv_pages_commit(&pages);
    assert_sound(&pages);
    kv_pages_release(&pages);
}

static void test_failed_plan_changes_nothing(void **state)
{
    (void)state;
    struct kv_pages pages;
    struct err err = { 0 };
    kv_pages_init(&pages, 4, 2, 300, 512);
    put(&pages, 0, 0, 100);
    kv_pages_keep(&pages, 0, 1, 100);
    const uint32_t shared = kv_pages_of(&pages, 0, 99);
    assert_false(plan(&pages, 1, 90, 260, &err)); // a copy and three more; two are free
    assert_int_equal(err.code, ERR_BUSY);
    assert_sound(&pages);
    assert_int_equal(kv_pages_length(&pages, 1), 100);
    assert_int_equal(kv_pages_of(&pages, 1, 99), shared);
    assert_int_equal(pages.n_copies, 0);
    assert_false(plan(&pages, 1, 101, 102, &err));
    assert_int_equal(err.code, ERR_BATCH_LOST);
    kv_pages_release(&pages);
}

static void test_abort(void **state)
{
    (void)state;
    struct kv_pages pages;
    struct err err = { 0 };
    kv_pages_init(&pages, 8, 2, 300, 512);
    put(&pages, 0, 0, 100);
    kv_pages_keep(&pages, 0, 1, 100);
    assert_true(plan(&pages, 0, 100, 150, &err));
    kv_pages_abort(&pages);
    assert_sound(&pages);
    assert_int_equal(kv_pages_length(&pages, 0), 100);
    assert_int_equal(pages.n_free, 6);
    /* Stepped back: rows from 70 on may be overwritten, so they are gone. */
    assert_true(plan(&pages, 0, 70, 150, &err));
    kv_pages_abort(&pages);
    assert_sound(&pages);
    assert_int_equal(kv_pages_length(&pages, 0), 70);
    assert_int_equal(kv_pages_length(&pages, 1), 100);
    kv_pages_release(&pages);
}

static void test_many_random_steps(void **state)
{
    (void)state;
    struct kv_pages pages;
    struct err err = { 0 };
    kv_pages_init(&pages, 12, 5, 400, 512);
    uint32_t random = 12345, n_busy = 0, n_done = 0;
    for (uint32_t i = 0; i < 4000; i++) {
        random = random * 1664525u + 1013904223u;
        const uint32_t sequence = (random >> 8) % 5, length = kv_pages_length(&pages, sequence);
        const uint32_t what = (random >> 16) % 8, size = (random >> 20) % 150;
        if (what == 0) {
            kv_pages_drop(&pages, sequence);
        } else if (what == 1) {
            kv_pages_keep(&pages, sequence, (sequence + size) % 5, size);
        } else {
            const uint32_t first = what == 2 ? length / 2 : length;
            const uint32_t end = first + size < 400 ? first + size : 400;
            if (!plan(&pages, sequence, first, end, &err)) {
                n_busy++;
            } else if (what == 3) {
                kv_pages_abort(&pages);
            } else {
                kv_pages_commit(&pages);
                n_done++;
            }
        }
        assert_sound(&pages);
    }
    assert_true(n_busy > 100 && n_done > 1000);
    kv_pages_release(&pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing_and_going_back),
        cmocka_unit_test(test_shared_pages_are_copied),
        cmocka_unit_test(test_failed_plan_changes_nothing),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_many_random_steps),
    };
    return cmocka_run_group_tests_name("kv_pages", tests, NULL, NULL);
}
