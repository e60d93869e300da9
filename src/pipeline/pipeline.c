/* The head's side of batches: what is in flight, what the last stage knows, what comes back.
 *
 * The head speaks to its own stage 0 in the same frames that travel further: submit writes a STEP
 * without values into the stage's inbox, and with one stage its RESULT comes straight back to this
 * side's queue. There is thus one path for any number of stages.
 *
 * Batches are answered in the order in which they were submitted, since every stage works through
 * its inbox in order and failures keep their batch's place. Anything else is a fault of the chain
 * and ends the epoch.
 *
 * After a failed batch its sequences are dropped on all stages: the stages before the failing one
 * have gone further than those after it. Each sequence counts its lives, so that a batch which
 * fails after its sequence was dropped, and perhaps begun anew, does not drop the new one. */
#include "pipeline/pipeline.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/thread.h"
#include "pipeline/chain.h"
#include "pipeline/payload.h"
#include "pipeline/stage.h"

#define OWED_REPLY_MS 120000 // for one row through one stage; see owed_ms
#define OWED_ROWS 512        // this many rows in one stage double it

/* What the head remembers of a sequence. */
struct head_sequence {
    bool params_sent; // the last stage has `params`
    struct sampling_params params;
    uint32_t life;     // counts drops and keeps: what was before is another sequence
    uint64_t in_batch; // the submission whose list it was last put on
};

/* A batch in flight. */
struct flight {
    uint64_t batch;
    bool is_lost; // its epoch is over; `lost` of the pipeline says why
    uint64_t owed_ms;
    uint32_t n_sequences;
    uint32_t *sequences, *lives; // [max_rows] as they were at submit
    uint32_t n_samples, n_logits;
    uint32_t *samples; // [max_rows] rows with ROW_SAMPLE
};

struct pipeline {
    struct pipeline_options options; // texts are borrowed from `texts`
    char *texts[3];
    struct frame_pool *pool;
    struct queue *events, *onward;
    struct stage *stage;
    struct chain *chain; // NULL with one stage
    bool is_ready;
    uint32_t epoch; // the ready one
    struct engine_info info;
    struct head_sequence *sequences; // [max_sequences of stage 0]
    struct flight *flights;          // ring of batches_cap
    uint32_t first_flight, n_flights;
    uint64_t n_submitted;
    uint64_t owed_since_ms; // since when the oldest flight is the one to be answered
    struct err lost;
    struct buf params; // scratch of submit
    atomic_bool wake_pending;
    /* What the last poll gave out. */
    struct pipeline_result result;
    struct frame *result_frame;
    struct sampled_token *tokens; // [max_rows]
    uint32_t *rows;
    /* What pipeline_describe reads from other threads: copied under the lock at each change. */
    struct mutex describe_mutex;
    bool said_ready;
    uint32_t said_epoch;
    char said_awaits[sizeof(((struct err *)0)->text)];
};

/* --- state -------------------------------------------------------------------------------------
 */

static void note_state(struct pipeline *pipeline)
{
    const char *awaits = pipeline->chain ? chain_awaits(pipeline->chain) : "";
    mutex_lock(&pipeline->describe_mutex);
    pipeline->said_ready = pipeline->is_ready;
    pipeline->said_epoch = pipeline->epoch;
    snprintf(pipeline->said_awaits, sizeof pipeline->said_awaits, "%s", awaits);
    mutex_unlock(&pipeline->describe_mutex);
}

static void begin_epoch(struct pipeline *pipeline, uint32_t epoch, const struct engine_info *info)
{
    pipeline->epoch = epoch;
    pipeline->info = *info;
    if (pipeline->info.max_rows > FRAME_ROWS_CAP)
        pipeline->info.max_rows = FRAME_ROWS_CAP;
    pipeline->is_ready = true;
    stage_set_epoch(pipeline->stage, epoch);
}

/* Every batch in flight has failed, and no stage knows any sequence. */
static void end_epoch(struct pipeline *pipeline, const struct err *reason)
{
    pipeline->is_ready = false;
    stage_set_epoch(pipeline->stage, 0);
    pipeline->lost = *reason;
    pipeline->lost.code = ERR_PEER_LOST;
    for (uint32_t i = 0; i < pipeline->n_flights; i++)
        pipeline->flights[(pipeline->first_flight + i) % pipeline->options.batches_cap].is_lost =
            true;
    for (uint32_t i = 0; i < stage_info(pipeline->stage)->max_sequences; i++) {
        pipeline->sequences[i].params_sent = false;
        pipeline->sequences[i].life++;
    }
}

