#include "base/clock.h"
#include "base/team.h"
#include "helpers/cm.h"

#include <immintrin.h>
#include <stdatomic.h>
#include <string.h>

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

/* A list in which each op finds out whether all of the one before was done. */
struct relay {
    _Atomic uint32_t done, prepared[8];
    uint32_t before; // items of all ops before this one
    _Atomic bool *broken;
    _Atomic bool *stop; // set by the body; NULL: not
};

static void prepare_relay(void *context, uint32_t thread)
{
    struct relay *relay = context;
    atomic_fetch_add(&relay->prepared[thread], 1);
}

static void run_relay(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    struct relay *relay = context;
    const struct relay *previous = relay - 1;
    if (relay->before && atomic_load(&previous->done) != relay->before)
        atomic_store(relay->broken, true);
    if (atomic_load(&relay->prepared[thread]) != 1)
        atomic_store(relay->broken, true);
    if (relay->stop)
        atomic_store(relay->stop, true);
    atomic_fetch_add(&relay->done, last - first);
}

#define RELAYS 700u // more than the team holds at once

static uint32_t relay_items(uint32_t at)
{
    return at % 3 == 0 ? 1 : at % 40;
}

static void fill_relays(struct relay *relays, struct team_op *ops, _Atomic bool *broken)
{
    for (uint32_t i = 0; i < RELAYS; i++) {
        relays[i] = (struct relay){ .broken = broken, .before = i ? relay_items(i - 1) : 0 };
        ops[i] = (struct team_op){
            .body = run_relay,
            .prepare = prepare_relay,
            .context = &relays[i],
            .n_items = relay_items(i),
            .chunk = 1 + i % 5,
        };
    }
}

static void test_no_op_begins_before_the_last_is_done(void **state)
{
    static struct relay relays[RELAYS];
    static struct team_op ops[RELAYS];
    static uint64_t ended_ns[RELAYS];
    struct err err = { 0 };
    (void)state;
    for (uint32_t n_threads = 1; n_threads <= 8; n_threads += n_threads < 3 ? 1 : 5) {
        struct team *team = team_new(n_threads, &err);
        for (uint32_t round = 0; round < 20; round++) {
            _Atomic bool broken = false;
            fill_relays(relays, ops, &broken);
            memset(ended_ns, 0, sizeof ended_ns);
            team_run(team, ops, RELAYS - round, &(struct team_watch){ .ended_ns = ended_ns });
            assert_false(broken);
            for (uint32_t i = 0; i < RELAYS; i++) {
                assert_int_equal(relays[i].done, i < RELAYS - round ? relay_items(i) : 0);
                assert_true(i < RELAYS - round ? ended_ns[i] >= ended_ns[i ? i - 1 : 0]
                                               : ended_ns[i] == 0);
            }
        }
        team_free(team);
    }
}

static void test_after_a_stop_no_body_is_called(void **state)
{
    static struct relay relays[RELAYS];
    static struct team_op ops[RELAYS];
    struct err err = { 0 };
    struct team *team = team_new(3, &err);
    (void)state;
    for (uint32_t at = 1; at < RELAYS; at += 41) { // ops of a single item among them
        _Atomic bool broken = false, stop = false;
        fill_relays(relays, ops, &broken);
        relays[at].stop = &stop;
        team_run(team, ops, RELAYS, &(struct team_watch){ .stop = &stop });
        assert_int_equal(stop, relay_items(at) != 0);
        for (uint32_t i = at + 1; i < RELAYS; i++)
            assert_int_equal(relays[i].done, stop ? 0 : relay_items(i));
    }
    team_free(team);
}

/* Thread 1 is kept in its first chunk until all others are done, as if it had lost its core; and
 * thread 0 does not begin before it is. */
#define STUCK_CHUNKS 16u

struct stuck {
    _Atomic uint32_t done[2]; // by thread
    _Atomic bool in_vain;
};

static void await_at_least(const _Atomic uint32_t *count, uint32_t least, struct stuck *stuck)
{
    const uint64_t start_ms = clock_ms();
    while (atomic_load(count) < least) {
        if (clock_ms() - start_ms > 20000) {
            atomic_store(&stuck->in_vain, true);
            return;
        }
        clock_sleep_ms(1);
    }
}

static void get_stuck(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    struct stuck *stuck = context;
    (void)first, (void)last;
    if (thread == 1) {
        atomic_fetch_add(&stuck->done[1], 1);
        await_at_least(&stuck->done[0], STUCK_CHUNKS - 1, stuck);
        return;
    }
    await_at_least(&stuck->done[1], 1, stuck);
    atomic_fetch_add(&stuck->done[0], 1);
}

static void test_an_absent_worker_costs_its_chunk_alone(void **state)
{
    struct err err = { 0 };
    struct team *team = team_new(2, &err);
    (void)state;
    for (int round = 0; round < 10; round++) {
        struct stuck stuck = { 0 };
        team_for(team, STUCK_CHUNKS, 1, get_stuck, &stuck);
        assert_false(stuck.in_vain);
        assert_int_equal(stuck.done[0], STUCK_CHUNKS - 1);
        assert_int_equal(stuck.done[1], 1);
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
        cmocka_unit_test(test_no_op_begins_before_the_last_is_done),
        cmocka_unit_test(test_after_a_stop_no_body_is_called),
        cmocka_unit_test(test_an_absent_worker_costs_its_chunk_alone),
        cmocka_unit_test(test_too_many_threads_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
