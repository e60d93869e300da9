/* Reader and writer share nothing but the link (which allows one of each), a few atomic flags and
 * the queues. Nobody waits for the other: the reader answers a PING by setting a flag and waking
 * the writer, since what it may not do is write.
 *
 * Liveness is counted in unanswered PINGs: any frame that arrives sets the count back, so a busy
 * link needs no PONG in time. A PING is only sent by a writer that is not writing; a writer that is
 * stuck is ended by the link's own limit for a frame's progress. */
#include "pipeline/channel.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "pipeline/payload.h"

#define PUSH_SLICE_MS 100 // how often a reader before a full inbox looks whether it is to end

struct channel {
    struct channel_options options;
    char *who;
    struct thread reader, writer;
    atomic_bool closing, farewell; // set by the owner
    atomic_bool lost;              // whoever sets it first says why
    atomic_bool pong_due;          // set by the reader
    atomic_uint unanswered;        // PINGs since the last frame that arrived
    uint64_t next_ping_ms;         // the writer's
};

static void lose(struct channel *channel, const struct err *reason)
{
    const struct channel_options *options = &channel->options;
    if (atomic_exchange(&channel->lost, true))
        return;
    struct frame *frame = frame_pool_take(options->pool);
    struct err why = *reason;
    why.code = ERR_PEER_LOST;
    err_wrap(&why, "lost %s", channel->who);
    frame_start(frame, FRAME_FAIL, options->epoch);
    frame->header.flags = FRAME_FLAG_EPOCH;
    payload_write_fail(frame, &why);
    link_cut(options->link);
    while (!event_push_frame(options->events, EVENT_LOST, options->tag, frame, PUSH_SLICE_MS)) {
        if (!atomic_load(&channel->closing) && !queue_closed(options->events))
            continue;
        frame_pool_give(options->pool, frame);
        break;
    }
    event_wake(options->outbox);
}

/* --- reading -----------------------------------------------------------------------------------
 */

/* Takes the frame. */
static void deliver(struct channel *channel, struct frame *frame)
{
    const struct channel_options *options = &channel->options;
    bool of_chain = frame->header.kind == FRAME_AWAIT || frame->header.flags & FRAME_FLAG_EPOCH;
    struct queue *to = of_chain ? options->events : options->inbox;
    while (!event_push_frame(to, EVENT_FRAME, options->tag, frame, PUSH_SLICE_MS)) {
        if (!atomic_load(&channel->closing) && !queue_closed(to))
            continue;
        frame_pool_give(options->pool, frame);
        return;
    }
}

/* Takes the frame. False: the link is over. */
static bool handle(struct channel *channel, struct frame *frame, struct err *err)
{
    const struct channel_options *options = &channel->options;
    bool good = false;
    atomic_store(&channel->unanswered, 0);
    if (frame->header.epoch != options->epoch)
        err_set(err, ERR_FORMAT, "a frame of epoch %u came in epoch %u", frame->header.epoch,
                options->epoch);
    else if (frame->header.kind == FRAME_BYE)
        err_set(err, ERR_PEER_LOST, "it said goodbye");
    else
        good = true;
    bool for_us = frame->header.kind == FRAME_PING || frame->header.kind == FRAME_PONG;
    if (good && frame->header.kind == FRAME_PING) {
        atomic_store(&channel->pong_due, true);
        event_wake(options->outbox);
    }
    if (good && !for_us)
        deliver(channel, frame);
    else
        frame_pool_give(options->pool, frame);
    return good;
}

static void read_frames(void *context)
{
    struct channel *channel = context;
    const struct channel_options *options = &channel->options;
    struct err err = { 0 };
    for (;;) {
        struct frame *frame = frame_pool_take(options->pool);
        if (!link_receive(options->link, frame, UINT64_MAX, &err)) {
            frame_pool_give(options->pool, frame);
            break;
        }
        if (!handle(channel, frame, &err))
            break;
    }
    if (!atomic_load(&channel->closing))
        lose(channel, &err);
}

/* --- writing -----------------------------------------------------------------------------------
 */

