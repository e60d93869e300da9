/* What the threads of a stage tell each other: the one kind of item in their queues.
 *
 * Whoever pops an event owns its frame and its greeting. Senders number themselves with a tag that
 * is used once, so that words of a channel or dialler that is gone are known for what they are. */
#ifndef CASCADIA_PIPELINE_EVENT_H
#define CASCADIA_PIPELINE_EVENT_H

#include "base/queue.h"
#include "pipeline/frame.h"
#include "pipeline/frame_pool.h"
#include "pipeline/greeting.h"
#include "pipeline/link_guard.h"

#include <stdbool.h>
#include <stdint.h>

#define EVENTS_CAP 4096 // of a queue: far beyond batches in flight and sequences to drop

enum event_kind {
    EVENT_WAKE,   // look at your flags
    EVENT_FRAME,  // frame
    EVENT_LOST,   // a channel is over; frame: a FAIL that says why
    EVENT_CALLED, // greeting: somebody dialled in, and is not answered yet
    EVENT_JOINED, // greeting: a dialler was welcomed
};

struct event {
    enum event_kind kind;
    uint32_t tag; // of the channel or dialler; 0: none
    struct frame *frame;
    struct greeting *greeting;
};

/* Frees what the event holds. */
void event_drop(struct event *event, struct frame_pool *pool);
/* Empties the queue. */
void event_drain(struct queue *queue, struct frame_pool *pool);
/* Pushes a frame; on failure (closed, full for timeout_ms) the caller still owns it. */
bool event_push_frame(struct queue *queue, enum event_kind kind, uint32_t tag, struct frame *frame,
                      uint64_t timeout_ms);
/* Waits for room for as long as the guard is not ended. On failure the caller still owns it. */
bool event_push_greeting(struct queue *queue, enum event_kind kind, uint32_t tag,
                         struct greeting *greeting, struct link_guard *guard);
void event_wake(struct queue *queue); // a full queue needs none

#endif
