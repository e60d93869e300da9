/* A thread that dials one address until somebody there welcomes it, however long that takes.
 *
 * It says in the log, and with AWAIT frames to its owner, what it waits for and why. */
#ifndef CASCADIA_PIPELINE_DIALLER_H
#define CASCADIA_PIPELINE_DIALLER_H

#include "base/err.h"
#include "pipeline/event.h"
#include "pipeline/handshake.h"
#include "pipeline/link.h"

#include <stdint.h>

struct dialler;

struct dialler_options {
    const char *address; // copied
    const char *who;     // whom it hopes for: "rank 2"; copied
    struct link_options link;
    struct handshake hello;
    uint32_t epoch;
    uint32_t tag;         // of its events
    struct queue *events; // gets EVENT_FRAME with AWAITs, then one EVENT_JOINED
    struct frame_pool *pool;
};

struct dialler *dialler_start(const struct dialler_options *options, struct err *err);
void dialler_stop(struct dialler *dialler); // at once, whatever it waits for; NULL is fine

#endif
