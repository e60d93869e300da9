/* The processors that this process may use, what kind they are, and how many threads that makes.
 *
 * What counts: the affinity mask, the control group's CPU quota (v1 and v2), which processors are
 * two halves of one core, which are efficient cores of a hybrid chip, and, for information, on
 * which memory node each is. The rules:
 *
 *   - by default one thread a physical performance core. A second thread of a core shares its
 *     vector units and its caches and adds a straggler to each barrier; an efficient core is
 *     slower by itself. They join when more threads are asked for: efficient cores first.
 *   - never more by default than the quota pays for, rounded: beyond it the group is stopped for
 *     the rest of each period, in the middle of a step.
 *   - workers are held to a set of processors only on a hybrid chip, where they are held to the
 *     performance cores unless there are more threads than those: a thread that is put on an
 *     efficient core delays all at each barrier. Elsewhere the scheduler moves threads away from
 *     other programs, which pinned ones could not be. The set lies within the mask. The caller of a
 *     team is never held: threads that it starts later would inherit its mask.
 *
 * Reading cannot fail: what is not known is taken for the simplest. Any thread. */
#ifndef CASCADIA_BASE_PROCESSORS_H
#define CASCADIA_BASE_PROCESSORS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

#define PROCESSORS_CAP 1024u // ids of processors run from 0 to here

struct processor {
    uint32_t id;
    uint32_t core; // the lowest id of those that share its core
    uint32_t node;
    bool is_efficient;
    bool is_sibling; // another one of the same core is before it
};

struct processors {
    uint32_t n; // that the mask allows, at least 1
    struct processor *of;
    uint32_t n_cores, n_efficient; // allowed performance and efficient cores; of one kind: n_cores
    uint32_t n_nodes;
    double quota; // processors that the control group may use at once; 0: no limit
};

/* Where it is read from. Zeroed: this machine and the calling thread. */
struct processors_source {
    const char *root;    // stands for "/", where /proc and /sys are; NULL: the real ones
    const char *allowed; // the mask, as "0-3,8"; NULL: asked of the system
    /* EAX of CPUID leaf 0x1A as processor `id` gives it, 0 when it has none; NULL: asked of each by
     * a thread that is pinned to it, on chips that say they are hybrid. */
    uint32_t (*leaf_1a)(void *context, uint32_t id);
    void *context;
};

/* The list is in the order in which threads take them: performance cores, efficient cores, second
 * threads of cores. */
void processors_read(struct processors *processors, const struct processors_source *source);
void processors_release(struct processors *processors); // zeroed values are fine

/* Threads of a team that was not told how many. At least 1. */
uint32_t processors_threads(const struct processors *processors);
uint32_t processors_threads_here(void); // of this machine and the calling thread

/* The first so many of the list are those that workers of a team of n_threads are held to; 0: they
 * are not held. */
uint32_t processors_hold(const struct processors *processors, uint32_t n_threads);

/* "8 processors: 4 performance cores, 2 efficient ones; quota 3.5; 1 memory node" */
void processors_describe(const struct processors *processors, struct buf *out);

#endif
