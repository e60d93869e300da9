#include "generate/scheduler_fake.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/thread.h"
#include "text/tokenizer_mock.h"

#define FLIGHTS_CAP 8u
#define FAILS_CAP 8u

struct fake_flight {
    uint64_t batch;
    bool failed;
    struct err err;
    uint32_t n_tokens;
    struct sampled_token tokens[FAKE_SEQUENCES_CAP];
    uint32_t rows[FAKE_SEQUENCES_CAP];
    bool has[FAKE_SEQUENCES_CAP]; // rows of these slots
};

struct fake_sequence {
    int32_t ids[FAKE_ROWS_CAP];
    uint32_t n_ids;
    uint32_t n_flights;
    bool sampling, dropped, has_params;
    struct sampling_params params;
};

struct pipeline {
    struct mutex mutex;
    struct condition changed;
    struct engine_info info;
    uint32_t batches_cap;
    enum pipeline_state state;
    uint32_t epoch;
    bool woken;
    uint64_t n_allowed; // answers
    struct fake_flight flights[FLIGHTS_CAP], answered;
    uint32_t n_flights;
    struct fake_sequence sequences[FAKE_SEQUENCES_CAP];
    struct {
        uint64_t batch;
        enum err_code code;
    } fails[FAILS_CAP];
    uint32_t n_fails;
    struct pipeline_result result;
    struct fake_counts counts;
};

int32_t fake_next_token(const int32_t *ids, uint32_t n_ids, uint32_t prompt_rows, uint64_t seed)
{
    if (prompt_rows >= 2 && ids[0] == 'q' && n_ids - prompt_rows == (uint32_t)(ids[1] - '0'))
        return TOKENIZER_MOCK_END;
    const uint64_t parts[2] = { hash_xxh3(ids, n_ids * sizeof(*ids)), seed };
    return 'a' + (int32_t)(hash_xxh3(parts, sizeof(parts)) % 26);
}

struct pipeline *fake_open(const struct engine_info *info, uint32_t batches_cap, bool ready)
{
    struct pipeline *fake = xcalloc(1, sizeof(*fake));
    must(info->max_sequences <= FAKE_SEQUENCES_CAP && info->ctx_size <= FAKE_ROWS_CAP);
    must(batches_cap <= FLIGHTS_CAP);
    mutex_init(&fake->mutex);
    condition_init(&fake->changed);
    fake->info = *info;
    fake->info.vocab_size = TOKENIZER_MOCK_N_TOKENS;
    fake->batches_cap = batches_cap;
    fake->state = ready ? PIPELINE_READY : PIPELINE_CONNECTING;
    fake->epoch = ready;
    fake->n_allowed = UINT64_MAX;
    return fake;
}

void fake_close(struct pipeline *fake)
{
    condition_release(&fake->changed);
    mutex_release(&fake->mutex);
    free(fake);
}

static void unlock_changed(struct pipeline *fake)
{
    condition_broadcast(&fake->changed);
    mutex_unlock(&fake->mutex);
}

void fake_answer(struct pipeline *fake, uint64_t n_batches)
{
    mutex_lock(&fake->mutex);
    fake->n_allowed = n_batches;
    unlock_changed(fake);
}

void fake_fail_batch(struct pipeline *fake, uint64_t batch, enum err_code code)
{
    mutex_lock(&fake->mutex);
    must(fake->n_fails < FAILS_CAP);
    fake->fails[fake->n_fails].batch = batch;
    fake->fails[fake->n_fails++].code = code;
    mutex_unlock(&fake->mutex);
}

void fake_lose(struct pipeline *fake)
{
    mutex_lock(&fake->mutex);
    fake->state = PIPELINE_CONNECTING;
    for (uint32_t i = 0; i < fake->n_flights; i++) {
        fake->flights[i].failed = true;
        err_set(&fake->flights[i].err, ERR_PEER_LOST, "stage 1 was lost");
    }
    for (uint32_t i = 0; i < FAKE_SEQUENCES_CAP; i++)
        fake->sequences[i] = (struct fake_sequence){ 0 };
    fake->n_allowed = UINT64_MAX;
    unlock_changed(fake);
}

void fake_connect(struct pipeline *fake)
{
    mutex_lock(&fake->mutex);
    fake->state = PIPELINE_READY;
    fake->epoch++;
    unlock_changed(fake);
}

