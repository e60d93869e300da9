/* The scheduler's thread: a loop of short steps, each of which looks at all there is of one kind.
 *
 *   take what was submitted -> notice cancellations, deadlines, the state of the chain -> admit ->
 *   hand on batches until none is wanted -> tell clients -> wait for an answer -> take the answers
 *
 * It waits in pipeline_poll alone, which submit, cancel, drain and free interrupt. Between waits it
 * does nothing that can block: events go into the requests' own mailboxes.
 *
 * Every request ends in exactly one place, end_request, whatever the cause; a running one leaves
 * its slot first (leave), which drops its rows on every stage behind the batches that are under
 * way.
 *
 * A chain that is lost fails what runs and keeps what waits, for a bounded time. Whatever the chain
 * is rebuilt of, nothing is admitted before a probe of one row has come back through all of it. */

#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "generate/request_internal.h"
#include "generate/scheduler_internal.h"
#include "text/tokenizer.h"

#define MIXED_ROWS 128u // near the rate of larger batches, at a fraction of the pause
#define TICK_MS 100u    // longest wait: the chain may change without an answer
#define PROBE_RETRY_MS 1000u
#define METER_NS 2000000000u // shortest interval of a rate
#define RATE_LOG_INTERVAL_MS 10000u
#define RATE_LOG_SECONDS 1.0 // shorter work is not worth a line

/* ---- the waiting list ---- */

static void waiting_push_back(struct waiting_list *list, struct request *request)
{
    request->next = NULL;
    if (list->last != NULL)
        list->last->next = request;
    else
        list->first = request;
    list->last = request;
}

static void waiting_push_front(struct waiting_list *list, struct request *request)
{
    request->next = list->first;
    list->first = request;
    if (list->last == NULL)
        list->last = request;
}

static struct request *waiting_pop(struct waiting_list *list)
{
    struct request *request = list->first;
    list->first = request->next;
    if (list->first == NULL)
        list->last = NULL;
    request->next = NULL;
    return request;
}

/* ---- ends ---- */

static void end_request(struct scheduler *scheduler, struct request *request,
                        enum request_event_kind kind, enum request_finish finish,
                        const struct err *err)
{
    if (request->admitted_ns == 0)
        atomic_fetch_sub(&scheduler->n_waiting, 1);
    if (kind == REQUEST_DONE)
        atomic_fetch_add(&scheduler->stats.done, 1);
    else if (kind == REQUEST_CANCELLED)
        atomic_fetch_add(&scheduler->stats.cancelled, 1);
    else
        atomic_fetch_add(&scheduler->stats.failed, 1);
    if (err != NULL)
        log_debug("request %llu failed: %s", (unsigned long long)request->id, err->text);
    scheduler->news = true;
    request_end(request, kind, finish, err);
}

static void fail_request(struct scheduler *scheduler, struct request *request,
                         const struct err *err)
{
    end_request(scheduler, request, REQUEST_FAILED, REQUEST_FINISH_STOP, err);
}

static void cancel_request(struct scheduler *scheduler, struct request *request)
{
    end_request(scheduler, request, REQUEST_CANCELLED, REQUEST_FINISH_STOP, NULL);
}

/* Takes a running request out of its slot; the stages forget its rows. */
static struct request *leave(struct scheduler *scheduler, uint32_t slot)
{
    struct request *request = scheduler->table.sequences[slot].request;
    sequence_table_leave(&scheduler->table, slot);
    if (scheduler->chain_up)
        pipeline_drop(scheduler->pipeline, slot);
    return request;
}

/* Back to the front of the queue: its ids will be fed again, its text goes on where it is. */
static void preempt(struct scheduler *scheduler, uint32_t slot)
{
    struct request *request = leave(scheduler, slot);
    waiting_push_front(&scheduler->waiting, request);
    atomic_fetch_add(&scheduler->stats.preempted, 1);
    log_debug("request %llu gives its pages back after %u rows", (unsigned long long)request->id,
              request->n_ids);
}

