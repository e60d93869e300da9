/* Philox is a keyed bijection of 128-bit blocks: ten rounds of two 32 x 32 -> 64 multiplications.
 * It passes the usual batteries (BigCrush) even when counters and keys are small neighbouring
 * numbers, which is how they are used here: positions count up, and people choose seeds like 1. */
#include "sample/rng.h"

#define PHILOX_ROUNDS 10
#define PHILOX_MULTIPLIER_0 0xD2511F53u
#define PHILOX_MULTIPLIER_1 0xCD9E8D57u
#define PHILOX_WEYL_0 0x9E3779B9u // golden ratio
#define PHILOX_WEYL_1 0xBB67AE85u // sqrt(3) - 1

void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        const uint64_t product_0 = (uint64_t)PHILOX_MULTIPLIER_0 * c0;
        const uint64_t product_1 = (uint64_t)PHILOX_MULTIPLIER_1 * c2;
        c0 = (uint32_t)(product_1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(product_0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)product_1;
        c3 = (uint32_t)product_0;
        k0 += PHILOX_WEYL_0;
        k1 += PHILOX_WEYL_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

double rng_uniform(uint64_t seed, uint64_t position)
{
    const uint32_t counter[4] = { (uint32_t)position, (uint32_t)(position >> 32), 0, 0 };
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    uint32_t block[4];
    rng_philox(counter, key, block);
    const uint64_t bits = ((uint64_t)block[1] << 32 | block[0]) >> 11; // the 53 that a double holds
    return (double)bits * 0x1p-53;
}
