/* The kernel team: a fixed set of threads that work through a list of loops, one loop at a time.
 *
 * An op is a loop over n items. It is cut into chunks, each thread owns a contiguous run of them,
 * takes them from the front and, when done, takes from the others: a preempted or slower core costs
 * its chunk and not its run. No item of an op begins before the last of the op before it is done;
 * that is the only barrier, and it waits for work, never for a thread: a worker that has no core
 * right now is not missed. An op of a single chunk is thread 0's.
 *
 * The caller is thread 0 and takes part. Workers wait with a bounded spin, then sleep on a futex;
 * they are woken once a list. Flush-to-zero and denormals-are-zero are set on every thread while it
 * takes part (the caller's mode is restored after). Which thread runs an item is not defined:
 * bodies must give the same bits on any. One owner calls; never from within a body. */
#ifndef CASCADIA_BASE_TEAM_H
#define CASCADIA_BASE_TEAM_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define TEAM_THREADS_CAP 256u
#define TEAM_CHUNKS_CAP ((1u << 24) - 1) // of an op: n_items / chunk

struct team;

/* Items [first, last) by thread `thread` (0 .. n_threads-1). */
typedef void team_body(void *context, uint32_t first, uint32_t last, uint32_t thread);

/* Run by each thread that takes part in an op, once, before its first body: what is so small that
 * all do it for themselves sooner than one of them could do it for all. */
typedef void team_prepare(void *context, uint32_t thread);

/* A loop: n_items (0 is fine) in chunks of at most `chunk`. */
struct team_op {
    team_body *body;
    team_prepare *prepare; // NULL: none
    void *context;         // borrowed until the list is done
    uint32_t n_items, chunk;
};

/* What a list is run with besides its ops; zeroed is fine. */
struct team_watch {
    const atomic_bool *stop; // once true no further body is called; NULL: none
    uint64_t *ended_ns;      // [n_ops] clock_ns when each op was done; NULL: not asked for
};

/* n_threads 0: processors_threads. Where workers run: see base/processors.h. ERR_ARGUMENT: more
 * than TEAM_THREADS_CAP; ERR_SYSTEM. */
struct team *team_new(uint32_t n_threads, struct err *err);
void team_free(struct team *team); // NULL is fine
uint32_t team_threads(const struct team *team);

/* Runs ops[n_ops] one after another; returns when all are done. `watch` may be NULL. */
void team_run(struct team *team, const struct team_op *ops, uint32_t n_ops,
              const struct team_watch *watch);

/* A list of one op. */
void team_for(struct team *team, uint32_t n_items, uint32_t chunk, team_body *body, void *context);

/* Calls body once on each thread, at the same time if there are cores: (thread, thread + 1,
 * thread). */
void team_each(struct team *team, team_body *body, void *context);

#endif
