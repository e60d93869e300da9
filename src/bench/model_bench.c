/* All rows of one number of threads share an engine: the contexts are filled once, then all rows
 * take turns, round by round.
 *
 * A round of decode is a plain read of as many bytes as a step reads (at most the cold block), a
 * pause in which the reading threads go to sleep, a step that wakes the engine's, and
 * some steps that count. A sequence goes back to its depth by itself: a row at a position cuts what
 * lies behind. A round of prefill is a window of dot products, the pause, and a prompt from empty;
 * its share is against the best window of all.
 *
 * Steps read the same weights again and again, so a model that fits the last cache is read from
 * there. The yardstick is in the same state: the second of two reads of the same bytes. */
#include "bench/model_bench.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "bench/model_feed.h"
#include "bench/samples.h"

#define ROUNDS_LOW 5u
#define WINDOW_S 0.03
#define STEPS_CAP 64u
#define PAUSE_MS 1u

/* One row of the result and what is measured for it. */
struct point {
    struct model_bench_row *row;
    uint32_t first; // sequence
    uint32_t steps; // of a window
    struct samples rates, shares;
};

struct run {
    struct bench *bench;
    struct model_feed feed;
    struct team *team; // the yardstick's, as many threads as the engine's
    const struct ceiling_dot *dot;
    uint64_t dot_steps;
    double best_dot_s;
    struct point points[MODEL_BENCH_ROWS_CAP];
    uint32_t n_points;
};

/* ---- what to measure ---- */

static struct model_bench_row *add_row(struct model_bench_result *result,
                                       enum model_bench_kind kind, uint32_t threads,
                                       uint32_t length, uint32_t batch)
{
    struct model_bench_row *const row = &result->rows[result->n_rows++];
    *row = (struct model_bench_row){
        .kind = kind, .threads = threads, .length = length, .batch = batch
    };
    return row;
}

/* Why a row of decode is left out; NULL: it is not. */
static const char *unfit(const struct engine_info *info, uint32_t depth, uint32_t batch)
{
    if ((uint64_t)depth + STEPS_CAP > info->ctx_size)
        return "longer than the context: see --ctx-size";
    if (batch > 1 && (uint64_t)depth * batch > MODEL_BENCH_FILL_CAP)
        return "too many rows to fill";
    return NULL;
}

static void add_point(struct run *run, struct model_bench_row *row, uint32_t first)
{
    run->points[run->n_points++] = (struct point){ .row = row, .first = first, .steps = 1 };
}

/* The sequences of one depth: as many as its largest batch, from *first on. */
static bool add_depth(struct run *run, const struct model_bench_options *options, uint32_t depth,
                      uint32_t *first, struct model_bench_result *result, struct err *err)
{
    uint32_t n_sequences = 0;
    for (uint32_t i = 0; i < options->batch.n_values; i++) {
        const uint32_t batch = options->batch.values[i];
        struct model_bench_row *const row =
            add_row(result, MODEL_BENCH_DECODE, team_threads(run->team), depth, batch);
        row->why = unfit(&run->feed.info, depth, batch);
        if (row->why && (uint64_t)depth + STEPS_CAP > run->feed.info.ctx_size)
            break; // for all batches alike
        if (row->why)
            continue;
        add_point(run, row, *first);
        n_sequences = batch > n_sequences ? batch : n_sequences;
    }
    if ((uint64_t)depth * n_sequences > MODEL_BENCH_FILL_CAP / 4)
        log_info("filling %u rows of context", depth * n_sequences);
    for (uint32_t i = 0; i < n_sequences; i++) {
        if (!model_feed_rows(&run->feed, *first + i, 0, depth, false, err))
            return false;
    }
    *first += n_sequences;
    return true;
}

static bool add_points(struct run *run, const struct model_bench_options *options,
                       struct model_bench_result *result, struct err *err)
{
    uint32_t first = 1; // sequence 0 is that of prefills
    for (uint32_t i = 0; i < options->prefill.n_values; i++) {
        const uint32_t length = options->prefill.values[i];
        struct model_bench_row *const row =
            add_row(result, MODEL_BENCH_PREFILL, team_threads(run->team), length, 1);
        row->why =
            length > run->feed.info.ctx_size ? "longer than the context: see --ctx-size" : NULL;
        if (!row->why)
            add_point(run, row, 0);
    }
    for (uint32_t i = 0; i < options->depth.n_values; i++) {
        if (!add_depth(run, options, options->depth.values[i], &first, result, err))
            return false;
    }
    return true;
}

/* ---- measuring ---- */

static bool measure_prefill(struct run *run, struct point *point, struct err *err)
{
    const struct engine_ops *const ops = run->feed.engine.ops;
    if (run->dot) {
        const double dot_s = bench_time_dot(run->team, run->dot, run->dot_steps);
        run->best_dot_s = fmin(run->best_dot_s, dot_s);
    }
    clock_sleep_ms(PAUSE_MS);
    const uint64_t start = clock_ns();
    if (!model_feed_rows(&run->feed, 0, 0, point->row->length, true, err))
        return false;
    samples_add(&point->rates, point->row->length / ((double)(clock_ns() - start) * 1e-9));
    ops->drop(&run->feed.engine, 0);
    return true;
}

/* Bytes a second of a plain read of as many bytes as a step reads, for the second time in a row. */
static double read_rate(struct run *run, double step_bytes)
{
    const size_t room = run->bench->cold.bytes;
    const size_t wanted = step_bytes < (double)room ? (size_t)step_bytes : room;
    const size_t bytes = (wanted / CEILING_READ_UNIT + 1) * CEILING_READ_UNIT;
    const size_t used = bytes < room ? bytes : room / CEILING_READ_UNIT * CEILING_READ_UNIT;
    bench_time_read(run->bench, run->team, run->bench->cold.data, used);
    return (double)used / bench_time_read(run->bench, run->team, run->bench->cold.data, used);
}