static void fail_running(struct scheduler *scheduler, const struct err *err)
{
    for (uint32_t i = 0; i < scheduler->table.sequences_cap; i++) {
        if (scheduler->table.sequences[i].request != NULL)
            fail_request(scheduler, leave(scheduler, i), err);
    }
}

static void fail_waiting(struct scheduler *scheduler, const struct err *err)
{
    while (scheduler->waiting.first != NULL)
        fail_request(scheduler, waiting_pop(&scheduler->waiting), err);
}

/* ---- what other threads asked for ---- */

static void take_inbox(struct scheduler *scheduler)
{
    struct request *request;
    while (queue_pop(scheduler->inbox, &request))
        waiting_push_back(&scheduler->waiting, request);
}

static void take_cancellations(struct scheduler *scheduler)
{
    for (uint32_t i = 0; i < scheduler->table.sequences_cap; i++) {
        struct request *request = scheduler->table.sequences[i].request;
        if (request != NULL && atomic_load(&request->cancelled))
            cancel_request(scheduler, leave(scheduler, i));
    }
    struct waiting_list kept = { 0 };
    while (scheduler->waiting.first != NULL) {
        struct request *request = waiting_pop(&scheduler->waiting);
        if (atomic_load(&request->cancelled))
            cancel_request(scheduler, request);
        else
            waiting_push_back(&kept, request);
    }
    scheduler->waiting = kept;
}

static void check_drain(struct scheduler *scheduler)
{
    if (!atomic_load(&scheduler->draining))
        return;
    struct err err;
    err_set(&err, ERR_BUSY, "the server is shutting down");
    const bool over = clock_ms() >= atomic_load(&scheduler->drain_deadline_ms);
    struct waiting_list kept = { 0 };
    while (scheduler->waiting.first != NULL) {
        struct request *request = waiting_pop(&scheduler->waiting);
        if (over || request->admitted_ns == 0)
            fail_request(scheduler, request, &err);
        else
            waiting_push_back(&kept, request); // preempted: it has begun
    }
    scheduler->waiting = kept;
    if (over)
        fail_running(scheduler, &err);
    if (!atomic_load(&scheduler->drained) && scheduler->table.n_running == 0 &&
        kept.first == NULL && atomic_load(&scheduler->n_waiting) == 0) {
        atomic_store(&scheduler->drained, true);
        scheduler->news = true;
    }
}

/* ---- the chain ---- */

void scheduler_read_info(struct scheduler *scheduler)
{
    const struct engine_info *info = pipeline_info(scheduler->pipeline);
    struct sequence_limits *limits = &scheduler->table.limits;
    limits->max_sequences = info->max_sequences < scheduler->table.sequences_cap
                                ? info->max_sequences
                                : scheduler->table.sequences_cap;
    limits->max_rows = info->max_rows;
    if (scheduler->batch.rows_cap > 0 && limits->max_rows > scheduler->batch.rows_cap)
        limits->max_rows = scheduler->batch.rows_cap;
    limits->n_pages = info->n_pages;
    limits->page_rows = info->page_rows;
    limits->prefill_rows = scheduler->options.prefill_rows;
    limits->mixed_rows = MIXED_ROWS;
    limits->n_groups = scheduler->options.n_stages;
    const uint64_t pool_rows = (uint64_t)info->n_pages * info->page_rows;
    atomic_store(&scheduler->rows_cap,
                 pool_rows < info->ctx_size ? (uint32_t)pool_rows : info->ctx_size);
    atomic_store(&scheduler->vocab_size, info->vocab_size);
    atomic_store(&scheduler->stats.pages_total, info->n_pages);
    atomic_store(&scheduler->stats.read_limit_s,
                 info->step_read_ns ? info->step_read_ns * 1e-9 : (double)NAN);
}

static void lose_chain(struct scheduler *scheduler, const struct err *err)
{
    if (scheduler->table.n_running > 0)
        log_warn("%u requests end: %s", scheduler->table.n_running, err->text);
    scheduler->chain_up = false;
    scheduler->down_since_ms = clock_ms();
    atomic_store(&scheduler->ready, false);
    sequence_table_land_all(&scheduler->table);
    fail_running(scheduler, err);
}