enum pipeline_state pipeline_state(struct pipeline *pipeline)
{
    return pipeline->is_ready ? PIPELINE_READY : PIPELINE_CONNECTING;
}

uint32_t pipeline_epoch(struct pipeline *pipeline)
{
    return pipeline->epoch;
}

const struct engine_info *pipeline_info(struct pipeline *pipeline)
{
    return &pipeline->info;
}

uint32_t pipeline_logits_rows_cap(struct pipeline *pipeline)
{
    return stage_logits_rows_cap(&pipeline->info);
}

void pipeline_describe(struct pipeline *pipeline, struct buf *out)
{
    mutex_lock(&pipeline->describe_mutex);
    buf_printf(out, "{\"state\":\"%s\",\"epoch\":%u,\"stages\":%u",
               pipeline->said_ready ? "ready" : "connecting", pipeline->said_epoch,
               pipeline->options.total);
    if (pipeline->said_awaits[0]) {
        buf_add_text(out, ",\"awaiting\":");
        json_write_string(out, str_from(pipeline->said_awaits));
    }
    buf_add_char(out, '}');
    mutex_unlock(&pipeline->describe_mutex);
}

/* --- submitting --------------------------------------------------------------------------------
 */

/* Takes the frame; stage 0's inbox is bounded far above what can be in it. */
static void tell_stage(struct pipeline *pipeline, struct frame *frame)
{
    if (!event_push_frame(stage_inbox(pipeline->stage), EVENT_FRAME, 0, frame, UINT64_MAX))
        frame_pool_give(pipeline->pool, frame);
}

static struct frame *new_frame(struct pipeline *pipeline, enum frame_kind kind)
{
    struct frame *frame = frame_pool_take(pipeline->pool);
    frame_start(frame, kind, pipeline->epoch);
    return frame;
}

static bool check_batch(struct pipeline *pipeline, const struct batch *batch, struct err *err)
{
    const struct engine_info *info = &pipeline->info;
    uint32_t n_logits = 0;
    if (batch->n_rows == 0 || batch->n_rows > info->max_rows)
        return err_set(err, ERR_ARGUMENT, "a batch of %u rows; 1 to %u go", batch->n_rows,
                       info->max_rows);
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const struct row *row = &batch->rows[i];
        n_logits += (row->flags & ROW_LOGITS) != 0;
        if (row->sequence >= info->max_sequences || row->position >= info->ctx_size ||
            row->token < 0 || (uint32_t)row->token >= info->vocab_size)
            return err_set(err, ERR_ARGUMENT,
                           "row %u: sequence %u of %u, position %u of %u, token %d of %u", i,
                           row->sequence, info->max_sequences, row->position, info->ctx_size,
                           row->token, info->vocab_size);
    }
    if (n_logits > pipeline_logits_rows_cap(pipeline))
        return err_set(err, ERR_ARGUMENT, "%u rows of logits; %u go in a batch", n_logits,
                       pipeline_logits_rows_cap(pipeline));
    return true;
}

/* Unequal may mean equal (padding); the parameters then travel once more. A grammar is the same
 * where its text lies at the same place, for while parameters count as sent the text stays. */
static bool same_params(const struct sampling_params *a, const struct sampling_params *b)
{
    return memcmp(a, b, offsetof(struct sampling_params, bias)) == 0 &&
           memcmp(a->bias, b->bias, a->n_bias * sizeof a->bias[0]) == 0;
}

/* Encodes those that the last stage does not have, after note_flight; returns how many. */
static uint32_t encode_params(struct pipeline *pipeline, const uint32_t *sequences,
                              const struct sampling_params *const *params, uint32_t n_params)
{
    uint32_t n_sent = 0;
    buf_clear(&pipeline->params);
    for (uint32_t i = 0; i < n_params; i++) {
        struct head_sequence *sequence = &pipeline->sequences[sequences[i]];
        if (sequence->in_batch != pipeline->n_submitted)
            continue; // no row of it: if the batch failed, nobody would know what it took along
        if (sequence->params_sent && same_params(&sequence->params, params[i]))
            continue;
        sequence->params = *params[i];
        sequence->params_sent = true;
        payload_add_params(&pipeline->params, sequences[i], params[i]);
        n_sent++;
    }
    must(buf_ok(&pipeline->params));
    return n_sent;
}

