/* The stage's loop and the last stage's sampling.
 *
 * Ids are written to a sequence's record only after the engine took their rows: a failed step
 * leaves the engine at the old length, and the record with it. Positions are the only length there
 * is: what the engine accepts at position p, the record has p ids before.
 *
 * Where an answer is in its grammar follows from the same record; the place is kept only so that
 * not every token reads all ids again, and is let go when an id before it is written. */
#include "pipeline/stage.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "pipeline/handshake.h"
#include "pipeline/payload.h"
#include "sample/grammar_cache.h"
#include "sample/sampler.h"

#define PUSH_SLICE_MS 50 // how often a stage before a full outbox looks whether the epoch is over
#define LOG_EVERY_MS 1000

/* What the last stage knows of a sequence. */
struct sequence {
    bool has_params;
    struct sampling_params params; // without the grammar's text
    struct grammar *grammar;       // taken from the cache; NULL: none
    struct err refused;            // why there is none although one was asked for; ERR_NONE
    struct grammar_place place;    // of the answer in the grammar
    int32_t *ids;                  // [ctx_size]
};

struct stage {
    uint32_t rank;
    bool is_first, is_last;
    struct engine engine;
    struct engine_info info;
    struct frame_pool *pool;
    struct queue *inbox, *outbox;
    atomic_uint wanted_epoch;
    struct thread thread;
    /* The thread's. */
    uint32_t epoch; // of what the sequences hold
    struct batch in, out;
    struct log_limit limit;
    /* The last stage's. */
    struct sampler *sampler;
    struct grammar_cache *grammars;
    struct sequence *sequences; // [max_sequences]
    int32_t *ids;               // [max_sequences][ctx_size]
};

/* --- handing on --------------------------------------------------------------------------------
 */

/* Takes the frame. While the outbox is full the stage waits, unless the epoch ends meanwhile. */
static void hand_on(struct stage *stage, struct frame *frame)
{
    while (!event_push_frame(stage->outbox, EVENT_FRAME, 0, frame, PUSH_SLICE_MS)) {
        if (frame->header.epoch == atomic_load(&stage->wanted_epoch) &&
            !queue_closed(stage->outbox) && !queue_closed(stage->inbox))
            continue;
        frame_pool_give(stage->pool, frame);
        return;
    }
}

static void hand_on_failure(struct stage *stage, uint64_t batch, struct err *reason)
{
    struct frame *frame = frame_pool_take(stage->pool);
    err_wrap(reason, "rank %u", stage->rank);
    frame_start(frame, FRAME_FAIL, stage->epoch);
    frame->header.batch = batch;
    payload_write_fail(frame, reason);
    hand_on(stage, frame);
}

/* --- sampling ----------------------------------------------------------------------------------
 */

static void give_grammar(struct stage *stage, struct sequence *sequence)
{
    grammar_cache_give(stage->grammars, sequence->grammar);
    sequence->grammar = NULL;
    sequence->refused.code = ERR_NONE;
    sequence->place.generation = 0;
}

/* The head has compiled the same text: what fails here is for want of a tokenizer. */
static void take_grammar(struct stage *stage, struct sequence *sequence)
{
    struct sampling_grammar *source = &sequence->params.grammar;
    if (source->language == SAMPLING_GRAMMAR_NONE)
        return;
    sequence->grammar = grammar_cache_take(stage->grammars, source, &sequence->refused);
    source->text = STR_NONE; // it lies in the frame
}

static bool take_params(struct stage *stage, struct payload_step *step, struct err *err)
{
    for (uint32_t i = 0; i < step->n_params; i++) {
        struct sampling_params params;
        uint32_t sequence;
        if (!payload_next_params(&step->params, &sequence, &params, err) ||
            !sampling_params_check(&params, stage->info.vocab_size, err))
            return false;
        if (sequence >= stage->info.max_sequences)
            return err_set(err, ERR_FORMAT, "parameters of sequence %u; there are %u", sequence,
                           stage->info.max_sequences);
        give_grammar(stage, &stage->sequences[sequence]);
        stage->sequences[sequence].params = params;
        stage->sequences[sequence].has_params = true;
        take_grammar(stage, &stage->sequences[sequence]);
    }
    if (step->params.size)
        return err_set(err, ERR_FORMAT, "%zu bytes behind a STEP's parameters", step->params.size);
    return true;
}