void fake_shrink(struct pipeline *fake, uint32_t ctx_size)
{
    mutex_lock(&fake->mutex);
    fake->info.ctx_size = ctx_size;
    mutex_unlock(&fake->mutex);
}

void fake_wait_flights(struct pipeline *fake, uint32_t n_flights)
{
    mutex_lock(&fake->mutex);
    while (fake->n_flights < n_flights)
        condition_wait(&fake->changed, &fake->mutex);
    mutex_unlock(&fake->mutex);
}

struct fake_counts fake_counts(struct pipeline *fake)
{
    mutex_lock(&fake->mutex);
    const struct fake_counts counts = fake->counts;
    mutex_unlock(&fake->mutex);
    return counts;
}

/* ---- what the scheduler calls ---- */

enum pipeline_state pipeline_state(struct pipeline *fake)
{
    mutex_lock(&fake->mutex);
    const enum pipeline_state state = fake->state;
    mutex_unlock(&fake->mutex);
    return state;
}

uint32_t pipeline_epoch(struct pipeline *fake)
{
    mutex_lock(&fake->mutex);
    const uint32_t epoch = fake->epoch;
    mutex_unlock(&fake->mutex);
    return epoch;
}

const struct engine_info *pipeline_info(struct pipeline *fake)
{
    return &fake->info;
}

void pipeline_wake(struct pipeline *fake)
{
    mutex_lock(&fake->mutex);
    fake->woken = true;
    unlock_changed(fake);
}

void pipeline_describe(struct pipeline *fake, struct buf *out)
{
    buf_printf(out, "{\"epoch\":%u}", pipeline_epoch(fake));
}

/* A code for a batch that is to fail, or that does not follow on what its sequences hold. */
static enum err_code fault_of(const struct pipeline *fake, const struct batch *batch)
{
    for (uint32_t i = 0; i < fake->n_fails; i++) {
        if (fake->fails[i].batch == batch->id)
            return fake->fails[i].code;
    }
    uint32_t n_ids[FAKE_SEQUENCES_CAP];
    for (uint32_t i = 0; i < FAKE_SEQUENCES_CAP; i++)
        n_ids[i] = fake->sequences[i].n_ids;
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        const struct row *row = &batch->rows[r];
        if (row->position > n_ids[row->sequence])
            return ERR_BATCH_LOST;
        n_ids[row->sequence] = row->position + 1;
    }
    return ERR_NONE;
}

static void add_row(struct pipeline *fake, const struct row *row, uint32_t index,
                    struct fake_flight *flight)
{
    struct fake_sequence *sequence = &fake->sequences[row->sequence];
    must(row->sequence < fake->info.max_sequences && row->position < fake->info.ctx_size);
    must(sequence->has_params);
    sequence->n_ids = row->position;
    sequence->ids[sequence->n_ids++] = row->token;
    must(((row->flags & ROW_LAST_OF_PROMPT) != 0) ==
         (sequence->n_ids == sequence->params.prompt_rows));
    if ((row->flags & ROW_SAMPLE) == 0)
        return;
    must(!sequence->sampling);
    sequence->sampling = true;
    flight->rows[flight->n_tokens] = index;
    flight->tokens[flight->n_tokens++] = (struct sampled_token){
        .token = fake_next_token(sequence->ids, sequence->n_ids, sequence->params.prompt_rows,
                                 sequence->params.seed),
        .logprob = -(float)sequence->n_ids,
    };
}

static void check_pages(struct pipeline *fake)
{
    uint32_t pages = 0;
    for (uint32_t i = 0; i < FAKE_SEQUENCES_CAP; i++)
        pages += (fake->sequences[i].n_ids + fake->info.page_rows - 1) / fake->info.page_rows;
    must(pages <= fake->info.n_pages);
    if (pages > fake->counts.pages_max)
        fake->counts.pages_max = pages;
}

/* A slot must not have a new occupant while batches of the old one are under way. */
static void check_occupant(struct pipeline *fake, const struct batch *batch,
                           struct fake_flight *flight)
{
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        struct fake_sequence *sequence = &fake->sequences[batch->rows[r].sequence];
        must(!sequence->dropped || sequence->n_flights == 0);
        sequence->dropped = false;
        flight->has[batch->rows[r].sequence] = true;
    }
    uint32_t n_sequences = 0;
    for (uint32_t i = 0; i < FAKE_SEQUENCES_CAP; i++) {
        n_sequences += flight->has[i];
        must(!flight->has[i] || !fake->sequences[i].sampling); // not behind a row that draws
    }
    if (n_sequences > fake->counts.sequences_max)
        fake->counts.sequences_max = n_sequences;
}

