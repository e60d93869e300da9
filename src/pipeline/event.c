/* Small helpers, so that who owns what an event holds is decided in one place. */
#include "pipeline/event.h"

#define PUSH_SLICE_MS 100 // how often who waits for room looks whether it is to end

void event_drop(struct event *event, struct frame_pool *pool)
{
    frame_pool_give(pool, event->frame);
    greeting_free(event->greeting);
    event->frame = NULL;
    event->greeting = NULL;
}

void event_drain(struct queue *queue, struct frame_pool *pool)
{
    struct event event;
    while (queue_pop(queue, &event))
        event_drop(&event, pool);
}

bool event_push_frame(struct queue *queue, enum event_kind kind, uint32_t tag, struct frame *frame,
                      uint64_t timeout_ms)
{
    struct event event = { .kind = kind, .tag = tag, .frame = frame };
    return timeout_ms ? queue_push_wait(queue, &event, timeout_ms) : queue_push(queue, &event);
}

bool event_push_greeting(struct queue *queue, enum event_kind kind, uint32_t tag,
                         struct greeting *greeting, struct link_guard *guard)
{
    struct event event = { .kind = kind, .tag = tag, .greeting = greeting };
    while (!queue_push_wait(queue, &event, PUSH_SLICE_MS)) {
        if (queue_closed(queue) || link_guard_ended(guard))
            return false;
    }
    return true;
}

void event_wake(struct queue *queue)
{
    struct event event = { .kind = EVENT_WAKE };
    queue_push(queue, &event);
}