/* The bound for a batch's answer once it is its turn: prefill takes longer than decode. */
static uint64_t owed_ms(const struct pipeline *pipeline, uint32_t n_rows)
{
    uint64_t one =
        pipeline->options.owed_reply_ms ? pipeline->options.owed_reply_ms : OWED_REPLY_MS;
    return one + one * n_rows * pipeline->options.total / OWED_ROWS;
}

static void note_flight(struct pipeline *pipeline, const struct batch *batch)
{
    uint32_t index = (pipeline->first_flight + pipeline->n_flights) % pipeline->options.batches_cap;
    struct flight *flight = &pipeline->flights[index];
    flight->batch = batch->id;
    flight->is_lost = false;
    flight->owed_ms = owed_ms(pipeline, batch->n_rows);
    flight->n_sequences = flight->n_samples = flight->n_logits = 0;
    pipeline->n_submitted++;
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const struct row *row = &batch->rows[i];
        struct head_sequence *sequence = &pipeline->sequences[row->sequence];
        if (row->flags & ROW_SAMPLE)
            flight->samples[flight->n_samples++] = i;
        flight->n_logits += (row->flags & ROW_LOGITS) != 0;
        if (sequence->in_batch == pipeline->n_submitted)
            continue;
        sequence->in_batch = pipeline->n_submitted;
        flight->lives[flight->n_sequences] = sequence->life;
        flight->sequences[flight->n_sequences++] = row->sequence;
    }
    if (pipeline->n_flights++ == 0)
        pipeline->owed_since_ms = clock_ms();
}

bool pipeline_submit(struct pipeline *pipeline, const struct batch *batch,
                     const uint32_t *sequences, const struct sampling_params *const *params,
                     uint32_t n_params, struct err *err)
{
    if (!pipeline->is_ready)
        return err_set(err, ERR_BUSY, "the stages are not all there");
    if (pipeline->n_flights == pipeline->options.batches_cap)
        return err_set(err, ERR_BUSY, "%u batches are in flight", pipeline->n_flights);
    if (!check_batch(pipeline, batch, err))
        return false;
    for (uint32_t i = 0; i < n_params; i++) {
        if (sequences[i] >= pipeline->info.max_sequences)
            return err_set(err, ERR_ARGUMENT, "parameters of sequence %u of %u", sequences[i],
                           pipeline->info.max_sequences);
    }
    struct frame *frame = new_frame(pipeline, FRAME_STEP);
    note_flight(pipeline, batch);
    uint32_t n_sent = encode_params(pipeline, sequences, params, n_params);
    payload_write_step(frame, batch, n_sent, buf_view(&pipeline->params), NULL, 0);
    tell_stage(pipeline, frame);
    return true;
}

void pipeline_keep(struct pipeline *pipeline, uint32_t from, uint32_t to, uint32_t rows)
{
    const struct payload_keep keep = { from, to, rows };
    must(from < pipeline->info.max_sequences && to < pipeline->info.max_sequences);
    if (!pipeline->is_ready)
        return;
    if (from != to) {
        pipeline->sequences[to].params_sent = false;
        pipeline->sequences[to].life++;
    }
    struct frame *frame = new_frame(pipeline, FRAME_KEEP);
    payload_write_keep(frame, &keep);
    tell_stage(pipeline, frame);
}

void pipeline_drop(struct pipeline *pipeline, uint32_t sequence)
{
    must(sequence < stage_info(pipeline->stage)->max_sequences);
    if (!pipeline->is_ready)
        return; // all sequences are gone already
    pipeline->sequences[sequence].params_sent = false;
    pipeline->sequences[sequence].life++;
    struct frame *frame = new_frame(pipeline, FRAME_DROP);
    payload_write_drop(frame, sequence);
    tell_stage(pipeline, frame);
}

/* --- results -----------------------------------------------------------------------------------
 */

