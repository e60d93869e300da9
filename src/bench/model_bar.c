/* The model is opened as the engine opens it, from a native shard: nothing of the weights is
 * written or copied, so opening is what has to be looked up, measured and laid out. */
#include "bench/model_bar.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "bench/samples.h"
#include "bench/team_bar.h"
#include "model/model.h"

#define CONTEXT 512u
#define ROUNDS_LOW 50u
#define OPENINGS_LOW 5u
#define STEPS 8u // of a round

static struct model *open_model(const struct bench *bench, uint32_t threads, struct err *err)
{
    const struct model_options options = {
        .ctx_size = CONTEXT,
        .max_rows = 32,
        .max_sequences = 1,
        .threads = threads,
        .kernel = bench->options.kernel,
        .record_dir = bench->options.record_dir,
    };
    return model_open(bench->options.model, &options, err);
}

static bool can_measure(const struct bench *bench, struct bar_result *result)
{
    if (bench->options.model && bench->several)
        return true;
    result->state = bench->options.model ? BAR_NOT_HERE : BAR_NOT_ASKED;
    if (bench->options.model)
        snprintf(result->why, sizeof(result->why), "fewer than %u processors",
                 bench->options.threads);
    else
        snprintf(result->why, sizeof(result->why), "needs --model");
    return false;
}

static void describe(struct bar_result *result, const struct samples *samples, const char *what)
{
    result->n_cases = 1;
    result->cases[0] = (struct bar_case){
        .figure = samples_median(samples),
        .low = samples_quantile(samples, 0.25),
        .high = samples_quantile(samples, 0.75),
    };
    snprintf(result->cases[0].what, sizeof(result->cases[0].what), "%s", what);
}

/* ---- T2 ---- */

/* Seconds of a step of one row, the mean of some. */
static double time_steps(struct model *model, float *logits, bool *done, struct err *err)
{
    const uint64_t start = clock_ns();
    for (uint32_t i = 0; *done && i < STEPS; i++) {
        const struct model_row row = { .position = i, .token = 1, .wants_logits = true };
        *done = model_step(model, &row, 1, NULL, logits, err);
    }
    return (double)(clock_ns() - start) * 1e-9 / STEPS;
}

bool model_bar_sync(const struct bar *bar, struct bench *bench, struct bar_result *result,
                    struct err *err)
{
    struct samples shares = { 0 };
    char what[56];
    (void)bar;
    if (!can_measure(bench, result))
        return true;
    struct model *const model = open_model(bench, bench->options.threads, err);
    if (!model)
        return false;
    float *const logits = xcalloc(model_info(model)->vocab_size, sizeof(*logits));
    bool done = true;
    for (const uint64_t start = clock_ns();
         done && bench_goes_on(bench, start, result->rounds, ROUNDS_LOW); result->rounds++) {
        const double op_s = team_bar_time_op(bench);
        clock_sleep_ms(1); // the other team goes to sleep
        time_steps(model, logits, &done, err);
        const double step_s = time_steps(model, logits, &done, err);
        samples_add(&shares, 100.0 * model_info(model)->step_ops * op_s / step_s);
    }
    snprintf(what, sizeof(what), "%u loops a token, %u threads", model_info(model)->step_ops,
             bench->options.threads);
    describe(result, &shares, what);
    samples_release(&shares);
    free(logits);
    model_close(model);
    return done;
}

/* ---- L1 ---- */

bool model_bar_open(const struct bar *bar, struct bench *bench, struct bar_result *result,
                    struct err *err)
{
    struct samples times = { 0 };
    uint64_t weights_bytes = 0;
    double best_ms = 0;
    bool done = true;
    (void)bar;
    if (!can_measure(bench, result))
        return true;
    for (const uint64_t start = clock_ns();
         done && bench_goes_on(bench, start, result->rounds, OPENINGS_LOW); result->rounds++) {
        const uint64_t opened = clock_ns();
        struct model *const model = open_model(bench, bench->options.threads, err);
        const double took_ms = (double)(clock_ns() - opened) * 1e-6;
        done = model != NULL;
        if (!done)
            break;
        weights_bytes = model_info(model)->cost.weights_bytes;
        if (result->rounds > 0) // the first one warms the page cache
            samples_add(&times, took_ms * 0x1p30 / (double)weights_bytes);
        best_ms = best_ms == 0 || took_ms < best_ms ? took_ms : best_ms;
        model_close(model);
    }
    describe(result, &times, "native shard, warm page cache");
    snprintf(result->cases[0].rate, sizeof(result->cases[0].rate), "best %.1f ms for %.0f MB",
             best_ms, (double)weights_bytes * 1e-6);
    samples_release(&times);
    return done;
}
