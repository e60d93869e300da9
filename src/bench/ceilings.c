/* Every row is a window of a fifth of a millisecond or so; all rows take turns, round by round, so
 * that a loud second hurts each alike. */
#include "bench/ceilings.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "bench/samples.h"

#define ROUNDS_LOW 30u
#define TEAMS_CAP 10u
#define DRAM_PIECE ((size_t)8 << 20) // a thread
#define CACHED_WINDOW_BYTES ((size_t)16 << 20)

enum level { LEVEL_NONE, LEVEL_L1, LEVEL_L2, LEVEL_L3, LEVEL_DRAM };

/* What one row is made of; the samples are rates in its unit. */
struct window {
    struct ceiling_row *row;
    struct team *team;
    struct bench *bench;
    const struct ceiling_read *read; // reads
    enum level level;
    const uint8_t *data;
    size_t bytes; // a thread
    uint32_t passes;
    const struct ceiling_dot *dot; // dots
    uint64_t steps;
    struct samples samples;
};

struct round {
    struct window windows[CEILINGS_CAP];
    uint32_t n_windows;
    struct team *teams[TEAMS_CAP];
    uint32_t n_teams;
};

/* ---- windows ---- */

static void read_passes(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct window *const w = context;
    volatile uint64_t sink = 0;
    (void)last;
    (void)thread;
    for (uint32_t pass = 0; pass < w->passes; pass++)
        sink = w->read->run(w->data + first * w->bytes, w->bytes, w->row->streams);
    (void)sink;
}

static void window_read(void *context)
{
    struct window *const w = context;
    team_each(w->team, read_passes, w);
}

static void measure(struct window *w)
{
    const uint32_t threads = w->row->threads;
    if (w->dot) {
        const double s = bench_time_dot(w->team, w->dot, w->steps);
        samples_add(&w->samples, (double)w->steps * w->dot->ops_per_step * threads / s * 1e-9);
    } else if (w->read) {
        if (w->level == LEVEL_DRAM)
            w->data = cold_next(&w->bench->cold, w->bytes * threads);
        else
            window_read(w); // brings it in
        const double s = bench_time(w->team, window_read, w);
        samples_add(&w->samples, (double)w->bytes * w->passes * threads / s * 1e-9);
    } else {
        samples_add(&w->samples, ceiling_clock_hz() * 1e-9);
    }
}

/* ---- the list ---- */

static struct window *add(struct round *round, struct ceilings *out, struct bench *bench,
                          struct team *team)
{
    must(round->n_windows < CEILINGS_CAP);
    struct ceiling_row *const row = &out->rows[round->n_windows];
    struct window *const w = &round->windows[round->n_windows++];
    *row = (struct ceiling_row){ .threads = team_threads(team) };
    *w = (struct window){ .row = row, .team = team, .bench = bench };
    return w;
}

/* Bytes a thread reads at a level: half of a first- or second-level cache; twice the second of the
 * third, which is shared. 0: the machine does not say that it has one. */
static size_t level_bytes(const struct machine *machine, enum level level, uint32_t threads)
{
    const size_t l3 = 2 * machine->l2_bytes * threads <= machine->l3_bytes / 2
                          ? 2 * machine->l2_bytes
                          : machine->l3_bytes / 2 / threads;
    const size_t bytes = level == LEVEL_L1   ? machine->l1d_bytes / 2
                         : level == LEVEL_L2 ? machine->l2_bytes / 2
                         : level == LEVEL_L3 ? l3
                                             : DRAM_PIECE;
    return bytes / CEILING_READ_UNIT * CEILING_READ_UNIT;
}

static void add_read(struct round *round, struct ceilings *out, struct bench *bench,
                     struct team *team, const struct ceiling_read *read, enum level level,
                     uint32_t streams)
{
    static const char *const names[] = { "", "L1", "L2", "L3", "DRAM" };
    const size_t bytes = level_bytes(&bench->machine, level, team_threads(team));
    if (bytes == 0 || bytes * team_threads(team) > bench->cold.bytes / 2)
        return;
    struct window *const w = add(round, out, bench, team);
    w->read = read;
    w->level = level;
    w->bytes = bytes;
    w->data = bench->cold.data;
    w->passes = level == LEVEL_DRAM ? 1 : (uint32_t)(CACHED_WINDOW_BYTES / bytes) + 1;
    w->row->unit = "GB/s";
    w->row->streams = streams;
    snprintf(w->row->what, sizeof(w->row->what), "read %s, %s loads", names[level], read->name);
}

static void add_reads(struct round *round, struct ceilings *out, struct bench *bench,
                      struct team *team)
{
    for (uint32_t i = 1; ceiling_reads[i]; i++) { // not the scalar one
        const struct ceiling_read *const read = ceiling_reads[i];
        if (!ceiling_read_usable(read))
            continue;
        for (enum level level = LEVEL_L1; level <= LEVEL_DRAM; level++)
            add_read(round, out, bench, team, read, level, 1);
        add_read(round, out, bench, team, read, LEVEL_DRAM, 2);
        add_read(round, out, bench, team, read, LEVEL_DRAM, CEILING_STREAMS_CAP);
    }
}

static void add_dots(struct round *round, struct ceilings *out, struct bench *bench,
                     struct team *team)
{
    for (uint32_t i = 0; ceiling_dots[i]; i++) {
        if (!ceiling_dot_usable(ceiling_dots[i]))
            continue;
        struct window *const w = add(round, out, bench, team);
        w->dot = ceiling_dots[i];
        w->steps = bench_dot_steps(w->dot);
        w->row->unit = "GOPS";
        snprintf(w->row->what, sizeof(w->row->what), "%s", w->dot->name);
    }
}

/* 1, 2, 4, ... and all. */
static bool make_teams(struct round *round, uint32_t threads, struct err *err)
{
    uint32_t n = 1;
    while (round->n_teams < TEAMS_CAP) {
        struct team *const team = team_new(n, err);
        if (!team)
            return false;
        round->teams[round->n_teams++] = team;
        if (n == threads)
            break;
        n = 2 * n < threads ? 2 * n : threads;
    }
    return true;
}

static void settle(struct window *w)
{
    w->row->median = samples_median(&w->samples);
    w->row->low = samples_quantile(&w->samples, 0.25);
    w->row->high = samples_quantile(&w->samples, 0.75);
    w->row->best = samples_quantile(&w->samples, 1.0);
    samples_release(&w->samples);
}

bool ceilings_measure(struct bench *bench, struct ceilings *out, struct err *err)
{
    struct round *const round = xcalloc(1, sizeof(*round));
    const bool ready = make_teams(round, bench->machine.threads, err);
    if (ready) {
        add(round, out, bench, bench->one)->row->unit = "GHz";
        snprintf(out->rows[0].what, sizeof(out->rows[0].what), "clock");
        for (uint32_t i = 0; i < round->n_teams; i++) {
            add_reads(round, out, bench, round->teams[i]);
            add_dots(round, out, bench, round->teams[i]);
        }
    }
    const uint64_t start = clock_ns();
    for (uint32_t n = 0; ready && bench_goes_on(bench, start, n, ROUNDS_LOW); n++) {
        for (uint32_t i = 0; i < round->n_windows; i++)
            measure(&round->windows[i]);
    }
    for (uint32_t i = 0; i < round->n_windows; i++)
        settle(&round->windows[i]);
    out->n_rows = round->n_windows;
    for (uint32_t i = 0; i < round->n_teams; i++)
        team_free(round->teams[i]);
    free(round);
    return ready;
}
