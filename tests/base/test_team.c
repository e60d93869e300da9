#include "base/clock.h"
#include "base/team.h"
#include "helpers/cm.h"

#include <immintrin.h>
#include <stdatomic.h>
#include <stdio.h>

#define ITEMS 1000u

struct tally {
    _Atomic uint32_t seen[ITEMS];
    _Atomic uint32_t threads;
    _Atomic uint32_t denormal_modes;
    uint32_t chunk_high;
    _Atomic bool chunk_broken;
};

static void count(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    struct tally *tally = context;
    if (last - first > tally->chunk_high || first >= last)
        atomic_store(&tally->chunk_broken, true);
    for (uint32_t i = first; i < last; i++)
        atomic_fetch_add(&tally->seen[i], 1);
    atomic_fetch_or(&tally->threads, 1u << thread);
    if ((_mm_getcsr() & 0x8040u) == 0x8040u)
        atomic_fetch_add(&tally->denormal_modes, 1);
}

static void test_each_item_once_whatever_the_sizes(void **state)
{
    struct err err = { 0 };
    (void)state;
    for (uint32_t n_threads = 1; n_threads <= 5; n_threads++) {
        struct team *team = team_new(n_threads, &err);
        assert_non_null(team);
        for (uint32_t round = 0; round < 300; round++) {
            static struct tally tally;
            uint32_t n_items = round * 7 % ITEMS, chunk = 1 + round % 13;
            tally = (struct tally){ .chunk_high = chunk };
            team_for(team, n_items, chunk, count, &tally);
            for (uint32_t i = 0; i < ITEMS; i++)
                assert_int_equal(tally.seen[i], i < n_items);
            assert_false(tally.chunk_broken);
        }
        team_free(team);
    }
}

static void test_each_runs_on_every_thread(void **state)
{
    struct err err = { 0 };
    struct team *team = team_new(4, &err);
    static struct tally tally;
    (void)state;
    for (int round = 0; round < 50; round++) {
        tally = (struct tally){ .chunk_high = 1 };
        team_each(team, count, &tally);
        assert_int_equal(tally.threads, 15);
        assert_int_equal(tally.denormal_modes, 4);
    }
    assert_int_equal(_mm_getcsr() & 0x8040u, 0); // the caller's mode is its own again
    team_free(team);
}

static void test_sleeping_workers_wake(void **state)
{
    struct err err = { 0 };
    struct team *team = team_new(3, &err);
    static struct tally tally;
    (void)state;
    for (int round = 0; round < 5; round++) {
        clock_sleep_ms(5); // past the spin
        tally = (struct tally){ .chunk_high = 1 };
        team_each(team, count, &tally);
        assert_int_equal(tally.threads, 7);
    }
    team_free(team);
}

static void test_too_many_threads_is_an_error(void **state)
{
    struct err err = { 0 };
    (void)state;
    assert_null(team_new(100000, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_item_once_whatever_the_sizes),
        cmocka_unit_test(test_each_runs_on_every_thread),
        cmocka_unit_test(test_sleeping_workers_wake),
        cmocka_unit_test(test_too_many_threads_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
