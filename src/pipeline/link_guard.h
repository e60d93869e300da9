/* A link that one thread waits on and another may have to end: it is known to both only while the
 * waiting lasts. The mutex guards the pointer, never the waiting. */
#ifndef CASCADIA_PIPELINE_LINK_GUARD_H
#define CASCADIA_PIPELINE_LINK_GUARD_H

#include "base/thread.h"
#include "pipeline/link.h"

#include <stdbool.h>

struct link_guard {
    struct mutex mutex;
    struct link *link; // borrowed from the waiting thread
    bool ended;
};

void link_guard_init(struct link_guard *guard);
void link_guard_release(struct link_guard *guard);

/* The waiting thread, around its waits. False: ended already, do not wait. */
bool link_guard_hold(struct link_guard *guard, struct link *link);
void link_guard_let_go(struct link_guard *guard);

/* Any other thread: cuts what is held now, if anything is. */
void link_guard_cut(struct link_guard *guard);
/* The same, and from now on. */
void link_guard_end(struct link_guard *guard);
bool link_guard_ended(struct link_guard *guard);

#endif
