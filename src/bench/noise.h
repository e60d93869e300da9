/* How much of the machine others take: a loop that does nothing but look at the clock, on all
 * processors at once. What it does not see, somebody else had. */
#ifndef CASCADIA_BENCH_NOISE_H
#define CASCADIA_BENCH_NOISE_H

#include "base/team.h"

#include <stdint.h>

/* Above this share of lost time a run cannot judge the machine. */
#define NOISE_LOST_CAP 0.10

/* Share of time, 0..1, that the threads of the team lost in gaps: the worst thread's. */
double noise_probe(struct team *team, uint32_t ms);

#endif