static bool measure_decode(struct run *run, struct point *point, struct err *err)
{
    const struct engine_cost *const cost = &run->feed.info.cost;
    const uint32_t depth = point->row->length, batch = point->row->batch;
    const double positions = batch * (depth + (point->steps + 1) / 2.0);
    const double bytes = (double)cost->weights_bytes + positions * (double)cost->position_bytes;
    const double limit = read_rate(run, bytes);
    clock_sleep_ms(PAUSE_MS);
    if (!model_feed_step(&run->feed, point->first, batch, depth, err))
        return false;
    const uint64_t start = clock_ns();
    for (uint32_t i = 0; i < point->steps; i++) {
        if (!model_feed_step(&run->feed, point->first, batch, depth + i, err))
            return false;
    }
    const double step_s = (double)(clock_ns() - start) * 1e-9 / point->steps;
    samples_add(&point->rates, batch / step_s);
    samples_add(&point->shares, bytes / step_s / limit);
    const double fitting = WINDOW_S / step_s;
    point->steps = fitting < 1 ? 1 : fitting > STEPS_CAP ? STEPS_CAP : (uint32_t)fitting;
    return true;
}

static bool measure_round(struct run *run, struct err *err)
{
    for (uint32_t i = 0; i < run->n_points; i++) {
        struct point *const point = &run->points[i];
        if (!(point->row->kind == MODEL_BENCH_PREFILL ? measure_prefill(run, point, err)
                                                      : measure_decode(run, point, err)))
            return false;
    }
    return true;
}

static void settle(const struct run *run, struct point *point, uint32_t rounds)
{
    struct model_bench_row *const row = point->row;
    row->rounds = rounds;
    row->rate = samples_median(&point->rates);
    row->rate_low = samples_quantile(&point->rates, 0.25);
    row->rate_high = samples_quantile(&point->rates, 0.75);
    if (row->kind == MODEL_BENCH_DECODE) {
        row->has_share = true;
        row->share = samples_median(&point->shares);
        row->share_low = samples_quantile(&point->shares, 0.25);
        row->share_high = samples_quantile(&point->shares, 0.75);
    } else if (run->dot) {
        const struct engine_cost *const cost = &run->feed.info.cost;
        const double peak =
            (double)run->dot_steps * run->dot->ops_per_step * row->threads / run->best_dot_s;
        const double macs =
            (double)cost->row_macs + (double)cost->logits_macs / row->length; // a token
        row->has_share = true;
        row->share = row->rate * 2 * macs / peak;
        row->share_low = row->rate_low * 2 * macs / peak;
        row->share_high = row->rate_high * 2 * macs / peak;
    }
}

/* ---- one number of threads ---- */

static uint32_t count_sequences(const struct model_bench_options *options)
{
    uint32_t largest = 1;
    for (uint32_t i = 0; i < options->batch.n_values; i++)
        largest = options->batch.values[i] > largest ? options->batch.values[i] : largest;
    return 1 + largest * options->depth.n_values;
}

static bool run_threads(struct run *run, const struct model_bench_options *options,
                        struct model_bench_result *result, struct err *err)
{
    struct engine_options engine = options->engine;
    engine.threads = team_threads(run->team);
    engine.max_sequences = count_sequences(options);
    const uint64_t opened = clock_ns();
    if (!model_feed_open(&run->feed, &engine, err))
        return false;
    if (result->n_rows == 0)
        result->open_s = (double)(clock_ns() - opened) * 1e-9;
    result->cost = run->feed.info.cost;
    if (!add_points(run, options, result, err))
        return false;
    uint32_t rounds = 0;
    for (const uint64_t start = clock_ns(); bench_goes_on(run->bench, start, rounds, ROUNDS_LOW);
         rounds++) {
        if (!measure_round(run, err))
            return false;
    }
    for (uint32_t i = 0; i < run->n_points; i++)
        settle(run, &run->points[i], rounds);
    return true;
}

static bool run_with(struct bench *bench, const struct model_bench_options *options,
                     uint32_t n_threads, struct model_bench_result *result, struct err *err)
{
    struct run *const run = xcalloc(1, sizeof(*run));
    run->bench = bench;
    run->dot = bench_dot(bench->options.kernel);
    run->dot_steps = run->dot ? bench_dot_steps(run->dot) : 0;
    run->best_dot_s = INFINITY;
    run->team = team_new(n_threads, err);
    const bool done = run->team && run_threads(run, options, result, err);
    for (uint32_t i = 0; i < run->n_points; i++) {
        samples_release(&run->points[i].rates);
        samples_release(&run->points[i].shares);
    }
    model_feed_close(&run->feed);
    team_free(run->team);
    free(run);
    return done;
}

bool model_bench_measure(struct bench *bench, const struct model_bench_options *options,
                         struct model_bench_result *result, struct err *err)
{
    const uint32_t all = options->engine.threads ? options->engine.threads : bench->machine.threads;
    const uint32_t each =
        options->prefill.n_values + options->depth.n_values * options->batch.n_values;
    uint32_t n = options->engine.threads ? all : 1;
    for (;;) {
        if (result->n_rows + each > MODEL_BENCH_ROWS_CAP)
            return err_set(err, ERR_ARGUMENT, "more than %u rows: name fewer",
                           MODEL_BENCH_ROWS_CAP);
        if (!run_with(bench, options, n, result, err))
            return false;
        if (n == all)
            return true;
        n = 2 * n < all ? 2 * n : all;
    }
}
