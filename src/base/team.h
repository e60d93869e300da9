/* The kernel team: a fixed set of threads that work on one loop at a time.
 *
 * The caller is thread 0 and takes part. A loop over n items is cut into one contiguous range a
 * thread; each takes small chunks from the front of its own range and, when done, from the fullest
 * other. Workers wait with a bounded spin, then sleep on a futex. Flush-to-zero and denormals-are-
 * zero are set on every thread while it takes part (the caller's mode is restored after).
 * Which thread runs an item is not defined: bodies must give the same bits on any.
 * One owner calls; never from within a body. */
#ifndef CASCADIA_BASE_TEAM_H
#define CASCADIA_BASE_TEAM_H

#include "base/err.h"

#include <stdint.h>

#define TEAM_THREADS_CAP 256u

struct team;

/* Items [first, last) by thread `thread` (0 .. n_threads-1). */
typedef void team_body(void *context, uint32_t first, uint32_t last, uint32_t thread);

/* n_threads 0: one a processor. ERR_ARGUMENT: more than TEAM_THREADS_CAP; ERR_SYSTEM. */
struct team *team_new(uint32_t n_threads, struct err *err);
void team_free(struct team *team); // NULL is fine
uint32_t team_threads(const struct team *team);

/* Runs body over [0, n_items) in chunks of at most `chunk` items; returns when all are done. */
void team_for(struct team *team, uint32_t n_items, uint32_t chunk, team_body *body, void *context);

/* Calls body once on each thread at the same time: (thread, thread + 1, thread). */
void team_each(struct team *team, team_body *body, void *context);

#endif