/* The tokens that the sequence's grammar allows behind its n_ids ids. */
static bool find_allowed(struct sequence *sequence, uint32_t n_ids, const uint64_t **out,
                         struct err *err)
{
    const uint32_t first =
        sequence->params.prompt_rows < n_ids ? sequence->params.prompt_rows : n_ids;
    if (sequence->refused.code != ERR_NONE) {
        *err = sequence->refused;
        return false;
    }
    if (!grammar_follow(sequence->grammar, &sequence->place, sequence->ids + first, n_ids - first,
                        err))
        return false;
    *out = grammar_mask(sequence->grammar, &sequence->place, err);
    return *out != NULL;
}

static bool sample_row(struct stage *stage, const struct row *row, const float *logits,
                       struct sampled_token *out, struct err *err)
{
    struct sequence *sequence = &stage->sequences[row->sequence];
    if (!sequence->has_params)
        return err_set(err, ERR_BATCH_LOST, "no parameters of sequence %u came", row->sequence);
    struct sampler_row what = { .logits = logits,
                                .params = &sequence->params,
                                .ids = sequence->ids,
                                .n_ids = row->position + 1 };
    if (sequence->params.grammar.language != SAMPLING_GRAMMAR_NONE &&
        !find_allowed(sequence, what.n_ids, &what.allowed, err)) {
        if (log_limit_pass(&stage->limit, LOG_EVERY_MS))
            log_warn("sequence %u: its grammar: %s", row->sequence, err->text);
        *out = (struct sampled_token){ .token = PAYLOAD_NO_TOKEN };
        return true;
    }
    if (!sampler_draw(stage->sampler, &what, out, err))
        return err_wrap(err, "sequence %u", row->sequence);
    return true;
}

static uint32_t count_rows(const struct batch *batch, uint32_t flag)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->n_rows; i++)
        n += (batch->rows[i].flags & flag) != 0;
    return n;
}

/* Fills `frame` with a RESULT of the logits in stage->out: tokens first, then whole rows. */
static bool make_result(struct stage *stage, struct frame *frame, struct err *err)
{
    const struct batch *in = &stage->in;
    const float *logits = stage->out.values;
    const uint32_t vocab_size = stage->info.vocab_size;
    payload_start_result(frame, in->id, count_rows(in, ROW_SAMPLE));
    for (uint32_t i = 0; i < in->n_rows; i++) {
        struct sampled_token token;
        if (in->rows[i].flags & ROW_SAMPLE) {
            if (!sample_row(stage, &in->rows[i], logits, &token, err))
                return false;
            payload_add_token(frame, i, &token);
        }
        if (in->rows[i].flags & (ROW_SAMPLE | ROW_LOGITS))
            logits += vocab_size;
    }
    logits = stage->out.values;
    for (uint32_t i = 0; i < in->n_rows; i++) {
        if (in->rows[i].flags & ROW_LOGITS)
            payload_add_logits(frame, logits, vocab_size);
        if (in->rows[i].flags & (ROW_SAMPLE | ROW_LOGITS))
            logits += vocab_size;
    }
    return true;
}

static void record_ids(struct stage *stage)
{
    for (uint32_t i = 0; i < stage->in.n_rows; i++) {
        const struct row *row = &stage->in.rows[i];
        struct sequence *sequence = &stage->sequences[row->sequence];
        sequence->ids[row->position] = row->token;
        if (row->position < (uint64_t)sequence->params.prompt_rows + sequence->place.n_ids)
            sequence->place.generation = 0;
    }
}

/* --- steps -------------------------------------------------------------------------------------
 */

/* What an engine may rely on; a frame from outside cannot be trusted to keep to it. */
static bool check_rows(const struct stage *stage, struct err *err)
{
    const struct engine_info *info = &stage->info;
    const struct batch *in = &stage->in;
    for (uint32_t i = 0; i < in->n_rows; i++) {
        const struct row *row = &in->rows[i];
        if (row->sequence >= info->max_sequences || row->position >= info->ctx_size ||
            row->token < 0 || (uint32_t)row->token >= info->vocab_size)
            return err_set(err, ERR_BATCH_LOST,
                           "row %u (sequence %u, position %u, token %d) is beyond the limits", i,
                           row->sequence, row->position, row->token);
    }
    if (stage->is_last && count_rows(in, ROW_LOGITS) > stage_logits_rows_cap(info))
        return err_set(err, ERR_BATCH_LOST, "more rows of logits than one frame carries");
    return true;
}

