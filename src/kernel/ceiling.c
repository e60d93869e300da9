/* The tables, the loops that every x86-64 has, and the two ways to run a ceiling on a team. */
#include "kernel/ceiling.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "kernel/ceiling_internal.h"
#include "kernel/cpu.h"

const struct ceiling_read *const ceiling_reads[] = { &ceiling_read_scalar, &ceiling_read_avx2,
                                                     &ceiling_read_avx512, NULL };

const struct ceiling_dot *const ceiling_dots[] = {
    &ceiling_vnni_avx512, &ceiling_vnni_ymm_avx512, &ceiling_vnni_avxvnni, &ceiling_madd_avx2,
    &ceiling_addw_avx2,   &ceiling_fma_avx512,      &ceiling_fma_avx2,     NULL,
};

static uint64_t read_scalar(const uint8_t *data, size_t bytes, uint32_t streams)
{
    const size_t part = bytes / streams;
    uint64_t sums[8] = { 0 };
    for (size_t at = 0; at < part; at += sizeof(sums)) {
        for (uint32_t s = 0; s < streams; s++) {
            uint64_t words[8];
            memcpy(words, data + s * part + at, sizeof(words));
            for (uint32_t i = 0; i < 8; i++)
                sums[i] ^= words[i];
        }
    }
    return sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
}

const struct ceiling_read ceiling_read_scalar = {
    .name = "8-byte",
    .run = read_scalar,
};

bool ceiling_read_usable(const struct ceiling_read *read)
{
    const struct cpu cpu = cpu_detect();
    return cpu_has(&cpu, read->features);
}

bool ceiling_dot_usable(const struct ceiling_dot *dot)
{
    const struct cpu cpu = cpu_detect();
    return cpu_has(&cpu, dot->features);
}

const struct ceiling_read *ceiling_read_best(void)
{
    const struct ceiling_read *best = ceiling_reads[0];
    for (uint32_t i = 1; ceiling_reads[i]; i++) {
        if (ceiling_read_usable(ceiling_reads[i]))
            best = ceiling_reads[i];
    }
    return best;
}

const struct ceiling_dot *ceiling_dot_find(const char *name)
{
    for (uint32_t i = 0; ceiling_dots[i]; i++) {
        if (strcmp(ceiling_dots[i]->name, name) == 0)
            return ceiling_dot_usable(ceiling_dots[i]) ? ceiling_dots[i] : NULL;
    }
    return NULL;
}

/* ---- on a team ---- */

struct reading {
    const struct ceiling_read *read;
    const uint8_t *data;
    size_t units; // of CEILING_READ_UNIT
    uint32_t streams, n_threads;
};

static void read_part(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct reading *const reading = context;
    const size_t from = reading->units * first / reading->n_threads * CEILING_READ_UNIT;
    const size_t to = reading->units * last / reading->n_threads * CEILING_READ_UNIT;
    volatile uint64_t sink;
    (void)thread;
    sink = reading->read->run(reading->data + from, to - from, reading->streams);
    (void)sink;
}

void ceiling_read_all(struct team *team, const struct ceiling_read *read, const uint8_t *data,
                      size_t bytes, uint32_t streams)
{
    must(bytes % CEILING_READ_UNIT == 0);
    must(streams == 1 || streams == 2 || streams == CEILING_STREAMS_CAP);
    struct reading reading = { read, data, bytes / CEILING_READ_UNIT, streams, team_threads(team) };
    team_each(team, read_part, &reading);
}

struct dotting {
    const struct ceiling_dot *dot;
    uint64_t steps;
};

static void dot_part(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    const struct dotting *const dotting = context;
    (void)first;
    (void)last;
    (void)thread;
    dotting->dot->run(dotting->steps);
}

void ceiling_dot_all(struct team *team, const struct ceiling_dot *dot, uint64_t steps)
{
    struct dotting dotting = { dot, steps };
    team_each(team, dot_part, &dotting);
}

/* ---- the clock ---- */

#define CHAIN_4(op) op op op op
#define CHAIN_64(op) CHAIN_4(CHAIN_4(CHAIN_4(op)))

/* `rounds` x 64 additions, each of which waits for the one before it. A register is added, not a
 * constant: some cores add constants while renaming, in no time. */
static void chain(uint64_t rounds)
{
    uint64_t sum = 0;
    const uint64_t one = 1;
    __asm__ volatile("1:\n" CHAIN_64("add %2, %0\n") "dec %1\n"
                                                     "jnz 1b"
                     : "+&r"(sum), "+&r"(rounds)
                     : "r"(one)
                     : "cc");
}

double ceiling_clock_hz(void)
{
    enum { TRIES = 8, ROUNDS = 8192 };
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < TRIES; i++) {
        const uint64_t start = clock_ns();
        chain(ROUNDS);
        const uint64_t took = clock_ns() - start;
        best = took < best ? took : best;
    }
    return (double)ROUNDS * 64.0 * 1e9 / (double)best;
}