static bool send_empty(struct channel *channel, enum frame_kind kind, struct err *err)
{
    struct frame frame;
    frame_init(&frame);
    frame_start(&frame, kind, channel->options.epoch);
    return link_send(channel->options.link, &frame, err);
}

/* Takes what the event holds; frames of another epoch are let go. */
static bool send_event(struct channel *channel, struct event *event, struct err *err)
{
    bool sent = true;
    if (event->frame && event->frame->header.epoch == channel->options.epoch)
        sent = link_send(channel->options.link, event->frame, err);
    event_drop(event, channel->options.pool);
    return sent;
}

/* What is due besides the outbox. */
static bool send_due(struct channel *channel, struct err *err)
{
    uint64_t now = clock_ms();
    if (atomic_exchange(&channel->pong_due, false) && !send_empty(channel, FRAME_PONG, err))
        return false;
    if (now < channel->next_ping_ms)
        return true;
    if (atomic_load(&channel->unanswered) >= CHANNEL_PINGS_MISSED)
        return err_set(err, ERR_TIMEOUT, "no answer to %d pings", CHANNEL_PINGS_MISSED);
    atomic_fetch_add(&channel->unanswered, 1);
    channel->next_ping_ms = now + channel->options.ping_ms;
    return send_empty(channel, FRAME_PING, err);
}

/* Frames that explain why this side closes, and the closing itself. */
static void send_farewell(struct channel *channel)
{
    struct event event;
    struct err err;
    bool good = true;
    while (good && queue_pop(channel->options.outbox, &event)) {
        bool explains = event.frame && (event.frame->header.kind == FRAME_FAIL ||
                                        event.frame->header.kind == FRAME_AWAIT);
        if (explains)
            good = send_event(channel, &event, &err);
        else
            event_drop(&event, channel->options.pool);
    }
    if (good)
        send_empty(channel, FRAME_BYE, &err);
}

static uint64_t ms_until(uint64_t then)
{
    uint64_t now = clock_ms();
    return then > now ? then - now : 0;
}

static void write_frames(void *context)
{
    struct channel *channel = context;
    struct event event;
    struct err err = { 0 };
    bool good = true;
    while (good && !atomic_load(&channel->closing) && !atomic_load(&channel->lost)) {
        if (queue_pop_wait(channel->options.outbox, &event, ms_until(channel->next_ping_ms)))
            good = send_event(channel, &event, &err);
        good = good && send_due(channel, &err);
    }
    if (!good)
        lose(channel, &err);
    else if (atomic_load(&channel->farewell) && !atomic_load(&channel->lost))
        send_farewell(channel);
}

/* --- life --------------------------------------------------------------------------------------
 */

struct channel *channel_open(const struct channel_options *options, struct err *err)
{
    struct channel *channel = xcalloc(1, sizeof *channel);
    channel->options = *options;
    channel->who = xstrdup(options->who);
    if (channel->options.ping_ms == 0)
        channel->options.ping_ms = CHANNEL_PING_MS;
    channel->next_ping_ms = clock_ms() + channel->options.ping_ms;
    link_limit(options->link, &options->limits);
    if (thread_start(&channel->reader, "link read", read_frames, channel, err) &&
        thread_start(&channel->writer, "link write", write_frames, channel, err))
        return channel;
    channel_close(channel, false);
    return NULL;
}

void channel_close(struct channel *channel, bool farewell)
{
    if (!channel)
        return;
    atomic_store(&channel->farewell, farewell);
    atomic_store(&channel->closing, true);
    if (farewell) { // the writer ends by itself, within the time that a frame may take
        event_wake(channel->options.outbox);
        thread_join(&channel->writer);
    }
    link_cut(channel->options.link);
    event_wake(channel->options.outbox);
    thread_join(&channel->writer);
    thread_join(&channel->reader);
    link_close(channel->options.link);
    free(channel->who);
    free(channel);
}

uint32_t channel_tag(const struct channel *channel)
{
    return channel ? channel->options.tag : 0;
}

const char *channel_peer(const struct channel *channel)
{
    return link_peer(channel->options.link);
}