static struct flight *oldest(struct pipeline *pipeline)
{
    return pipeline->n_flights ? &pipeline->flights[pipeline->first_flight] : NULL;
}

static void land(struct pipeline *pipeline)
{
    pipeline->first_flight = (pipeline->first_flight + 1) % pipeline->options.batches_cap;
    pipeline->n_flights--;
    pipeline->owed_since_ms = clock_ms();
}

/* The oldest batch has failed. */
static void give_failure(struct pipeline *pipeline, const struct err *reason)
{
    const struct flight *flight = oldest(pipeline);
    for (uint32_t i = 0; i < flight->n_sequences && !flight->is_lost; i++) {
        if (pipeline->sequences[flight->sequences[i]].life == flight->lives[i])
            pipeline_drop(pipeline, flight->sequences[i]);
    }
    pipeline->result =
        (struct pipeline_result){ .batch = flight->batch, .failed = true, .err = *reason };
    land(pipeline);
}

static bool read_tokens(struct pipeline *pipeline, const struct flight *flight,
                        struct payload_result *payload, struct err *err)
{
    for (uint32_t i = 0; i < payload->n_tokens; i++) {
        struct sampled_token *token = &pipeline->tokens[i];
        uint32_t row;
        if (!payload_next_token(&payload->tokens, &row, token, err))
            return false;
        if (row != flight->samples[i] || token->token < PAYLOAD_NO_TOKEN ||
            (token->token >= 0 && (uint32_t)token->token >= pipeline->info.vocab_size))
            return err_set(err, ERR_FORMAT, "the answer to batch %llu has token %d for row %u",
                           (unsigned long long)flight->batch, token->token, row);
        pipeline->rows[i] = row;
    }
    if (payload->tokens.size)
        return err_set(err, ERR_FORMAT, "bytes behind a RESULT's tokens");
    return true;
}

/* A RESULT for the oldest batch. */
static bool read_result(struct pipeline *pipeline, const struct frame *frame, struct err *err)
{
    const struct flight *flight = oldest(pipeline);
    struct payload_result payload;
    if (!payload_read_result(frame, &payload, err))
        return false;
    if (payload.n_tokens != flight->n_samples || payload.n_logits != flight->n_logits)
        return err_set(err, ERR_FORMAT,
                       "the answer to batch %llu has %u tokens and %u rows of logits, not %u and "
                       "%u",
                       (unsigned long long)flight->batch, payload.n_tokens, payload.n_logits,
                       flight->n_samples, flight->n_logits);
    if (!read_tokens(pipeline, flight, &payload, err))
        return false;
    pipeline->result = (struct pipeline_result){ .batch = flight->batch,
                                                 .n_tokens = payload.n_tokens,
                                                 .tokens = pipeline->tokens,
                                                 .rows = pipeline->rows,
                                                 .n_logits = payload.n_logits,
                                                 .logits = payload.logits };
    return true;
}

/* A fault of the chain itself. */
static void give_up(struct pipeline *pipeline, const struct err *reason)
{
    end_epoch(pipeline, reason);
    if (pipeline->chain)
        chain_give_up(pipeline->chain, reason);
    else
        begin_epoch(pipeline, pipeline->epoch + 1, stage_info(pipeline->stage));
    note_state(pipeline);
}

/* A frame of work; takes it. True when there is a result to give out. */
static bool take_work(struct pipeline *pipeline, struct frame *frame)
{
    const struct flight *flight = oldest(pipeline);
    struct err err;
    bool good = false;
    if (!pipeline->is_ready || frame->header.epoch != pipeline->epoch) {
        frame_pool_give(pipeline->pool, frame);
        return false;
    }
    if (!flight || frame->header.batch != flight->batch) {
        err_set(&err, ERR_FORMAT, "an answer to batch %llu came out of turn",
                (unsigned long long)frame->header.batch);
    } else if (frame->header.kind == FRAME_FAIL) {
        payload_read_fail(frame, &err);
        give_failure(pipeline, &err);
        frame_pool_give(pipeline->pool, frame);
        return true;
    } else {
        good = read_result(pipeline, frame, &err);
    }
    if (!good) {
        frame_pool_give(pipeline->pool, frame);
        give_up(pipeline, &err);
        return false;
    }
    pipeline->result_frame = frame; // its logits are given out
    land(pipeline);
    return true;
}

