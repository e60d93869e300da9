/* A bounded queue of fixed-size items between threads: any number of senders and receivers.
 *
 * Items are copied in and out; whoever receives an item owns what it points to. On failure of a
 * push the sender keeps the item. A closed queue refuses pushes and still gives what it holds. */
#ifndef CASCADIA_BASE_QUEUE_H
#define CASCADIA_BASE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct queue;

struct queue *queue_new(size_t item_bytes, size_t items_cap);
void queue_free(struct queue *queue); // items left in it are forgotten; NULL is fine

bool queue_push(struct queue *queue, const void *item); // false: full or closed
/* Waits for room; false: closed or the time is over (UINT64_MAX: for ever). */
bool queue_push_wait(struct queue *queue, const void *item, uint64_t timeout_ms);
bool queue_pop(struct queue *queue, void *item); // false: empty
bool queue_pop_wait(struct queue *queue, void *item, uint64_t timeout_ms);
void queue_close(struct queue *queue); // wakes everybody
bool queue_closed(const struct queue *queue);

#endif