static bool run_step(struct stage *stage, const struct frame *frame, struct payload_step *step,
                     struct err *err)
{
    if (frame->header.rows > stage->in.rows_cap)
        return err_set(err, ERR_BATCH_LOST, "a batch of %u rows; at most %u", frame->header.rows,
                       stage->in.rows_cap);
    if (!payload_read_step(frame, &stage->in, step, err) || !check_rows(stage, err))
        return false;
    if (!stage->is_first)
        memcpy(stage->in.values, step->values.data, step->values.size);
    if (stage->is_last && !take_params(stage, step, err))
        return false;
    return stage->engine.ops->step(&stage->engine, &stage->in, &stage->out, err);
}

/* Borrows the frame. */
static void do_step(struct stage *stage, const struct frame *frame)
{
    struct payload_step step;
    struct err err = { 0 };
    if (!run_step(stage, frame, &step, &err)) {
        hand_on_failure(stage, frame->header.batch, &err);
        return;
    }
    struct frame *next = frame_pool_take(stage->pool);
    if (!stage->is_last) {
        frame_start(next, FRAME_STEP, stage->epoch);
        payload_write_step(next, &stage->in, step.n_params, step.params, stage->out.values,
                           stage->info.carry);
        hand_on(stage, next);
        return;
    }
    record_ids(stage);
    frame_start(next, FRAME_RESULT, stage->epoch);
    if (make_result(stage, next, &err)) {
        hand_on(stage, next);
    } else {
        frame_pool_give(stage->pool, next);
        hand_on_failure(stage, frame->header.batch, &err);
    }
}

static void do_keep(struct stage *stage, const struct frame *frame)
{
    struct payload_keep keep;
    const struct engine_info *info = &stage->info;
    payload_read_keep(frame, &keep);
    if (keep.from >= info->max_sequences || keep.to >= info->max_sequences ||
        keep.rows > info->ctx_size) {
        if (log_limit_pass(&stage->limit, LOG_EVERY_MS))
            log_warn("a KEEP of %u rows from sequence %u for %u is beyond the limits", keep.rows,
                     keep.from, keep.to);
        return;
    }
    stage->engine.ops->keep(&stage->engine, keep.from, keep.to, keep.rows);
    if (!stage->is_last || keep.from == keep.to)
        return;
    memcpy(stage->sequences[keep.to].ids, stage->sequences[keep.from].ids,
           keep.rows * sizeof(int32_t));
    stage->sequences[keep.to].has_params = false;
    give_grammar(stage, &stage->sequences[keep.to]);
}

static void drop_sequence(struct stage *stage, uint32_t sequence)
{
    stage->engine.ops->drop(&stage->engine, sequence);
    if (!stage->is_last)
        return;
    stage->sequences[sequence].has_params = false;
    give_grammar(stage, &stage->sequences[sequence]);
}

static void do_drop(struct stage *stage, const struct frame *frame)
{
    uint32_t sequence = payload_read_drop(frame);
    if (sequence < stage->info.max_sequences)
        drop_sequence(stage, sequence);
    else if (log_limit_pass(&stage->limit, LOG_EVERY_MS))
        log_warn("a DROP of sequence %u; there are %u", sequence, stage->info.max_sequences);
}

static void begin_epoch(struct stage *stage, uint32_t epoch)
{
    for (uint32_t i = 0; i < stage->info.max_sequences; i++)
        drop_sequence(stage, i);
    stage->epoch = epoch;
}

/* Takes the frame. */
static void handle(struct stage *stage, struct frame *frame)
{
    bool passes_on = true;
    if (frame->header.epoch != atomic_load(&stage->wanted_epoch)) {
        frame_pool_give(stage->pool, frame);
        return;
    }
    if (frame->header.epoch != stage->epoch)
        begin_epoch(stage, frame->header.epoch);
    switch (frame->header.kind) {
    case FRAME_STEP:
        do_step(stage, frame);
        passes_on = false;
        break;
    case FRAME_KEEP:
        do_keep(stage, frame);
        passes_on = !stage->is_last;
        break;
    case FRAME_DROP:
        do_drop(stage, frame);
        passes_on = !stage->is_last;
        break;
    default: // FAIL: in its batch's place, on to the head
        break;
    }
    if (passes_on)
        hand_on(stage, frame);
    else
        frame_pool_give(stage->pool, frame);
}

