/* Random numbers without state: a pure function of (seed, position).
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011). The seed is the key, the position the counter, so a request can be replayed from any
 * position, on any machine, with nothing to carry along. Any thread. */
#ifndef CASCADIA_SAMPLE_RNG_H
#define CASCADIA_SAMPLE_RNG_H

#include <stdint.h>

/* out[4] = the block of counter[4] under key[2]. */
void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Uniform in [0, 1), a multiple of 2^-53. */
double rng_uniform(uint64_t seed, uint64_t position);

#endif
