/* Memory that no cache holds: a large block, handed out piece by piece and round again, so that a
 * piece was last touched a whole block ago. Kernel and yardstick take pieces in turn, so both read
 * equally cold parts of the same allocation.
 *
 * The bytes are fixed pseudo-random ones that mean finite numbers in every format of weights, so
 * any piece can be a matrix of any format. One owner. */
#ifndef CASCADIA_BENCH_COLD_H
#define CASCADIA_BENCH_COLD_H

#include "base/err.h"
#include "base/team.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cold {
    uint8_t *data;
    size_t bytes;
    size_t at; // the next piece
};

/* Twice the last-level cache, at least COLD_BYTES_MIN; at most half of the memory that is free.
 * ERR_NO_MEMORY. */
#define COLD_BYTES_MIN ((size_t)256 << 20)
bool cold_init(struct cold *cold, struct team *team, size_t cache_bytes, struct err *err);
void cold_release(struct cold *cold); // zeroed values are fine

/* The next piece, 4096-aligned; `bytes` is at most half of the block. */
const uint8_t *cold_next(struct cold *cold, size_t bytes);

#endif