/* Notices that the chain has come or gone without an answer that says so. */
static void check_chain(struct scheduler *scheduler)
{
    const bool up = pipeline_state(scheduler->pipeline) == PIPELINE_READY;
    const uint32_t epoch = pipeline_epoch(scheduler->pipeline);
    if (scheduler->chain_up && (!up || epoch != scheduler->epoch)) {
        struct err err;
        err_set(&err, ERR_PEER_LOST, "a stage of the chain was lost");
        lose_chain(scheduler, &err);
    }
    if (!scheduler->chain_up && up && (!scheduler->epoch_known || epoch != scheduler->epoch)) {
        scheduler->chain_up = true;
        scheduler->epoch_known = true;
        scheduler->epoch = epoch;
        scheduler->probe_next_ms = 0;
        scheduler_read_info(scheduler);
    }
}

/* Requests do not wait for ever for a chain that works. */
static void check_patience(struct scheduler *scheduler)
{
    if (atomic_load(&scheduler->ready))
        return;
    const uint64_t now_ms = clock_ms();
    const uint64_t patience_ms = scheduler->options.reconnect_ms;
    if (now_ms - scheduler->down_since_ms < patience_ms)
        return;
    struct err err;
    err_set(&err, ERR_PEER_LOST, "no working chain of stages for %llu ms",
            (unsigned long long)patience_ms);
    struct waiting_list kept = { 0 };
    while (scheduler->waiting.first != NULL) {
        struct request *request = waiting_pop(&scheduler->waiting);
        if (now_ms - request->submitted_ns / 1000000u >= patience_ms)
            fail_request(scheduler, request, &err);
        else
            waiting_push_back(&kept, request);
    }
    scheduler->waiting = kept;
}

/* One row through the whole chain, drawn greedily; its token is of no interest. Nothing else runs
 * in the epoch yet, so slot 0 is free. */
static void submit_probe(struct scheduler *scheduler)
{
    if (!scheduler->chain_up || atomic_load(&scheduler->ready) ||
        clock_ms() < scheduler->probe_next_ms)
        return;
    scheduler->probe_next_ms = UINT64_MAX;
    struct flight *flight = sequence_table_find(&scheduler->table, 0);
    uint32_t token = 0;
    tokenizer_bos(scheduler->options.tokenizer, &token);
    struct sampling_params greedy;
    sampling_params_init(&greedy);
    greedy.prompt_rows = 1;
    const struct sampling_params *params = &greedy;
    const uint32_t slot = 0;
    struct batch *batch = &scheduler->batch;
    batch->id = scheduler->table.n_batches + 1;
    batch->n_rows = 1;
    batch->rows[0] =
        (struct row){ .token = (int32_t)token, .flags = ROW_SAMPLE | ROW_LAST_OF_PROMPT };
    struct err err;
    if (!pipeline_submit(scheduler->pipeline, batch, &slot, &params, 1, &err)) {
        scheduler->probe_next_ms = clock_ms() + PROBE_RETRY_MS;
        return;
    }
    flight->probe = true;
    flight->n_parts = 0;
    sequence_table_commit(&scheduler->table, flight);
}

static void on_probe(struct scheduler *scheduler, const struct pipeline_result *result)
{
    pipeline_drop(scheduler->pipeline, 0);
    if (!result->failed && result->n_tokens == 1) {
        atomic_store(&scheduler->ready, true);
        scheduler->news = true;
        return;
    }
    scheduler->probe_next_ms = clock_ms() + PROBE_RETRY_MS;
    if (log_limit_pass(&scheduler->probe_limit, RATE_LOG_INTERVAL_MS))
        log_warn("the probe of the chain failed: %s",
                 result->failed ? result->err.text : "no token came back");
}

/* ---- admission and batches ---- */

