/* The life of a stage that is not the head, as one loop over events.
 *
 * A session begins with a neighbour's HELLO, which brings the epoch, and ends with the first loss
 * among its links; then everything of it is closed and the worker waits for the next HELLO. There
 * is no repair within a session: any doubt ends the epoch on the whole chain, and only the head
 * begins another. So each worker needs to know two things only: who is before it and who is after
 * it.
 *
 * When the way onward breaks, the reason goes back towards the head as a FAIL before the link to
 * the stage before is closed; when the way back breaks, closing the link onward is message enough.
 */
#include "pipeline/worker.h"

#include <stdio.h>

#include "base/log.h"
#include "base/memory.h"
#include "pipeline/acceptor.h"
#include "pipeline/channel.h"
#include "pipeline/dialler.h"
#include "pipeline/payload.h"
#include "pipeline/stage.h"

#define LOOK_MS 100 // how often the stop flag is looked at

struct worker {
    const struct pipeline_options *options;
    struct frame_pool *pool;
    struct queue *events; // of acceptor, dialler and channels
    struct queue *back;   // frames for the stage before
    struct queue *onward; // the stage's outbox: frames for the stage after, or the head
    struct stage *stage;
    struct acceptor *acceptor;
    uint32_t next_tag;
    /* The session; epoch 0: none. */
    uint32_t epoch;
    struct channel *before, *after;
    struct dialler *dialler;
    uint32_t dialler_tag;
    struct engine_info chain; // capacities of all stages up to this one
    char head[ADDRESS_TEXT_CAP];
    struct err refused; // why the last neighbour that did not fit was sent away
};

static bool is_last(const struct worker *worker)
{
    return worker->options->rank + 1 == worker->options->total;
}

static struct link_options link_options_of(const struct pipeline_options *options)
{
    return (struct link_options){ .frame_ms = options->frame_ms, .spin_us = options->spin_us };
}

/* "rank 2", or "the head" after the last. */
static void name_after(const struct worker *worker, char out[32])
{
    if (is_last(worker))
        snprintf(out, 32, "the head");
    else
        snprintf(out, 32, "rank %u", worker->options->rank + 1);
}

/* --- sessions ----------------------------------------------------------------------------------
 */

static void end_session(struct worker *worker, bool tell_before, bool tell_after)
{
    stage_set_epoch(worker->stage, 0);
    dialler_stop(worker->dialler);
    channel_close(worker->before, tell_before);
    channel_close(worker->after, tell_after);
    event_drain(stage_inbox(worker->stage), worker->pool);
    event_drain(worker->back, worker->pool);
    event_drain(worker->onward, worker->pool);
    worker->dialler = NULL;
    worker->before = worker->after = NULL;
    worker->dialler_tag = 0;
    worker->epoch = 0;
}

static bool dial_after(struct worker *worker, struct err *err)
{
    const struct pipeline_options *options = worker->options;
    char who[32];
    name_after(worker, who);
    struct dialler_options dial = { .address = is_last(worker) ? worker->head : options->next,
                                    .who = who,
                                    .link = link_options_of(options),
                                    .epoch = worker->epoch,
                                    .tag = worker->next_tag++,
                                    .events = worker->events,
                                    .pool = worker->pool };
    handshake_init(&dial.hello, is_last(worker) ? HANDSHAKE_LAST_TO_HEAD : HANDSHAKE_NEIGHBOUR,
                   options->rank, options->total, &worker->chain);
    if (!is_last(worker)) {
        snprintf(dial.hello.head, sizeof dial.hello.head, "%s", worker->head);
        dial.hello.head_is_definite = 1;
    }
    worker->dialler_tag = dial.tag;
    worker->dialler = dialler_start(&dial, err);
    return worker->dialler != NULL;
}

static struct channel *open_before(struct worker *worker, struct link *link, uint32_t rank,
                                   struct err *err)
{
    char who[32];
    snprintf(who, sizeof who, "rank %u", rank);
    const struct channel_options options = {
        .link = link,
        .limits = { .kinds = FRAME_FORWARD,
                    .rows_cap = worker->chain.max_rows,
                    .carry = worker->chain.carry },
        .epoch = worker->epoch,
        .tag = worker->next_tag++,
        .who = who,
        .inbox = stage_inbox(worker->stage),
        .outbox = worker->back,
        .events = worker->events,
        .pool = worker->pool,
        .ping_ms = worker->options->ping_ms,
    };
    return channel_open(&options, err);
}

