/* Windows and teams. A team's workers sleep when nobody called them for some tens of microseconds,
 * and waking them takes as long as a small window: each window is preceded by an empty one. */
#include "bench/bench.h"

#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "kernel/tuning.h"

#define DOT_WINDOW_NS 200000.0
#define ROUNDS_CAP 2000u

#ifndef CASCADIA_SANITIZED
#define CASCADIA_SANITIZED 0
#endif

bool bench_allowed(struct err *err)
{
#ifndef __OPTIMIZE__
    return err_set(err, ERR_UNSUPPORTED,
                   "this build is not optimised, its figures would say nothing: cmake --preset "
                   "release, then build/release/cascadia");
#else
    if (CASCADIA_SANITIZED)
        return err_set(err, ERR_UNSUPPORTED,
                       "this build has sanitizers, its figures would say nothing: cmake --preset "
                       "release, then build/release/cascadia");
    return true;
#endif
}

/* As model.c has it: by the table of cores, else by the probe. */
static bool choose_tuning(struct bench *bench, struct err *err)
{
    bench->tuning = tuning_candidates[0];
    if (bench->options.kernel == kernels[0] ||
        tuning_find(bench->machine.cpu.microarch, &bench->tuning))
        return true;
    uint8_t *const zeros = memory_pages(TUNING_PROBE_BYTES, err);
    if (!zeros)
        return false;
    memset(zeros, 0, TUNING_PROBE_BYTES);
    bench->tuning = tuning_probe(bench->options.kernel, zeros);
    memory_pages_free(zeros, TUNING_PROBE_BYTES);
    return true;
}

bool bench_init(struct bench *bench, const struct bench_options *options, struct err *err)
{
    *bench = (struct bench){ .options = *options, .read = ceiling_read_best() };
    machine_describe(&bench->machine);
    if (!bench->options.kernel)
        bench->options.kernel = kernel_best();
    if (bench->options.threads == 0)
        bench->options.threads = 2;
    const uint32_t n = bench->options.threads;
    if (!choose_tuning(bench, err))
        goto fail;
    bench->one = team_new(1, err);
    if (!bench->one)
        goto fail;
    if (n > 1 && n <= bench->machine.threads && !(bench->several = team_new(n, err)))
        goto fail;
    if (!cold_init(&bench->cold, bench->several ? bench->several : bench->one,
                   bench->machine.l3_bytes, err))
        goto fail;
    return true;
fail:
    bench_release(bench);
    return false;
}

void bench_release(struct bench *bench)
{
    team_free(bench->one);
    team_free(bench->several);
    cold_release(&bench->cold);
    *bench = (struct bench){ 0 };
}

struct team *bench_team(const struct bench *bench, uint32_t n_threads)
{
    return n_threads == 1 ? bench->one : bench->several;
}

bool bench_goes_on(const struct bench *bench, uint64_t start_ns, uint32_t rounds,
                   uint32_t rounds_low)
{
    if (bench->options.rounds)
        return rounds < bench->options.rounds;
    if (rounds < rounds_low)
        return true;
    return rounds < ROUNDS_CAP && (double)(clock_ns() - start_ns) * 1e-9 < bench->options.seconds;
}

static void nothing(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    (void)context;
    (void)first;
    (void)last;
    (void)thread;
}

double bench_time(struct team *team, void (*window)(void *context), void *context)
{
    team_each(team, nothing, NULL);
    const uint64_t start = clock_ns();
    window(context);
    return (double)(clock_ns() - start) * 1e-9;
}

double bench_time_read(struct bench *bench, struct team *team, const uint8_t *data, size_t bytes)
{
    team_each(team, nothing, NULL);
    const uint64_t start = clock_ns();
    ceiling_read_all(team, bench->read, data, bytes, 1);
    return (double)(clock_ns() - start) * 1e-9;
}

double bench_time_dot(struct team *team, const struct ceiling_dot *dot, uint64_t steps)
{
    team_each(team, nothing, NULL);
    const uint64_t start = clock_ns();
    ceiling_dot_all(team, dot, steps);
    return (double)(clock_ns() - start) * 1e-9;
}

const char *bench_dot_name(const struct kernel *kernel)
{
    return strcmp(kernel->name, "avx512") == 0    ? "vpdpbusd zmm"
           : strcmp(kernel->name, "avxvnni") == 0 ? "vpdpbusd ymm vex"
                                                  : "maddubs+madd+add ymm";
}

const struct ceiling_dot *bench_dot(const struct kernel *kernel)
{
    return ceiling_dot_find(bench_dot_name(kernel));
}

uint64_t bench_dot_steps(const struct ceiling_dot *dot)
{
    enum { TRIAL = 2000 };
    dot->run(TRIAL);
    const uint64_t start = clock_ns();
    dot->run(TRIAL);
    return (uint64_t)(DOT_WINDOW_NS * TRIAL / (double)(clock_ns() - start)) + 1;
}
