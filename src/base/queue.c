/* A ring under one mutex. Items are small and few per token (events, frames' pointers), so a lock
 * that is held for one memcpy is not what limits anything; what matters is that it is bounded and
 * that closing wakes everybody. */
#include "base/queue.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>

struct queue {
    struct mutex mutex;
    struct condition has_item, has_room;
    size_t item_bytes, items_cap;
    size_t first, n_items;
    bool closed;
    unsigned char *items; // [items_cap][item_bytes]
};

struct queue *queue_new(size_t item_bytes, size_t items_cap)
{
    struct queue *queue = xcalloc(1, sizeof *queue);
    must(item_bytes > 0 && items_cap > 0);
    mutex_init(&queue->mutex);
    condition_init(&queue->has_item);
    condition_init(&queue->has_room);
    queue->item_bytes = item_bytes;
    queue->items_cap = items_cap;
    queue->items = xcalloc(items_cap, item_bytes);
    return queue;
}

void queue_free(struct queue *queue)
{
    if (!queue)
        return;
    condition_release(&queue->has_item);
    condition_release(&queue->has_room);
    mutex_release(&queue->mutex);
    free(queue->items);
    free(queue);
}

static unsigned char *slot(struct queue *queue, size_t index)
{
    return queue->items + (queue->first + index) % queue->items_cap * queue->item_bytes;
}

/* Under the lock. */
static bool put(struct queue *queue, const void *item)
{
    if (queue->closed || queue->n_items == queue->items_cap)
        return false;
    memcpy(slot(queue, queue->n_items), item, queue->item_bytes);
    queue->n_items++;
    condition_signal(&queue->has_item);
    return true;
}

static bool get(struct queue *queue, void *item)
{
    if (queue->n_items == 0)
        return false;
    memcpy(item, slot(queue, 0), queue->item_bytes);
    queue->first = (queue->first + 1) % queue->items_cap;
    queue->n_items--;
    condition_signal(&queue->has_room);
    return true;
}

bool queue_push(struct queue *queue, const void *item)
{
    mutex_lock(&queue->mutex);
    bool done = put(queue, item);
    mutex_unlock(&queue->mutex);
    return done;
}

bool queue_pop(struct queue *queue, void *item)
{
    mutex_lock(&queue->mutex);
    bool done = get(queue, item);
    mutex_unlock(&queue->mutex);
    return done;
}

/* Waits once for `condition`; false when the deadline has passed. Under the lock. */
static bool wait_until(struct queue *queue, struct condition *condition, uint64_t timeout_ms,
                       uint64_t started_ms)
{
    if (timeout_ms == UINT64_MAX) {
        condition_wait(condition, &queue->mutex);
        return true;
    }
    uint64_t passed = clock_ms() - started_ms;
    if (passed >= timeout_ms)
        return false;
    condition_wait_for(condition, &queue->mutex, timeout_ms - passed);
    return true;
}

bool queue_push_wait(struct queue *queue, const void *item, uint64_t timeout_ms)
{
    uint64_t started = clock_ms();
    bool done;
    mutex_lock(&queue->mutex);
    while (!(done = put(queue, item)) && !queue->closed) {
        if (!wait_until(queue, &queue->has_room, timeout_ms, started))
            break;
    }
    mutex_unlock(&queue->mutex);
    return done;
}

bool queue_pop_wait(struct queue *queue, void *item, uint64_t timeout_ms)
{
    uint64_t started = clock_ms();
    bool done;
    mutex_lock(&queue->mutex);
    while (!(done = get(queue, item)) && !queue->closed) {
        if (!wait_until(queue, &queue->has_item, timeout_ms, started))
            break;
    }
    mutex_unlock(&queue->mutex);
    return done;
}

void queue_close(struct queue *queue)
{
    mutex_lock(&queue->mutex);
    queue->closed = true;
    condition_broadcast(&queue->has_item);
    condition_broadcast(&queue->has_room);
    mutex_unlock(&queue->mutex);
}

bool queue_closed(const struct queue *queue)
{
    struct queue *shared = (struct queue *)(uintptr_t)queue; // only its lock changes
    mutex_lock(&shared->mutex);
    bool closed = shared->closed;
    mutex_unlock(&shared->mutex);
    return closed;
}