/* Another stage may have come with less than what held when the request was submitted. */
static bool fits(const struct scheduler *scheduler, struct request *request, struct err *err)
{
    const uint32_t rows_cap = atomic_load(&scheduler->rows_cap);
    if (request->n_ids >= rows_cap)
        return err_set(err, ERR_ARGUMENT,
                       "the request has %u tokens, and the context has become one of %u",
                       request->n_ids, rows_cap);
    request_limit(request, rows_cap - request->n_prompt);
    return true;
}

static void admit(struct scheduler *scheduler)
{
    while (atomic_load(&scheduler->ready) && scheduler->waiting.first != NULL &&
           sequence_table_has_room(&scheduler->table, scheduler->waiting.first)) {
        struct request *request = waiting_pop(&scheduler->waiting);
        struct err err;
        if (!fits(scheduler, request, &err)) {
            fail_request(scheduler, request, &err);
            continue;
        }
        if (request->admitted_ns == 0) {
            request->admitted_ns = clock_ns();
            request->admission = ++scheduler->n_admitted;
            atomic_fetch_sub(&scheduler->n_waiting, 1);
        }
        sequence_table_admit(&scheduler->table, request);
    }
}

static void free_pages(struct scheduler *scheduler)
{
    uint32_t slot;
    while (sequence_table_victim(&scheduler->table, &slot))
        preempt(scheduler, slot);
}

/* What the planned batch costs at least, if it is a step of decoding alone: reading the weights,
 * and for each row the keys and values that it sees. */
static struct flight_cost plan_cost(const struct scheduler *scheduler, const struct flight *flight)
{
    const struct engine_info *info = pipeline_info(scheduler->pipeline);
    struct flight_cost cost = { .submitted_ns = clock_ns() };
    uint64_t n_positions = 0;
    for (uint32_t i = 0; i < flight->n_parts; i++) {
        if (!flight->parts[i].decodes)
            return cost;
        n_positions += scheduler->batch.rows[flight->parts[i].row_last].position + 1;
    }
    if (info->step_read_ns)
        cost.limit_ns = info->step_read_ns + (double)n_positions * info->position_read_ps * 1e-3;
    return cost;
}

/* Hands a planned batch on, with the parameters of the sequences that begin in it. */
static bool submit_batch(struct scheduler *scheduler, struct flight *flight)
{
    struct sequence_table *table = &scheduler->table;
    uint32_t n_new = 0;
    for (uint32_t i = 0; i < flight->n_parts; i++) {
        const uint32_t slot = flight->parts[i].sequence;
        if (table->sequences[slot].n_fed > 0)
            continue;
        scheduler->new_slots[n_new] = slot;
        scheduler->new_params[n_new++] = &table->sequences[slot].request->sampling;
    }
    struct err err;
    scheduler->costs[flight - table->flights] = plan_cost(scheduler, flight);
    if (pipeline_submit(scheduler->pipeline, &scheduler->batch, scheduler->new_slots,
                        scheduler->new_params, n_new, &err)) {
        sequence_table_commit(table, flight);
        return true;
    }
    if (err.code != ERR_BUSY) { // busy: after the next answer, or when the chain is there again
        for (uint32_t i = 0; i < flight->n_parts; i++)
            fail_request(scheduler, leave(scheduler, flight->parts[i].sequence), &err);
    }
    return false;
}

static void submit_batches(struct scheduler *scheduler)
{
    if (!scheduler->chain_up)
        return;
    free_pages(scheduler);
    for (;;) {
        struct flight *flight = sequence_table_plan(&scheduler->table, &scheduler->batch);
        if (flight == NULL || !submit_batch(scheduler, flight))
            return;
    }
}

/* ---- answers ---- */

static void time_token(struct scheduler *scheduler, const struct request *request, uint64_t now_ns)
{
    if (request->last_token_ns == 0)
        metric_histogram_add(&scheduler->stats.first_token_s,
                             (double)(now_ns - request->submitted_ns) * 1e-9);
    else
        metric_histogram_add(&scheduler->stats.inter_token_s,
                             (double)(now_ns - request->last_token_ns) * 1e-9);
}

