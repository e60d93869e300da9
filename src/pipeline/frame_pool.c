/* A queue of idle frames. Their payloads keep the memory they once needed, so each grows to the
 * largest batch that passes and then stays; the number kept bounds what that can add up to. */
#include "pipeline/frame_pool.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/queue.h"

#define IDLE_CAP 64
#define IDLE_BYTES_CAP (32u << 20) // one that grew beyond is let go

struct frame_pool {
    struct queue *idle; // struct frame *
};

static void frame_free(struct frame *frame)
{
    frame_release(frame);
    free(frame);
}

struct frame_pool *frame_pool_new(void)
{
    struct frame_pool *pool = xcalloc(1, sizeof *pool);
    pool->idle = queue_new(sizeof(struct frame *), IDLE_CAP);
    return pool;
}

void frame_pool_free(struct frame_pool *pool)
{
    struct frame *frame;
    if (!pool)
        return;
    while (queue_pop(pool->idle, &frame))
        frame_free(frame);
    queue_free(pool->idle);
    free(pool);
}

struct frame *frame_pool_take(struct frame_pool *pool)
{
    struct frame *frame;
    if (queue_pop(pool->idle, &frame))
        return frame;
    frame = xcalloc(1, sizeof *frame);
    frame_init(frame);
    return frame;
}

void frame_pool_give(struct frame_pool *pool, struct frame *frame)
{
    if (!frame)
        return;
    if (frame->payload.room > IDLE_BYTES_CAP || !queue_push(pool->idle, &frame))
        frame_free(frame);
}
