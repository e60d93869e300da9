/* Epoch numbers are milliseconds of the clock, so that a head that is started again at once does
 * not use a number of its predecessor, whose frames may still lie in a stage's queue; within a head
 * they rise by themselves whatever the clock does. */
#include "pipeline/chain.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "pipeline/acceptor.h"
#include "pipeline/channel.h"
#include "pipeline/dialler.h"
#include "pipeline/payload.h"

#define PAUSE_MS_LOW 25
#define PAUSE_MS_HIGH 2000 // after epochs in which nothing was answered, one after the other

struct chain {
    struct chain_parts parts;
    struct acceptor *acceptor;
    uint32_t epoch, next_tag;
    struct engine_info info;
    struct dialler *dialler;
    uint32_t dialler_tag;
    struct channel *first, *last; // to rank 1, from the last stage
    struct queue *to_last;        // outbox of the latter, for its timers only
    bool is_over;                 // between two epochs
    bool has_answered;            // a batch, in this epoch
    uint64_t begin_at_ms, pause_ms;
    char awaits[sizeof(((struct err *)0)->text)];
};

static struct link_options link_options_of(const struct pipeline_options *options)
{
    return (struct link_options){ .frame_ms = options->frame_ms, .spin_us = options->spin_us };
}

static bool is_ready(const struct chain *chain)
{
    return chain->first && chain->last;
}

/* --- epochs ------------------------------------------------------------------------------------
 */

static void close_links(struct chain *chain, bool farewell)
{
    dialler_stop(chain->dialler);
    channel_close(chain->first, farewell);
    channel_close(chain->last, farewell);
    chain->dialler = NULL;
    chain->dialler_tag = 0;
    chain->first = chain->last = NULL;
}

void chain_give_up(struct chain *chain, const struct err *reason)
{
    close_links(chain, false);
    event_drain(chain->parts.onward, chain->parts.pool);
    chain->pause_ms = chain->has_answered ? PAUSE_MS_LOW : chain->pause_ms * 2;
    if (chain->pause_ms > PAUSE_MS_HIGH)
        chain->pause_ms = PAUSE_MS_HIGH;
    chain->is_over = true;
    chain->begin_at_ms = clock_ms() + chain->pause_ms;
    snprintf(chain->awaits, sizeof chain->awaits, "%s", reason->text);
    log_warn("epoch %u is over: %s", chain->epoch, reason->text);
}

static bool dial_first(struct chain *chain, struct err *err)
{
    const struct pipeline_options *options = chain->parts.options;
    struct dialler_options dial = { .address = options->next,
                                    .who = "rank 1",
                                    .link = link_options_of(options),
                                    .epoch = chain->epoch,
                                    .tag = chain->next_tag++,
                                    .events = chain->parts.events,
                                    .pool = chain->parts.pool };
    handshake_init(&dial.hello, HANDSHAKE_NEIGHBOUR, 0, options->total, chain->parts.info);
    snprintf(dial.hello.head, sizeof dial.hello.head, "%s",
             options->head ? options->head : acceptor_address(chain->acceptor));
    dial.hello.head_is_definite = options->head != NULL;
    chain->dialler_tag = dial.tag;
    chain->dialler = dialler_start(&dial, err);
    return chain->dialler != NULL;
}

/* Never 0, which means none. Wraps after 49 days; two heads a wrap apart do not meet. */
static uint32_t next_epoch(uint32_t last)
{
    uint32_t now = (uint32_t)((uint64_t)clock_unix_seconds() * 1000 + clock_ms() % 1000);
    uint32_t next = now > last ? now : last + 1;
    return next ? next : 1;
}

uint64_t chain_turn(struct chain *chain)
{
    uint64_t now = clock_ms();
    struct err err;
    if (!chain->is_over)
        return UINT64_MAX;
    if (now < chain->begin_at_ms)
        return chain->begin_at_ms - now;
    chain->is_over = chain->has_answered = false;
    chain->epoch = next_epoch(chain->epoch);
    chain->info = *chain->parts.info;
    if (!dial_first(chain, &err))
        chain_give_up(chain, &err);
    return 0;
}

