/* The head's two links, and the epochs in which both are there.
 *
 * An epoch begins when the head dials rank 1 and is ready when the last stage, to which the HELLO
 * has gone down the whole chain, has dialled the head. The first loss ends it; the next begins
 * after a pause that grows while epochs bring no answer. All functions belong to the head's one
 * thread.
 */
#ifndef CASCADIA_PIPELINE_CHAIN_H
#define CASCADIA_PIPELINE_CHAIN_H

#include "base/err.h"
#include "pipeline/event.h"
#include "pipeline/pipeline.h"

#include <stdbool.h>
#include <stdint.h>

struct chain;

struct chain_parts {
    const struct pipeline_options *options; // borrowed, as all of these
    const struct engine_info *info;         // of stage 0
    struct queue *events;                   // of links; frames of work arrive here too
    struct queue *onward;                   // stage 0's outbox
    struct frame_pool *pool;
};

enum chain_change {
    CHAIN_SAME,
    CHAIN_READY, // all stages are there: chain_epoch, chain_info
    CHAIN_LOST,  // the epoch is over, the reason is in err
    CHAIN_WORK,  // the event is a frame of work of this epoch, and still the caller's
};

/* Listens; nothing is dialled before chain_turn. */
struct chain *chain_open(const struct chain_parts *parts, struct err *err);
void chain_close(struct chain *chain); // says BYE; NULL is fine

uint32_t chain_epoch(const struct chain *chain);                 // now, ready or not
const struct engine_info *chain_info(const struct chain *chain); // smallest of all, once ready
const char *chain_awaits(const struct chain *chain);             // a sentence; "" once ready

/* Takes in an event. What the event holds is the chain's, but for CHAIN_WORK. */
enum chain_change chain_handle(struct chain *chain, struct event *event, struct err *err);
/* Ends the epoch for a reason of the caller's. */
void chain_give_up(struct chain *chain, const struct err *reason);
/* Begins the next epoch when it is time; returns the ms until it will be (UINT64_MAX: not due). */
uint64_t chain_turn(struct chain *chain);

#endif