static void find_head(struct worker *worker, const struct greeting *greeting)
{
    const struct handshake *theirs = &greeting->theirs;
    if (worker->options->head)
        snprintf(worker->head, sizeof worker->head, "%s", worker->options->head);
    else if (!theirs->head_is_definite)
        handshake_find_head(theirs->head, link_peer(greeting->link), worker->head);
    else
        snprintf(worker->head, sizeof worker->head, "%s", theirs->head);
}

/* A neighbour that does not fit dials again every second: the reason is said when it is another. */
static void say_refused(struct worker *worker, const char *peer, const struct err *err)
{
    if (strcmp(worker->refused.text, err->text) != 0)
        log_warn("refused %s: %s", peer, err->text);
    worker->refused = *err;
}

/* A neighbour dialled in: its session replaces the one there is, if it is to be believed. Takes the
 * greeting. */
static void begin_session(struct worker *worker, struct greeting *greeting)
{
    const struct pipeline_options *options = worker->options;
    const struct handshake *theirs = &greeting->theirs;
    struct engine_info chain = *stage_info(worker->stage);
    struct handshake mine;
    struct err err = { 0 };
    handshake_narrow(&chain, &theirs->info);
    handshake_add_reads(&chain, &theirs->info);
    handshake_init(&mine, HANDSHAKE_NEIGHBOUR, options->rank, options->total, &chain);
    if (!greeting_welcome(greeting, &mine, &err)) {
        say_refused(worker, link_peer(greeting->link), &err);
        greeting_free(greeting);
        return;
    }
    end_session(worker, false, false);
    worker->refused = (struct err){ 0 };
    worker->epoch = greeting->epoch;
    worker->chain = mine.info;
    find_head(worker, greeting);
    log_info("rank %u at %s dialled in, epoch %u", theirs->rank, link_peer(greeting->link),
             greeting->epoch);
    stage_set_epoch(worker->stage, worker->epoch);
    uint32_t rank = theirs->rank;
    worker->before = open_before(worker, greeting_take(greeting), rank, &err);
    if (worker->before && dial_after(worker, &err))
        return;
    log_error("%s", err.text);
    end_session(worker, false, false);
}

/* The dialler was welcomed. Takes the greeting. */
static void join_after(struct worker *worker, struct greeting *greeting)
{
    struct err err = { 0 };
    char who[32];
    name_after(worker, who);
    dialler_stop(worker->dialler);
    worker->dialler = NULL;
    worker->dialler_tag = 0;
    const struct channel_options options = {
        .link = greeting_take(greeting),
        .limits = { .kinds = FRAME_BACKWARD },
        .epoch = worker->epoch,
        .tag = worker->next_tag++,
        .who = who,
        .inbox = worker->events,
        .outbox = worker->onward,
        .events = worker->events,
        .pool = worker->pool,
        .ping_ms = worker->options->ping_ms,
    };
    worker->after = channel_open(&options, &err);
    if (worker->after)
        log_info("joined %s at %s, epoch %u", who, channel_peer(worker->after), worker->epoch);
    else
        log_error("%s", err.text);
    if (!worker->after)
        end_session(worker, true, false);
}

/* --- events ------------------------------------------------------------------------------------
 */

/* Passes the event's frame on towards the head. */
static void pass_back(struct worker *worker, struct event *event)
{
    if (event_push_frame(worker->back, EVENT_FRAME, 0, event->frame, 0))
        event->frame = NULL;
}

/* A loss, or the news of one further on. */
static void handle_loss(struct worker *worker, struct event *event, bool is_before)
{
    struct err reason;
    payload_read_fail(event->frame, &reason);
    log_warn("epoch %u is over: %s", worker->epoch, reason.text);
    if (is_before) {
        end_session(worker, false, true);
    } else {
        pass_back(worker, event);
        end_session(worker, true, false);
    }
}