/* --- links -------------------------------------------------------------------------------------
 */

/* Takes the link. */
static struct channel *open_channel(struct chain *chain, struct link *link,
                                    const struct frame_limits *limits, const char *who,
                                    struct queue *outbox, struct err *err)
{
    const struct channel_options options = { .link = link,
                                             .limits = *limits,
                                             .epoch = chain->epoch,
                                             .tag = chain->next_tag++,
                                             .who = who,
                                             .inbox = chain->parts.events,
                                             .outbox = outbox,
                                             .events = chain->parts.events,
                                             .pool = chain->parts.pool,
                                             .ping_ms = chain->parts.options->ping_ms };
    return channel_open(&options, err);
}

static enum chain_change after_join(struct chain *chain)
{
    if (!is_ready(chain)) {
        snprintf(chain->awaits, sizeof chain->awaits, "%s",
                 chain->first ? "the stages behind rank 1" : "rank 1's answer");
        return CHAIN_SAME;
    }
    chain->awaits[0] = '\0';
    log_info("all %u stages are there, epoch %u", chain->parts.options->total, chain->epoch);
    return CHAIN_READY;
}

/* Takes the greeting. */
static enum chain_change join_first(struct chain *chain, struct greeting *greeting, struct err *err)
{
    const struct frame_limits limits = { .kinds = FRAME_BACKWARD };
    dialler_stop(chain->dialler);
    chain->dialler = NULL;
    chain->dialler_tag = 0;
    chain->first =
        open_channel(chain, greeting_take(greeting), &limits, "rank 1", chain->parts.onward, err);
    if (chain->first)
        return after_join(chain);
    chain_give_up(chain, err);
    return CHAIN_LOST;
}

/* What is wrong with a caller that is not the last stage of this epoch. */
static bool check_caller(const struct chain *chain, const struct greeting *greeting,
                         struct err *err)
{
    if (greeting->theirs.role != HANDSHAKE_LAST_TO_HEAD)
        return err_set(err, ERR_ARGUMENT, "rank %u dialled the head; only the last rank does",
                       greeting->theirs.rank);
    if (greeting->epoch != chain->epoch || chain->is_over)
        return err_set(err, ERR_ARGUMENT, "epoch %u is over", greeting->epoch);
    if (chain->last)
        return err_set(err, ERR_ARGUMENT, "the last stage of epoch %u is there already",
                       greeting->epoch);
    return true;
}

/* Takes the greeting. */
static enum chain_change join_last(struct chain *chain, struct greeting *greeting, struct err *err)
{
    const struct pipeline_options *options = chain->parts.options;
    struct handshake mine;
    char who[32];
    handshake_init(&mine, HANDSHAKE_LAST_TO_HEAD, 0, options->total, chain->parts.info);
    if (!check_caller(chain, greeting, err)) {
        log_warn("refused %s: %s", link_peer(greeting->link), err->text);
        greeting_refuse(greeting, err);
        return CHAIN_SAME;
    }
    if (!greeting_welcome(greeting, &mine, err)) {
        log_warn("refused %s: %s", link_peer(greeting->link), err->text);
        greeting_free(greeting);
        return CHAIN_SAME;
    }
    handshake_narrow(&chain->info, &greeting->theirs.info);
    chain->info.step_read_ns = greeting->theirs.info.step_read_ns; // sums that began here
    chain->info.position_read_ps = greeting->theirs.info.position_read_ps;
    const struct frame_limits limits = { .kinds = FRAME_TO_HEAD,
                                         .rows_cap = chain->info.max_rows,
                                         .vocab_size = chain->info.vocab_size };
    snprintf(who, sizeof who, "rank %u", greeting->theirs.rank);
    chain->last = open_channel(chain, greeting_take(greeting), &limits, who, chain->to_last, err);
    if (chain->last)
        return after_join(chain);
    chain_give_up(chain, err);
    return CHAIN_LOST;
}