/* --- polling -----------------------------------------------------------------------------------
 */

enum turn { TURN_ON, TURN_RESULT, TURN_RETURN };

static enum turn handle_event(struct pipeline *pipeline, struct event *event)
{
    struct err err;
    if (event->kind == EVENT_WAKE) {
        atomic_store(&pipeline->wake_pending, false);
        return TURN_RETURN;
    }
    enum chain_change change = CHAIN_WORK;
    if (pipeline->chain)
        change = chain_handle(pipeline->chain, event, &err);
    switch (change) {
    case CHAIN_WORK:
        return take_work(pipeline, event->frame) ? TURN_RESULT : TURN_ON;
    case CHAIN_READY:
        begin_epoch(pipeline, chain_epoch(pipeline->chain), chain_info(pipeline->chain));
        note_state(pipeline);
        return TURN_RETURN;
    case CHAIN_LOST:
        end_epoch(pipeline, &err);
        note_state(pipeline);
        return TURN_RETURN;
    case CHAIN_SAME:
        note_state(pipeline);
        break;
    }
    return TURN_ON;
}

/* Only batches that left this process are owed: what stage 0 computes it answers. */
static uint64_t owed_left_ms(struct pipeline *pipeline)
{
    const struct flight *flight = oldest(pipeline);
    if (!flight || flight->is_lost || !pipeline->chain)
        return UINT64_MAX;
    uint64_t passed = clock_ms() - pipeline->owed_since_ms;
    return passed < flight->owed_ms ? flight->owed_ms - passed : 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Timers: the next epoch, and the answer that is owed. Returns how long the next may be away. */
static uint64_t run_timers(struct pipeline *pipeline)
{
    struct err err;
    if (!pipeline->chain)
        return UINT64_MAX;
    uint64_t owed = owed_left_ms(pipeline);
    if (owed == 0) {
        err_set(&err, ERR_TIMEOUT, "batch %llu was not answered within %llu ms",
                (unsigned long long)oldest(pipeline)->batch,
                (unsigned long long)oldest(pipeline)->owed_ms);
        give_up(pipeline, &err);
        owed = UINT64_MAX;
    }
    return least(owed, chain_turn(pipeline->chain));
}

bool pipeline_poll(struct pipeline *pipeline, uint64_t timeout_ms,
                   const struct pipeline_result **result)
{
    uint64_t started = clock_ms();
    enum turn turn = TURN_ON;
    frame_pool_give(pipeline->pool, pipeline->result_frame);
    pipeline->result_frame = NULL;
    for (;;) {
        struct event event;
        uint64_t timer = run_timers(pipeline), passed = clock_ms() - started;
        if (oldest(pipeline) && oldest(pipeline)->is_lost) {
            give_failure(pipeline, &pipeline->lost);
            turn = TURN_RESULT;
            break;
        }
        uint64_t left = timeout_ms == UINT64_MAX ? UINT64_MAX
                        : passed < timeout_ms    ? timeout_ms - passed
                                                 : 0;
        if (queue_pop_wait(pipeline->events, &event, least(left, timer)))
            turn = handle_event(pipeline, &event);
        else if (left == 0)
            turn = TURN_RETURN;
        if (turn == TURN_RESULT)
            break;
        if (turn == TURN_RETURN && !(oldest(pipeline) && oldest(pipeline)->is_lost))
            return false;
    }
    *result = &pipeline->result;
    return true;
}

void pipeline_wake(struct pipeline *pipeline)
{
    if (!atomic_exchange(&pipeline->wake_pending, true))
        event_wake(pipeline->events);
}

/* --- life --------------------------------------------------------------------------------------
 */

static const char *keep_text(struct pipeline *pipeline, int index, const char *text)
{
    pipeline->texts[index] = text ? xstrdup(text) : NULL;
    return pipeline->texts[index];
}

static void copy_options(struct pipeline *pipeline, const struct pipeline_options *options)
{
    pipeline->options = *options;
    pipeline->options.listen = keep_text(pipeline, 0, options->listen);
    pipeline->options.next = keep_text(pipeline, 1, options->next);
    pipeline->options.head = keep_text(pipeline, 2, options->head);
    if (pipeline->options.batches_cap == 0)
        pipeline->options.batches_cap = options->total + 1;
}

static void make_tables(struct pipeline *pipeline)
{
    const struct engine_info *info = stage_info(pipeline->stage);
    const uint32_t max_rows = info->max_rows;
    pipeline->sequences = xcalloc(info->max_sequences, sizeof *pipeline->sequences);
    pipeline->flights = xcalloc(pipeline->options.batches_cap, sizeof *pipeline->flights);
    for (uint32_t i = 0; i < pipeline->options.batches_cap; i++) {
        struct flight *flight = &pipeline->flights[i];
        flight->sequences = xcalloc(max_rows, sizeof(uint32_t));
        flight->lives = xcalloc(max_rows, sizeof(uint32_t));
        flight->samples = xcalloc(max_rows, sizeof(uint32_t));
    }
    pipeline->tokens = xcalloc(max_rows, sizeof *pipeline->tokens);
    pipeline->rows = xcalloc(max_rows, sizeof *pipeline->rows);
    buf_init(&pipeline->params, (size_t)max_rows * PAYLOAD_PARAMS_CAP);
}

/* Stage 0 and, with more than one stage, the links. */
static bool open_parts(struct pipeline *pipeline, const struct pipeline_options *options,
                       struct err *err)
{
    const bool alone = options->total == 1;
    const struct stage_options stage = { .engine = &options->engine,
                                         .rank = 0,
                                         .total = options->total,
                                         .outbox = alone ? pipeline->events : pipeline->onward,
                                         .pool = pipeline->pool,
                                         .tokenizer = options->tokenizer };
    if (options->rank != 0 || options->total == 0)
        return err_set(err, ERR_ARGUMENT, "the head is rank 0 of 1 or more, not %u of %u",
                       options->rank, options->total);
    pipeline->stage = stage_open(&stage, err);
    if (!pipeline->stage)
        return false;
    make_tables(pipeline);
    if (alone) {
        begin_epoch(pipeline, 1, stage_info(pipeline->stage));
        return true;
    }
    pipeline->info = *stage_info(pipeline->stage);
    const struct chain_parts parts = { .options = &pipeline->options,
                                       .info = stage_info(pipeline->stage),
                                       .events = pipeline->events,
                                       .onward = pipeline->onward,
                                       .pool = pipeline->pool };
    pipeline->chain = chain_open(&parts, err);
    return pipeline->chain != NULL;
}

struct pipeline *pipeline_open(const struct pipeline_options *options, struct err *err)
{
    struct pipeline *pipeline = xcalloc(1, sizeof *pipeline);
    mutex_init(&pipeline->describe_mutex);
    copy_options(pipeline, options);
    pipeline->pool = frame_pool_new();
    pipeline->events = queue_new(sizeof(struct event), EVENTS_CAP);
    pipeline->onward = queue_new(sizeof(struct event), EVENTS_CAP);
    if (!open_parts(pipeline, options, err)) {
        pipeline_close(pipeline);
        return NULL;
    }
    note_state(pipeline);
    return pipeline;
}

static void free_tables(struct pipeline *pipeline)
{
    for (uint32_t i = 0; pipeline->flights && i < pipeline->options.batches_cap; i++) {
        free(pipeline->flights[i].sequences);
        free(pipeline->flights[i].lives);
        free(pipeline->flights[i].samples);
    }
    free(pipeline->flights);
    free(pipeline->sequences);
    free(pipeline->tokens);
    free(pipeline->rows);
    buf_release(&pipeline->params);
}

void pipeline_close(struct pipeline *pipeline)
{
    if (!pipeline)
        return;
    queue_close(pipeline->events); // lets threads go that wait to push
    chain_close(pipeline->chain);
    stage_close(pipeline->stage);
    frame_pool_give(pipeline->pool, pipeline->result_frame);
    event_drain(pipeline->events, pipeline->pool);
    event_drain(pipeline->onward, pipeline->pool);
    queue_free(pipeline->events);
    queue_free(pipeline->onward);
    free_tables(pipeline);
    frame_pool_free(pipeline->pool);
    for (size_t i = 0; i < sizeof pipeline->texts / sizeof pipeline->texts[0]; i++)
        free(pipeline->texts[i]);
    mutex_release(&pipeline->describe_mutex);
    free(pipeline);
}