static void handle_event(struct worker *worker, struct event *event)
{
    bool is_before = event->tag && event->tag == channel_tag(worker->before);
    bool is_after = event->tag &&
                    (event->tag == channel_tag(worker->after) || event->tag == worker->dialler_tag);
    struct greeting *greeting = event->greeting;
    if (event->kind == EVENT_CALLED) {
        event->greeting = NULL;
        begin_session(worker, greeting);
    } else if (event->kind == EVENT_JOINED && is_after) {
        event->greeting = NULL;
        join_after(worker, greeting);
    } else if (event->frame && (is_before || is_after)) {
        if (event->frame->header.kind == FRAME_AWAIT)
            pass_back(worker, event);
        else if (event->frame->header.flags & FRAME_FLAG_EPOCH)
            handle_loss(worker, event, is_before);
    }
    event_drop(event, worker->pool); // what nobody took: words of what is closed already
}

/* --- life --------------------------------------------------------------------------------------
 */

static bool check_options(const struct pipeline_options *options, struct err *err)
{
    if (options->total < 2 || options->total > HANDSHAKE_RANKS_CAP || options->rank == 0 ||
        options->rank >= options->total)
        return err_set(err, ERR_ARGUMENT,
                       "a worker has rank 1 to %u of 2 to %u stages, not %u "
                       "of %u",
                       HANDSHAKE_RANKS_CAP - 1, HANDSHAKE_RANKS_CAP, options->rank, options->total);
    if (!options->listen)
        return err_set(err, ERR_ARGUMENT,
                       "rank %u needs an address to listen at for rank %u (--listen)",
                       options->rank, options->rank - 1);
    if ((options->rank + 1 < options->total) != (options->next != NULL))
        return err_set(err, ERR_ARGUMENT,
                       options->next ? "rank %u is the last and has no next stage"
                                     : "rank %u needs the address of the next stage (--next)",
                       options->rank);
    return true;
}

static bool open_all(struct worker *worker, struct err *err)
{
    const struct pipeline_options *options = worker->options;
    const struct stage_options stage = { .engine = &options->engine,
                                         .rank = options->rank,
                                         .total = options->total,
                                         .outbox = worker->onward,
                                         .pool = worker->pool,
                                         .tokenizer = options->tokenizer };
    const struct acceptor_options acceptor = { .listen = options->listen,
                                               .insecure = options->insecure,
                                               .link = link_options_of(options),
                                               .events = worker->events };
    worker->stage = stage_open(&stage, err);
    if (!worker->stage)
        return false;
    worker->acceptor = acceptor_start(&acceptor, err);
    return worker->acceptor != NULL;
}

static void close_all(struct worker *worker)
{
    queue_close(worker->events); // lets a greeter go that waits to push
    acceptor_stop(worker->acceptor);
    if (worker->stage)
        end_session(worker, true, true);
    stage_close(worker->stage);
    event_drain(worker->events, worker->pool);
    event_drain(worker->back, worker->pool);
    event_drain(worker->onward, worker->pool);
    queue_free(worker->events);
    queue_free(worker->back);
    queue_free(worker->onward);
    frame_pool_free(worker->pool);
}

static void serve(struct worker *worker, const atomic_int *stop)
{
    struct event event;
    log_info("rank %u of %u: layers %u to %u, listening for rank %u at %s", worker->options->rank,
             worker->options->total, stage_info(worker->stage)->layer_first,
             stage_info(worker->stage)->layer_end, worker->options->rank - 1,
             acceptor_address(worker->acceptor));
    while (!atomic_load(stop)) {
        if (queue_pop_wait(worker->events, &event, LOOK_MS))
            handle_event(worker, &event);
    }
}

bool worker_run(const struct pipeline_options *options, const atomic_int *stop, struct err *err)
{
    struct worker worker = { .options = options, .next_tag = 1 };
    if (!check_options(options, err))
        return false;
    worker.pool = frame_pool_new();
    worker.events = queue_new(sizeof(struct event), EVENTS_CAP);
    worker.back = queue_new(sizeof(struct event), EVENTS_CAP);
    worker.onward = queue_new(sizeof(struct event), EVENTS_CAP);
    bool opened = open_all(&worker, err);
    if (opened)
        serve(&worker, stop);
    close_all(&worker);
    return opened;
}