static void on_token(struct scheduler *scheduler, uint32_t slot,
                     const struct sampled_token *sampled)
{
    struct request *request = scheduler->table.sequences[slot].request;
    const uint64_t now_ns = clock_ns();
    time_token(scheduler, request, now_ns);
    const enum completion_state state = request_add_token(request, sampled, now_ns);
    scheduler->news = true;
    scheduler->meter.tokens++;
    atomic_fetch_add(&scheduler->stats.generated, 1);
    if (request->text_lost) {
        struct err err;
        err_set(&err, ERR_NO_MEMORY, "the client reads too slowly: its answer has no more room");
        fail_request(scheduler, leave(scheduler, slot), &err);
        return;
    }
    if (state == COMPLETION_GOES_ON)
        return;
    end_request(scheduler, leave(scheduler, slot), REQUEST_DONE,
                state == COMPLETION_STOP ? REQUEST_FINISH_STOP : REQUEST_FINISH_LENGTH, NULL);
}

/* The token drawn from row `row` of the batch; NULL when there is none that can be one. */
static const struct sampled_token *find_token(const struct scheduler *scheduler,
                                              const struct pipeline_result *result, uint32_t row)
{
    for (uint32_t i = 0; i < result->n_tokens; i++) {
        const struct sampled_token *token = &result->tokens[i];
        if (result->rows[i] == row)
            return (uint32_t)token->token < atomic_load(&scheduler->vocab_size) ? token : NULL;
    }
    return NULL;
}

/* A step of decoding has come back: its least time and its time go to all that took part. */
static void add_cost(struct scheduler *scheduler, const struct flight *flight)
{
    const struct flight_cost *cost = &scheduler->costs[flight - scheduler->table.flights];
    if (cost->limit_ns <= 0.0)
        return;
    const double took_ns = (double)(clock_ns() - cost->submitted_ns);
    scheduler->meter.limit_ns += cost->limit_ns;
    scheduler->meter.steps_ns += took_ns;
    for (uint32_t i = 0; i < flight->n_parts; i++) {
        struct request *request = scheduler->table.sequences[flight->parts[i].sequence].request;
        if (request == NULL)
            continue;
        request->limit_ns += cost->limit_ns;
        request->steps_ns += took_ns;
    }
}

static void on_answer(struct scheduler *scheduler, const struct flight *flight,
                      const struct pipeline_result *result)
{
    add_cost(scheduler, flight);
    for (uint32_t i = 0; i < flight->n_parts; i++) {
        const struct flight_part *part = &flight->parts[i];
        if (!part->decodes) {
            scheduler->meter.prompt_rows += part->n_rows;
            atomic_fetch_add(&scheduler->stats.prompt_rows, part->n_rows);
        }
        if (!part->samples || scheduler->table.sequences[part->sequence].request == NULL)
            continue;
        const struct sampled_token *token = find_token(scheduler, result, part->row_last);
        if (token != NULL) {
            on_token(scheduler, part->sequence, token);
        } else {
            struct err err;
            err_set(&err, ERR_BATCH_LOST,
                    request_has_grammar(scheduler->table.sequences[part->sequence].request)
                        ? "the last stage could not obey the grammar: its log says why"
                        : "the last stage drew no token");
            fail_request(scheduler, leave(scheduler, part->sequence), &err);
        }
    }
}

/* Sequences of a lost batch fail. But when an earlier loss had already ended one of them, this
 * batch was lost for its rows without a beginning: the others are not to blame and are computed
 * again. */
static void on_batch_lost(struct scheduler *scheduler, const struct flight *flight,
                          const struct err *err)
{
    struct sequence *sequences = scheduler->table.sequences;
    bool explained = false;
    for (uint32_t i = 0; i < flight->n_parts; i++)
        explained |= sequences[flight->parts[i].sequence].lost;
    for (uint32_t i = flight->n_parts; i-- > 0;) {
        const uint32_t slot = flight->parts[i].sequence;
        if (sequences[slot].request == NULL)
            continue;
        if (explained) {
            preempt(scheduler, slot);
        } else {
            sequences[slot].lost = true;
            fail_request(scheduler, leave(scheduler, slot), err);
        }
    }
}

