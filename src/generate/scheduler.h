/* The one thread that owns all sequences: what runs, in which batch, and when it is over.
 *
 * Requests wait in a bounded queue, first come first served. A waiting one is admitted when a
 * sequence slot and the KV pages of its ids are free; if the pool runs out while answers grow, the
 * sequence admitted last gives its pages back and waits in front of the queue to be computed again
 * from its ids, which by docs/numerics.md changes no bit of its text. The oldest always runs, so
 * everything ends.
 *
 * Each batch takes one row of every sequence that has a token to feed, then chunks of prompts up to
 * the pipeline's max_rows. Several batches are in flight when there are several stages.
 *
 * Threads: everything here may be called by any thread but scheduler_start and scheduler_free. */
#ifndef CASCADIA_GENERATE_SCHEDULER_H
#define CASCADIA_GENERATE_SCHEDULER_H

#include "base/err.h"
#include "base/metric.h"
#include "generate/request.h"
#include "pipeline/pipeline.h"

#include <stdbool.h>
#include <stdint.h>

struct scheduler;
struct tokenizer;

struct scheduler_options {
    struct pipeline
        *pipeline;     // borrowed until scheduler_free; only the scheduler calls it meanwhile
    uint32_t n_stages; // of the pipeline; 0: 1
    /* Borrowed until scheduler_free. Each of its end ids ends an answer; ids that it does not have
     * are padding of the model's vocabulary and never drawn. */
    const struct tokenizer *tokenizer;
    uint32_t queue_cap;    // requests that wait; 0: 128
    uint32_t prefill_rows; // of one prompt in a batch; 0: max_rows with one stage, else 128
    uint64_t reconnect_ms; // how long waiting requests outlive the chain; 0: 30 s
    /* Called by the scheduler's thread after events were added to any request, and when a drain is
     * over: poll all requests then. It must only wake the client's loop (uv_async_send). May be
     * NULL. */
    void (*wake)(void *wake_context);
    void *wake_context;
};

/* Starts the thread. ERR_ARGUMENT, ERR_SYSTEM. */
struct scheduler *scheduler_start(const struct scheduler_options *options, struct err *err);

/* Ends every request that has not ended (REQUEST_FAILED: shutting down) and the thread. Handles of
 * requests stay valid for polling until their request_free. NULL is fine. */
void scheduler_free(struct scheduler *scheduler);

/* Hands a request to the queue. ERR_ARGUMENT: something is wrong with it; for too long a prompt the
 * sentence has its length and the limit. ERR_BUSY: the queue is full, or draining. */
struct request *request_submit(struct scheduler *scheduler, const struct request_options *options,
                               struct err *err);

/* The whole chain is there and a probe of one row has gone through it in this epoch. */
bool scheduler_ready(const struct scheduler *scheduler);

/* No more requests from now on: those that wait fail at once (ERR_BUSY, shutting down), those that
 * run have `timeout_ms` to finish and then fail. wake is called when none is left. */
void scheduler_drain(struct scheduler *scheduler, uint64_t timeout_ms);
bool scheduler_drained(const struct scheduler *scheduler);

struct scheduler_stats {
    uint32_t running, waiting;        // requests now
    uint32_t pages_used, pages_total; // KV pool
    uint32_t prompt_rows_cap;         // longest prompt that is accepted
    uint64_t requests_total;          // accepted
    uint64_t done_total, cancelled_total, failed_total, refused_total, preempted_total;
    uint64_t prompt_rows_total, generated_total;
    double prefill_rate, decode_rate; // rows and tokens a second, over the last interval with work
    /* What steps of decoding read at the machines' read limit, in time, over the time they took;
     * the same interval. NaN: not known. */
    double read_share;
    double read_limit_s; // of the weights alone; NaN: not known
    struct metric_distribution first_token_s, inter_token_s;
};

extern const struct metric_row scheduler_metrics[]; // of struct scheduler_stats

void scheduler_stats(const struct scheduler *scheduler, struct scheduler_stats *out);

/* What the chain of stages says about itself (pipeline_describe): a JSON object, for /health. */
void scheduler_describe(const struct scheduler *scheduler, struct buf *out);

#endif
