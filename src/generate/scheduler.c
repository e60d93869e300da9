/* The side of the scheduler that other threads see: they check and build requests, put them into
 * the inbox and read atomics; whatever has to do with sequences is the work of scheduler_run.c. */
#include "generate/scheduler.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "generate/request_internal.h"
#include "generate/scheduler_internal.h"

#define QUEUE_CAP_DEFAULT 128u
#define RECONNECT_MS_DEFAULT 30000u
#define PREFILL_ROWS_DEFAULT 128u // over several stages: small enough to keep all of them busy

static const struct metric_bounds first_token_bounds = {
    .n_bounds = 13,
    .bounds = { 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300 },
};
static const struct metric_bounds inter_token_bounds = {
    .n_bounds = 12,
    .bounds = { 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5 },
};

static void fill_defaults(struct scheduler_options *options, const struct engine_info *info)
{
    if (options->n_stages == 0)
        options->n_stages = 1;
    if (options->queue_cap == 0)
        options->queue_cap = QUEUE_CAP_DEFAULT;
    if (options->reconnect_ms == 0)
        options->reconnect_ms = RECONNECT_MS_DEFAULT;
    if (options->prefill_rows == 0)
        options->prefill_rows = options->n_stages == 1 ? info->max_rows : PREFILL_ROWS_DEFAULT;
}

static void release(struct scheduler *scheduler)
{
    sequence_table_release(&scheduler->table);
    batch_release(&scheduler->batch);
    queue_free(scheduler->inbox);
    free(scheduler->costs);
    free(scheduler->new_slots);
    free(scheduler->new_params);
    free(scheduler);
}

struct scheduler *scheduler_start(const struct scheduler_options *options, struct err *err)
{
    const struct engine_info *info = pipeline_info(options->pipeline);
    if (info->max_sequences == 0 || info->max_rows == 0 || info->page_rows == 0 ||
        info->n_pages == 0 || info->vocab_size == 0) {
        err_set(err, ERR_ARGUMENT, "a pipeline without sequences, rows, pages or vocabulary");
        return NULL;
    }
    struct scheduler *scheduler = xcalloc(1, sizeof(*scheduler));
    scheduler->options = *options;
    fill_defaults(&scheduler->options, info);
    scheduler->pipeline = options->pipeline;
    scheduler->down_since_ms = clock_ms();
    sequence_table_init(&scheduler->table, info->max_sequences, scheduler->options.n_stages + 1);
    scheduler->costs = xcalloc(scheduler->options.n_stages + 1, sizeof(*scheduler->costs));
    scheduler->stats.first_token_s.bounds = &first_token_bounds;
    scheduler->stats.inter_token_s.bounds = &inter_token_bounds;
    atomic_store(&scheduler->stats.read_share, (double)NAN);
    scheduler->inbox = queue_new(sizeof(struct request *), scheduler->options.queue_cap);
    scheduler->new_slots = xcalloc(info->max_sequences, sizeof(*scheduler->new_slots));
    scheduler->new_params = xcalloc(info->max_sequences, sizeof(*scheduler->new_params));
    scheduler_read_info(scheduler);
    if (!batch_init(&scheduler->batch, info->max_rows, 0, err) ||
        !thread_start(&scheduler->thread, "scheduler", scheduler_run, scheduler, err)) {
        release(scheduler);
        return NULL;
    }
    return scheduler;
}

void scheduler_free(struct scheduler *scheduler)
{
    if (scheduler == NULL)
        return;
    atomic_store(&scheduler->stopping, true);
    scheduler_wake(scheduler);
    thread_join(&scheduler->thread);
    release(scheduler);
}

void scheduler_wake(struct scheduler *scheduler)
{
    pipeline_wake(scheduler->pipeline);
}

/* Takes a place in the queue; it is given back at admission or at the end. The place is taken
 * before `draining` is read, and a drain reads the places after it is set: one of the two notices.
 */
static bool take_place(struct scheduler *scheduler, struct err *err)
{
    const uint32_t n_before = atomic_fetch_add(&scheduler->n_waiting, 1);
    if (atomic_load(&scheduler->draining) || atomic_load(&scheduler->stopping))
        err_set(err, ERR_BUSY, "the server is shutting down");
    else if (n_before >= scheduler->options.queue_cap)
        err_set(err, ERR_BUSY, "the queue of %u requests is full", scheduler->options.queue_cap);
    else
        return true;
    atomic_fetch_sub(&scheduler->n_waiting, 1);
    return false;
}

struct request *request_submit(struct scheduler *scheduler, const struct request_options *options,
                               struct err *err)
{
    if (!take_place(scheduler, err)) {
        atomic_fetch_add(&scheduler->stats.refused, 1);
        return NULL;
    }
    struct request *request =
        request_new(options, scheduler->options.tokenizer, atomic_load(&scheduler->rows_cap),
                    atomic_load(&scheduler->vocab_size), err);
    if (request == NULL) {
        atomic_fetch_sub(&scheduler->n_waiting, 1);
        return NULL;
    }
    request->scheduler = scheduler;
    request->id = atomic_fetch_add(&scheduler->n_submitted, 1) + 1;
    must(queue_push(scheduler->inbox, &request)); // a place was taken
    scheduler_wake(scheduler);
    return request;
}

bool scheduler_ready(const struct scheduler *scheduler)
{
    return atomic_load(&scheduler->ready);
}

void scheduler_drain(struct scheduler *scheduler, uint64_t timeout_ms)
{
    const uint64_t now_ms = clock_ms();
    const uint64_t left_ms = UINT64_MAX - now_ms;
    atomic_store(&scheduler->drain_deadline_ms,
                 now_ms + (timeout_ms < left_ms ? timeout_ms : left_ms));
    atomic_store(&scheduler->draining, true);
    scheduler_wake(scheduler);
}

bool scheduler_drained(const struct scheduler *scheduler)
{
    return atomic_load(&scheduler->drained);
}

void scheduler_stats(const struct scheduler *scheduler, struct scheduler_stats *out)
{
    *out = (struct scheduler_stats){
        .running = atomic_load(&scheduler->stats.running),
        .waiting = atomic_load(&scheduler->n_waiting),
        .pages_used = atomic_load(&scheduler->stats.pages_used),
        .pages_total = atomic_load(&scheduler->stats.pages_total),
        .prompt_rows_cap = atomic_load(&scheduler->rows_cap) - 1,
        .requests_total = atomic_load(&scheduler->n_submitted),
        .done_total = atomic_load(&scheduler->stats.done),
        .cancelled_total = atomic_load(&scheduler->stats.cancelled),
        .failed_total = atomic_load(&scheduler->stats.failed),
        .refused_total = atomic_load(&scheduler->stats.refused),
        .preempted_total = atomic_load(&scheduler->stats.preempted),
        .prompt_rows_total = atomic_load(&scheduler->stats.prompt_rows),
        .generated_total = atomic_load(&scheduler->stats.generated),
        .prefill_rate = atomic_load(&scheduler->stats.prefill_rate),
        .decode_rate = atomic_load(&scheduler->stats.decode_rate),
        .read_share = atomic_load(&scheduler->stats.read_share),
        .read_limit_s = atomic_load(&scheduler->stats.read_limit_s),
    };
    metric_histogram_read(&scheduler->stats.first_token_s, &out->first_token_s);
    metric_histogram_read(&scheduler->stats.inter_token_s, &out->inter_token_s);
}

void scheduler_describe(const struct scheduler *scheduler, struct buf *out)
{
    pipeline_describe(scheduler->options.pipeline, out);
}
