/* A measurement: what it runs on, how long, and the windows that all of them are made of.
 *
 * The method: one process; windows of 0.1 to 1 ms, all contenders interleaved round by round;
 * memory is cold (cold.h). What is bound by memory is a ratio to a plain read of an equally large,
 * equally cold piece right before it, and the median of the ratios counts. What is bound by
 * arithmetic is the best window against the best window of the dot product on registers. Whoever
 * compares two runs, or looks at an absolute figure, measures the neighbours. */
#ifndef CASCADIA_BENCH_BENCH_H
#define CASCADIA_BENCH_BENCH_H

#include "base/err.h"
#include "base/team.h"
#include "bench/cold.h"
#include "bench/machine.h"
#include "kernel/ceiling.h"
#include "kernel/kernel.h"

#include <stdbool.h>
#include <stdint.h>

struct bench_options {
    const struct kernel *kernel; // the rung under test; NULL: the best there is
    uint32_t threads;            // of the bars for several; 0: two, the number they are stated for
    uint32_t rounds;             // of each measurement; 0: as many as `seconds` allow
    double seconds;              // at most, of each measurement
    const char *model;           // a shard directory, for the bars of a whole model; may be NULL
    const char *record_dir;      // as engine_options
};

struct bench {
    struct bench_options options; // as used
    struct machine machine;
    struct matmul_tuning tuning;     // how weights are walked, chosen as a model chooses it
    struct team *one;                // a team of one thread
    struct team *several;            // NULL when the machine has only one processor
    const struct ceiling_read *read; // the yardstick of memory
    struct cold cold;
};

/* ERR_UNSUPPORTED when this build cannot be measured: without optimisation or with a sanitizer. */
bool bench_allowed(struct err *err);

/* ERR_NO_MEMORY, ERR_SYSTEM. On failure the bench is zeroed. */
bool bench_init(struct bench *bench, const struct bench_options *options, struct err *err);
void bench_release(struct bench *bench); // zeroed values are fine

/* The team of n threads, 1 or options.threads; NULL when the machine has fewer processors. */
struct team *bench_team(const struct bench *bench, uint32_t n_threads);

/* True while a measurement that began at start_ns and has done `rounds` may go on: at least
 * `rounds_low` whatever it takes. */
bool bench_goes_on(const struct bench *bench, uint64_t start_ns, uint32_t rounds,
                   uint32_t rounds_low);

/* Seconds of one window. The team's threads are awake when it starts. */
double bench_time(struct team *team, void (*window)(void *context), void *context);
double bench_time_read(struct bench *bench, struct team *team, const uint8_t *data, size_t bytes);
double bench_time_dot(struct team *team, const struct ceiling_dot *dot, uint64_t steps);

/* What a rung's products of quantised weights are made of; NULL when the CPU lacks it. */
const struct ceiling_dot *bench_dot(const struct kernel *kernel);
const char *bench_dot_name(const struct kernel *kernel);

/* Steps of about a fifth of a millisecond. */
uint64_t bench_dot_steps(const struct ceiling_dot *dot);

#endif
