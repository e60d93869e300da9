/* How much of the machine others take: a loop that does nothing but look at the clock, on all
 * processors at once. What it does not see, somebody else had. */
#ifndef CASCADIA_BENCH_NOISE_H
#define CASCADIA_BENCH_NOISE_H

#include <stdint.h>

/* Above this share of lost time a run cannot judge the machine. */
#define NOISE_LOST_CAP 0.10

/* Share of time, 0..1, lost in gaps on the worst of n_threads processors; those that threads take
 * first (base/processors.h). */
double noise_probe(uint32_t n_threads, uint32_t ms);

#endif