/* --- events ------------------------------------------------------------------------------------
 */

/* Frames of the links that are there now. */
static enum chain_change handle_frame(struct chain *chain, const struct event *event,
                                      struct err *err)
{
    const struct frame_header *header = &event->frame->header;
    char sentence[sizeof chain->awaits];
    if (header->flags & FRAME_FLAG_EPOCH) {
        payload_read_fail(event->frame, err);
        err->code = ERR_PEER_LOST;
        chain_give_up(chain, err);
        return CHAIN_LOST;
    }
    if (header->kind == FRAME_AWAIT && !is_ready(chain)) {
        payload_read_await(event->frame, sentence, sizeof sentence);
        memcpy(chain->awaits, sentence, sizeof sentence);
    }
    bool is_answer = event->tag == channel_tag(chain->last) && is_ready(chain);
    chain->has_answered |= is_answer;
    return is_answer ? CHAIN_WORK : CHAIN_SAME;
}

enum chain_change chain_handle(struct chain *chain, struct event *event, struct err *err)
{
    struct greeting *greeting = event->greeting;
    enum chain_change change = CHAIN_SAME;
    bool is_ours =
        event->tag && (event->tag == channel_tag(chain->first) ||
                       event->tag == channel_tag(chain->last) || event->tag == chain->dialler_tag);
    event->greeting = NULL;
    if (event->kind == EVENT_CALLED)
        return join_last(chain, greeting, err);
    if (event->kind == EVENT_JOINED && is_ours)
        return join_first(chain, greeting, err);
    greeting_free(greeting);
    if (event->frame && is_ours)
        change = handle_frame(chain, event, err);
    if (change != CHAIN_WORK)
        event_drop(event, chain->parts.pool);
    return change;
}

/* --- life --------------------------------------------------------------------------------------
 */

static bool check_options(const struct pipeline_options *options, struct err *err)
{
    if (options->total > HANDSHAKE_RANKS_CAP)
        return err_set(err, ERR_ARGUMENT, "%u stages; at most %u", options->total,
                       HANDSHAKE_RANKS_CAP);
    if (!options->next)
        return err_set(err, ERR_ARGUMENT,
                       "the head of %u stages needs the address of rank 1 (--next)",
                       options->total);
    if (!options->listen)
        return err_set(
            err, ERR_ARGUMENT,
            "the head of %u stages needs an address to listen at for the last one (--listen)",
            options->total);
    return true;
}

struct chain *chain_open(const struct chain_parts *parts, struct err *err)
{
    if (!check_options(parts->options, err))
        return NULL;
    const struct acceptor_options acceptor = { .listen = parts->options->listen,
                                               .insecure = parts->options->insecure,
                                               .link = link_options_of(parts->options),
                                               .events = parts->events };
    struct chain *chain = xcalloc(1, sizeof *chain);
    chain->parts = *parts;
    chain->next_tag = 1;
    chain->is_over = true;
    chain->pause_ms = PAUSE_MS_LOW;
    chain->info = *parts->info;
    chain->to_last = queue_new(sizeof(struct event), EVENTS_CAP);
    snprintf(chain->awaits, sizeof chain->awaits, "rank 1 at %s", parts->options->next);
    chain->acceptor = acceptor_start(&acceptor, err);
    if (chain->acceptor)
        return chain;
    chain_close(chain);
    return NULL;
}

void chain_close(struct chain *chain)
{
    if (!chain)
        return;
    acceptor_stop(chain->acceptor);
    close_links(chain, true);
    event_drain(chain->to_last, chain->parts.pool);
    queue_free(chain->to_last);
    free(chain);
}

uint32_t chain_epoch(const struct chain *chain)
{
    return chain->epoch;
}

const struct engine_info *chain_info(const struct chain *chain)
{
    return &chain->info;
}

const char *chain_awaits(const struct chain *chain)
{
    return chain->awaits;
}