static void count_batch(struct pipeline *fake, const struct batch *batch)
{
    fake->counts.n_batches++;
    fake->counts.n_rows += batch->n_rows;
    if (batch->n_rows > fake->counts.rows_max)
        fake->counts.rows_max = batch->n_rows;
    if (fake->n_flights > fake->counts.flights_max)
        fake->counts.flights_max = fake->n_flights;
}

static void take_batch(struct pipeline *fake, const struct batch *batch, const uint32_t *sequences,
                       const struct sampling_params *const *params, uint32_t n_params)
{
    struct fake_flight *flight = &fake->flights[fake->n_flights++];
    *flight = (struct fake_flight){ .batch = batch->id };
    must(batch->n_rows > 0 && batch->n_rows <= fake->info.max_rows);
    check_occupant(fake, batch, flight);
    for (uint32_t i = 0; i < n_params; i++) {
        fake->sequences[sequences[i]].params = *params[i];
        fake->sequences[sequences[i]].has_params = true;
    }
    const enum err_code fault = fault_of(fake, batch);
    if (fault != ERR_NONE) {
        flight->failed = true;
        err_set(&flight->err, fault, "a batch was lost");
    }
    for (uint32_t r = 0; r < batch->n_rows && fault == ERR_NONE; r++)
        add_row(fake, &batch->rows[r], r, flight);
    for (uint32_t i = 0; i < FAKE_SEQUENCES_CAP; i++) {
        if (flight->has[i])
            fake->sequences[i].n_flights++;
        if (flight->has[i] && fault != ERR_NONE)
            fake->sequences[i].n_ids = 0;
    }
    check_pages(fake);
    count_batch(fake, batch);
}

bool pipeline_submit(struct pipeline *fake, const struct batch *batch, const uint32_t *sequences,
                     const struct sampling_params *const *params, uint32_t n_params,
                     struct err *err)
{
    mutex_lock(&fake->mutex);
    const bool taken = fake->state == PIPELINE_READY && fake->n_flights < fake->batches_cap;
    if (taken)
        take_batch(fake, batch, sequences, params, n_params);
    else
        err_set(err, ERR_BUSY, "not now");
    unlock_changed(fake);
    return taken;
}

void pipeline_drop(struct pipeline *fake, uint32_t slot)
{
    mutex_lock(&fake->mutex);
    struct fake_sequence *sequence = &fake->sequences[slot];
    const uint32_t n_flights = sequence->n_flights;
    *sequence = (struct fake_sequence){ .dropped = true, .n_flights = n_flights };
    fake->counts.n_drops++;
    unlock_changed(fake);
}

static void answer_first(struct pipeline *fake)
{
    fake->answered = fake->flights[0];
    fake->n_flights--;
    memmove(fake->flights, fake->flights + 1, fake->n_flights * sizeof(fake->flights[0]));
    if (fake->n_allowed != UINT64_MAX)
        fake->n_allowed--;
    struct fake_flight *flight = &fake->answered;
    for (uint32_t i = 0; i < FAKE_SEQUENCES_CAP; i++) {
        struct fake_sequence *sequence = &fake->sequences[i];
        if (!flight->has[i] || sequence->n_flights == 0)
            continue;
        if (--sequence->n_flights == 0)
            sequence->sampling = false;
    }
    fake->counts.n_answers++;
    fake->result = (struct pipeline_result){ .batch = flight->batch,
                                             .failed = flight->failed,
                                             .err = flight->err,
                                             .n_tokens = flight->failed ? 0 : flight->n_tokens,
                                             .tokens = flight->tokens,
                                             .rows = flight->rows };
}

bool pipeline_poll(struct pipeline *fake, uint64_t timeout_ms,
                   const struct pipeline_result **result)
{
    const uint64_t end_ms = clock_ms() + timeout_ms;
    mutex_lock(&fake->mutex);
    bool found = false;
    for (;;) {
        found = fake->n_flights > 0 && fake->n_allowed > 0;
        const uint64_t now_ms = clock_ms();
        if (found || fake->woken || now_ms >= end_ms)
            break;
        condition_wait_for(&fake->changed, &fake->mutex, end_ms - now_ms);
    }
    if (found) {
        answer_first(fake);
        *result = &fake->result;
    } else {
        fake->woken = false;
    }
    unlock_changed(fake);
    return found;
}
