/* How weights are walked on the core at hand: a table of measured cores, and a probe for others.
 *
 * A walk differs between machines more than the arithmetic does: one stream without prefetch reads
 * 0.92 of the memory's rate on Zen 4 and 0.6 on Emerald Rapids, where four panels walked together
 * and asked for ahead of time reach 0.91, which on Zen 4 would cost a third. Speed is all that
 * changes: every tuning gives the same bits (tests/kernel). No state, any thread. */
#ifndef CASCADIA_KERNEL_TUNING_H
#define CASCADIA_KERNEL_TUNING_H

#include "kernel/cpu.h"
#include "kernel/kernel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TUNING_CANDIDATES 7u
#define TUNING_PROBE_BYTES ((size_t)40 << 20) // larger than most caches

/* What the probe chooses from. */
extern const struct matmul_tuning tuning_candidates[TUNING_CANDIDATES];

/* False when the core is not in the table: *out is untouched. */
bool tuning_find(enum cpu_microarch microarch, struct matmul_tuning *out);

/* The fastest candidate on this thread's core, by medians of interleaved short products of one row
 * with weights that are read once. `memory` is TUNING_PROBE_BYTES of zeros, 64-byte aligned, the
 * caller's. Takes some milliseconds. */
struct matmul_tuning tuning_probe(const struct kernel *kernel, const uint8_t *memory);

/* "none", "T0", "T1", "NTA": the hint, or that there is none. */
const char *tuning_hint_name(const struct matmul_tuning *tuning);

#endif
