/* A link at work: one thread that reads it, one that writes it, and the timers of its life.
 *
 * Frames of work that arrive go to `inbox`, words about the chain (AWAIT, FAIL of the epoch, the
 * loss of the link) to `events`. What is pushed to `outbox` is sent, in order; frames of another
 * epoch are let go instead, so an outbox may outlive the channels that empty it one after another.
 *
 * PING goes out every ping_ms; three without any frame in return, a frame that
 * stops half-way, a wrong epoch, or any error of the link: the channel is lost, says so once
 * (EVENT_LOST with a FAIL that has the reason) and cuts the link. One owner opens and closes. */
#ifndef CASCADIA_PIPELINE_CHANNEL_H
#define CASCADIA_PIPELINE_CHANNEL_H

#include "base/err.h"
#include "pipeline/event.h"
#include "pipeline/link.h"

#include <stdbool.h>
#include <stdint.h>

#define CHANNEL_PING_MS 10000 // what ping_ms 0 means
#define CHANNEL_PINGS_MISSED 3

struct channel;

struct channel_options {
    struct link *link;          // the channel's from now on, also on failure
    struct frame_limits limits; // of what may arrive
    uint32_t epoch;
    uint32_t tag;                          // of its events; not 0
    const char *who;                       // "rank 2": for sentences; copied
    struct queue *inbox, *outbox, *events; // struct event; they outlive the channel
    struct frame_pool *pool;
    uint64_t ping_ms; // 0: CHANNEL_PING_MS
};

struct channel *channel_open(const struct channel_options *options, struct err *err);
/* With `farewell` the AWAIT and FAIL frames in the outbox and a BYE are sent first. NULL is fine.
 */
void channel_close(struct channel *channel, bool farewell);

uint32_t channel_tag(const struct channel *channel); // 0 for NULL
const char *channel_peer(const struct channel *channel);

#endif
