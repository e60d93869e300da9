/* An engine at work: one thread that takes frames from the stage before, steps, and hands frames
 * on.
 *
 * STEP becomes STEP for the next stage, or RESULT for the head on the last; what fails becomes a
 * FAIL in its place, so that order is kept and the head hears of each batch exactly once. KEEP and
 * DROP are done and passed on. The last stage samples: it keeps the ids and parameters of every
 * sequence. A row whose grammar cannot be obeyed gets no token (PAYLOAD_NO_TOKEN); the others of
 * its batch are not concerned.
 *
 * The thread owns engine and sequences. Inbox and outbox are queues of struct event; links come and
 * go at their other ends. What orders them is the epoch: frames of another than the wanted one are
 * let go, and the first frame of a new one finds all sequences empty. */
#ifndef CASCADIA_PIPELINE_STAGE_H
#define CASCADIA_PIPELINE_STAGE_H

#include "base/err.h"
#include "engine/engine.h"
#include "pipeline/event.h"

#include <stdint.h>

struct stage;
struct tokenizer;

struct stage_options {
    const struct engine_options *engine; // borrowed for the call
    uint32_t rank, total;
    struct queue *outbox;              // outlives the stage
    struct frame_pool *pool;           // outlives the stage
    const struct tokenizer *tokenizer; // of the last stage; outlives it; NULL: no grammars
};

/* Opens the engine and starts the thread. ERR_ARGUMENT also for layers that do not suit the rank.
 */
struct stage *stage_open(const struct stage_options *options, struct err *err);
void stage_close(struct stage *stage); // after the step that runs; NULL is fine

const struct engine_info *stage_info(const struct stage *stage);
struct queue *stage_inbox(struct stage *stage);
/* Any thread. 0: none, everything is let go. */
void stage_set_epoch(struct stage *stage, uint32_t epoch);

/* Rows with ROW_LOGITS that one RESULT can carry besides a token for every row. */
uint32_t stage_logits_rows_cap(const struct engine_info *info);

#endif