static void on_result(struct scheduler *scheduler, const struct pipeline_result *result)
{
    struct flight *flight = sequence_table_find(&scheduler->table, result->batch);
    if (flight == NULL || result->batch == 0)
        return; // of an epoch that is over
    if (result->failed && result->err.code == ERR_PEER_LOST) {
        lose_chain(scheduler, &result->err);
        return;
    }
    if (flight->probe)
        on_probe(scheduler, result);
    else if (result->failed)
        on_batch_lost(scheduler, flight, &result->err);
    else
        on_answer(scheduler, flight, result);
    sequence_table_land(&scheduler->table, flight);
}

/* ---- the loop ---- */

static void update_stats(struct scheduler *scheduler)
{
    atomic_store(&scheduler->stats.running, scheduler->table.n_running);
    atomic_store(&scheduler->stats.pages_used, sequence_table_pages(&scheduler->table));
    struct scheduler_meter *meter = &scheduler->meter;
    const bool busy = scheduler->table.n_flights > 0;
    const uint64_t now_ns = clock_ns();
    if (meter->start_ns == 0) {
        *meter = (struct scheduler_meter){ .start_ns = busy ? now_ns : 0 };
        return;
    }
    if (busy && now_ns - meter->start_ns < METER_NS)
        return;
    const double seconds = (double)(now_ns - meter->start_ns) / 1e9;
    if (meter->prompt_rows + meter->tokens > 0 && seconds > 0.0) {
        atomic_store(&scheduler->stats.prefill_rate, (double)meter->prompt_rows / seconds);
        atomic_store(&scheduler->stats.decode_rate, (double)meter->tokens / seconds);
        if (meter->steps_ns > 0.0)
            atomic_store(&scheduler->stats.read_share, meter->limit_ns / meter->steps_ns);
        if (seconds >= RATE_LOG_SECONDS &&
            log_limit_pass(&scheduler->rate_limit, RATE_LOG_INTERVAL_MS))
            log_info("%u running, %u waiting, %.1f tokens/s, %.1f prompt rows/s, %u of %u pages",
                     scheduler->table.n_running, atomic_load(&scheduler->n_waiting),
                     (double)meter->tokens / seconds, (double)meter->prompt_rows / seconds,
                     atomic_load(&scheduler->stats.pages_used), scheduler->table.limits.n_pages);
    }
    *meter = (struct scheduler_meter){ .start_ns = busy ? now_ns : 0 };
}

static void tell_clients(struct scheduler *scheduler)
{
    if (scheduler->news && scheduler->options.wake != NULL)
        scheduler->options.wake(scheduler->options.wake_context);
    scheduler->news = false;
}

void scheduler_run(void *context)
{
    struct scheduler *scheduler = context;
    while (!atomic_load(&scheduler->stopping)) {
        check_chain(scheduler);
        take_inbox(scheduler);
        take_cancellations(scheduler);
        check_drain(scheduler);
        check_patience(scheduler);
        submit_probe(scheduler);
        admit(scheduler);
        submit_batches(scheduler);
        update_stats(scheduler);
        tell_clients(scheduler);
        const struct pipeline_result *result;
        for (uint64_t wait_ms = TICK_MS; pipeline_poll(scheduler->pipeline, wait_ms, &result);
             wait_ms = 0)
            on_result(scheduler, result);
    }
    struct err err;
    err_set(&err, ERR_BUSY, "the server is shutting down");
    take_inbox(scheduler);
    fail_waiting(scheduler, &err);
    fail_running(scheduler, &err);
    atomic_store(&scheduler->ready, false);
    atomic_store(&scheduler->drained, true);
    scheduler->news = true;
    tell_clients(scheduler);
}
