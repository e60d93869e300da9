/* Where the time of a step goes: nanoseconds by the name of its loops. Whoever wants to know gives
 * one to model_options.profile; without, a step asks no clock. The time of a loop runs from the end
 * of the one before to its own, as thread 0 sees it, so barriers and stragglers are in it and all
 * times add up to that of the step. Written by the thread that steps. */
#ifndef CASCADIA_MODEL_PROFILE_H
#define CASCADIA_MODEL_PROFILE_H

#include "base/buf.h"

#include <stdint.h>

#define PROFILE_ENTRIES_CAP 32u

struct profile_entry {
    const char *name;
    uint64_t n; // loops
    uint64_t ns;
};

struct profile {
    uint32_t n_rows; // steps of so many rows are counted: 1 for decode
    struct profile_entry entries[PROFILE_ENTRIES_CAP];
    uint32_t n_entries;
    uint64_t n_steps, ns; // and the time of all of them
};

/* Adds a loop; names beyond PROFILE_ENTRIES_CAP are added to the last. */
void profile_add(struct profile *profile, const char *name, uint64_t ns);

/* A line a name, the longest first: microseconds a step, share, loops a step. */
void profile_report(const struct profile *profile, struct buf *out);

#endif
