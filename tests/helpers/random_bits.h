/* Repeatable numbers for tests: the same on every machine (splitmix64; no libm). */
#ifndef CASCADIA_TESTS_HELPERS_RANDOM_BITS_H
#define CASCADIA_TESTS_HELPERS_RANDOM_BITS_H

#include <stdint.h>

static inline uint64_t random_bits(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Nearly normal, mean 0 and variance 1: the sum of twelve uniform 16-bit numbers, exact in f32. */
static inline float random_normal(uint64_t *state)
{
    int64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t bits = random_bits(state);
        for (int j = 0; j < 4; j++, bits >>= 16)
            sum += (int64_t)(bits & 0xffffu);
    }
    return (float)(sum - 6 * 65535) * 0x1p-16f;
}

#endif