static void run(void *context)
{
    struct stage *stage = context;
    struct event event;
    while (queue_pop_wait(stage->inbox, &event, UINT64_MAX)) {
        if (queue_closed(stage->inbox))
            event_drop(&event, stage->pool);
        else if (event.frame)
            handle(stage, event.frame);
    }
}

/* --- life --------------------------------------------------------------------------------------
 */

static bool check_place(const struct stage_options *options, const struct engine_info *info,
                        struct err *err)
{
    const bool first = options->rank == 0, last = options->rank + 1 == options->total;
    if (engine_is_first(info) == first && engine_is_last(info) == last)
        return handshake_check_info(info, err);
    return err_set(err, ERR_ARGUMENT, "rank %u of %u cannot run layers %u to %u of %u: %s",
                   options->rank, options->total, info->layer_first, info->layer_end,
                   info->n_layers,
                   first  ? last ? "one stage runs them all" : "rank 0 has the first, not the last"
                   : last ? "the last rank has the last, not the first"
                          : "ranks between have neither end");
}

static bool make_sequences(struct stage *stage, const struct tokenizer *tokenizer, struct err *err)
{
    const uint32_t n = stage->info.max_sequences, ctx_size = stage->info.ctx_size;
    stage->sampler = sampler_new(stage->info.vocab_size, err);
    if (!stage->sampler)
        return false;
    stage->grammars = grammar_cache_new(tokenizer, stage->info.vocab_size);
    stage->ids = memory_pages((size_t)n * ctx_size * sizeof(int32_t), err);
    if (!stage->ids)
        return false;
    stage->sequences = xcalloc(n, sizeof *stage->sequences);
    for (uint32_t i = 0; i < n; i++)
        stage->sequences[i].ids = stage->ids + (size_t)i * ctx_size;
    return true;
}

static bool make_batches(struct stage *stage, struct err *err)
{
    const struct engine_info *info = &stage->info;
    const size_t carry = (size_t)info->max_rows * info->carry;
    const size_t out = stage->is_last ? (size_t)info->max_rows * info->vocab_size : carry;
    return batch_init(&stage->in, info->max_rows, stage->is_first ? 0 : carry, err) &&
           batch_init(&stage->out, info->max_rows, out, err);
}

struct stage *stage_open(const struct stage_options *options, struct err *err)
{
    struct stage *stage = xcalloc(1, sizeof *stage);
    stage->rank = options->rank;
    stage->pool = options->pool;
    stage->outbox = options->outbox;
    stage->inbox = queue_new(sizeof(struct event), EVENTS_CAP);
    if (!engine_open(&stage->engine, options->engine, &stage->info, err) ||
        !check_place(options, &stage->info, err))
        goto fail;
    stage->is_first = engine_is_first(&stage->info);
    stage->is_last = engine_is_last(&stage->info);
    if (!make_batches(stage, err) ||
        (stage->is_last && !make_sequences(stage, options->tokenizer, err)) ||
        !thread_start(&stage->thread, "stage", run, stage, err))
        goto fail;
    return stage;
fail:
    stage_close(stage);
    return NULL;
}

void stage_close(struct stage *stage)
{
    if (!stage)
        return;
    queue_close(stage->inbox);
    thread_join(&stage->thread);
    event_drain(stage->inbox, stage->pool);
    queue_free(stage->inbox);
    engine_close(&stage->engine);
    batch_release(&stage->in);
    batch_release(&stage->out);
    sampler_free(stage->sampler);
    grammar_cache_free(stage->grammars);
    memory_pages_free(stage->ids,
                      (size_t)stage->info.max_sequences * stage->info.ctx_size * sizeof(int32_t));
    free(stage->sequences);
    free(stage);
}

const struct engine_info *stage_info(const struct stage *stage)
{
    return &stage->info;
}

struct queue *stage_inbox(struct stage *stage)
{
    return stage->inbox;
}

void stage_set_epoch(struct stage *stage, uint32_t epoch)
{
    atomic_store(&stage->wanted_epoch, epoch);
}

uint32_t stage_logits_rows_cap(const struct engine_info *info)
{
    const uint64_t row = (uint64_t)info->vocab_size * sizeof(float);
    const uint64_t tokens = (uint64_t)FRAME_ROWS_CAP * PAYLOAD_TOKEN_CAP + sizeof(uint32_t);
    const uint64_t rows = (FRAME_PAYLOAD_CAP - tokens) / row;
    return rows < info->max_rows ? (uint32_t)rows : info->max_rows;
}
