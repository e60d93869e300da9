/* The stranger of T3 is a thread of this process that never gives its core away: to the scheduler
 * it is what another process would be. It is switched on and off every tenth of a second, so that
 * both halves of the ratio see the same machine. */
#include "bench/team_bar.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "bench/samples.h"

#define LIST_OPS 200u // as a decode step of a small model
#define LISTS 5u      // of a window
#define ROUNDS_LOW 100u
#define PHASE_NS UINT64_C(100000000)
#define PHASES_LOW 8u
#define WORK_BYTES ((size_t)9 << 20) // a matrix of 4096 x 4096 at 4.5 bits

static bool has_team(const struct bench *bench, struct bar_result *result)
{
    if (bench->several)
        return true;
    result->state = BAR_NOT_HERE;
    snprintf(result->why, sizeof(result->why), "fewer than %u processors", bench->options.threads);
    return false;
}

/* ---- T1 ---- */

static void nothing(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    (void)context;
    (void)first;
    (void)last;
    (void)thread;
}

static void empty_list(void *context)
{
    struct team *const team = context;
    struct team_op ops[LIST_OPS];
    for (uint32_t i = 0; i < LIST_OPS; i++)
        ops[i] = (struct team_op){ .body = nothing, .n_items = team_threads(team), .chunk = 1 };
    for (uint32_t i = 0; i < LISTS; i++)
        team_run(team, ops, LIST_OPS, NULL);
}

/* As many lists of a single loop: a fork and a join each. */
static void single_loops(void *context)
{
    struct team *const team = context;
    for (uint32_t i = 0; i < LIST_OPS * LISTS; i++)
        team_for(team, team_threads(team), 1, nothing, NULL);
}

double team_bar_time_op(struct bench *bench)
{
    return bench_time(bench->several, empty_list, bench->several) / (LIST_OPS * LISTS);
}

bool team_bar_empty(const struct bar *bar, struct bench *bench, struct bar_result *result,
                    struct err *err)
{
    struct samples samples = { 0 }, single = { 0 };
    (void)bar;
    (void)err;
    if (!has_team(bench, result))
        return true;
    for (const uint64_t start = clock_ns(); bench_goes_on(bench, start, result->rounds, ROUNDS_LOW);
         result->rounds++) {
        samples_add(&samples, team_bar_time_op(bench) * 1e6);
        samples_add(&single, bench_time(bench->several, single_loops, bench->several) /
                                 (LIST_OPS * LISTS) * 1e6);
    }
    struct bar_case *const c = &result->cases[0];
    result->n_cases = 1;
    *c = (struct bar_case){
        .figure = samples_median(&samples),
        .low = samples_quantile(&samples, 0.25),
        .high = samples_quantile(&samples, 0.75),
    };
    snprintf(c->what, sizeof(c->what), "%u threads, a list of %u loops",
             team_threads(bench->several), LIST_OPS);
    snprintf(c->rate, sizeof(c->rate), "best %.3f us; a list of one %.2f us",
             samples_quantile(&samples, 0), samples_median(&single));
    samples_release(&samples);
    samples_release(&single);
    return true;
}

/* ---- T3 ---- */

struct stranger {
    struct thread thread;
    _Atomic bool is_busy, is_over;
};

static void be_strange(void *context)
{
    struct stranger *const stranger = context;
    while (!atomic_load_explicit(&stranger->is_over, memory_order_relaxed)) {
        if (!atomic_load_explicit(&stranger->is_busy, memory_order_relaxed))
            clock_sleep_ms(1);
    }
}

/* A loop like a matrix product of one row: panels of a cold matrix, four at a time. */
struct reading {
    struct bench *bench;
    const uint8_t *data;
};

#define ITEM_BYTES ((size_t)9 * CEILING_READ_UNIT)

static void read_items(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct reading *const reading = context;
    volatile uint64_t sink;
    (void)thread;
    sink = reading->bench->read->run(reading->data + first * ITEM_BYTES,
                                     (last - first) * ITEM_BYTES, 1);
    (void)sink;
}

/* Loops a second during one phase. */
static double phase(struct bench *bench, struct stranger *stranger, bool is_busy)
{
    struct reading reading = { .bench = bench };
    uint32_t n = 0;
    atomic_store(&stranger->is_busy, is_busy);
    clock_sleep_ms(2); // until the stranger has seen it
    const uint64_t start = clock_ns();
    while (clock_ns() - start < PHASE_NS) {
        reading.data = cold_next(&bench->cold, WORK_BYTES);
        team_for(bench->several, (uint32_t)(WORK_BYTES / ITEM_BYTES), 4, read_items, &reading);
        n++;
    }
    return n / ((double)(clock_ns() - start) * 1e-9);
}

bool team_bar_beside(const struct bar *bar, struct bench *bench, struct bar_result *result,
                     struct err *err)
{
    struct stranger stranger = { .is_busy = false };
    struct samples ratios = { 0 };
    (void)bar;
    if (!has_team(bench, result))
        return true;
    if (!thread_start(&stranger.thread, "stranger", be_strange, &stranger, err))
        return false;
    double rate = 0.0;
    for (const uint64_t start = clock_ns(); bench_goes_on(bench, start, result->rounds, PHASES_LOW);
         result->rounds++) {
        const double alone = phase(bench, &stranger, false);
        rate = phase(bench, &stranger, true);
        samples_add(&ratios, rate / alone);
    }
    atomic_store(&stranger.is_over, true);
    thread_join(&stranger.thread);
    result->n_cases = 1;
    result->cases[0] = (struct bar_case){
        .figure = samples_median(&ratios),
        .low = samples_quantile(&ratios, 0.25),
        .high = samples_quantile(&ratios, 0.75),
    };
    snprintf(result->cases[0].what, sizeof(result->cases[0].what), "%u threads, 9 MiB a loop",
             team_threads(bench->several));
    snprintf(result->cases[0].rate, sizeof(result->cases[0].rate), "%.1f GB/s beside",
             rate * WORK_BYTES * 1e-9);
    samples_release(&ratios);
    return true;
}
