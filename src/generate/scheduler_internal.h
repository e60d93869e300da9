/* What scheduler.c (any thread) and scheduler_run.c (the scheduler's own thread) share. */
#ifndef CASCADIA_GENERATE_SCHEDULER_INTERNAL_H
#define CASCADIA_GENERATE_SCHEDULER_INTERNAL_H

#include "base/err.h"
#include "base/log.h"
#include "base/queue.h"
#include "base/thread.h"
#include "generate/scheduler.h"
#include "generate/sequence_table.h"

#include <stdatomic.h>

struct request;

/* Requests that wait, first come first; preempted ones in front. Linked by request->next. */
struct waiting_list {
    struct request *first, *last;
};

/* Rows and tokens of an interval with work, for rates. */
struct scheduler_meter {
    uint64_t start_ns; // 0: no work since the last interval
    uint64_t prompt_rows, tokens;
    double limit_ns, steps_ns; // of decode steps: see struct flight_cost
};

/* What a batch of nothing but decode rows has to read, as time at the machines' limit, and when it
 * was handed on. */
struct flight_cost {
    uint64_t submitted_ns;
    double limit_ns; // 0: other rows too, or not known
};

struct scheduler {
    struct scheduler_options options; // with its defaults filled in; set at start
    struct thread thread;
    struct queue *inbox; // of struct request *; from any thread to the scheduler's

    /* Any thread. */
    _Atomic bool stopping;
    _Atomic bool draining;
    _Atomic uint64_t drain_deadline_ms;
    _Atomic bool ready, drained;
    _Atomic uint32_t n_waiting;            // held against queue_cap: submitted and not yet admitted
    _Atomic uint32_t rows_cap, vocab_size; // what the pipeline offers
    _Atomic uint64_t n_submitted;
    struct {
        _Atomic uint32_t running, pages_used, pages_total;
        _Atomic uint64_t done, cancelled, failed, refused, preempted, prompt_rows, generated;
        _Atomic double prefill_rate, decode_rate, read_share, read_limit_s;
        struct metric_histogram first_token_s, inter_token_s;
    } stats;

    /* The scheduler's thread. */
    struct pipeline *pipeline;
    struct sequence_table table;
    struct flight_cost *costs; // [flights_cap], beside the table's flights
    struct batch batch;        // the one being planned; no values
    uint32_t *new_slots;       // [max_sequences] sequences that begin in it, and their parameters
    const struct sampling_params **new_params;
    struct waiting_list waiting;
    uint64_t n_admitted;
    bool chain_up;    // an epoch is on: `epoch`
    bool epoch_known; // `epoch` has been on
    uint32_t epoch;
    uint64_t down_since_ms; // start, or when the last chain was lost
    uint64_t probe_next_ms; // when the probe is tried (again)
    bool news;              // events that wake has not told of
    struct scheduler_meter meter;
    struct log_limit probe_limit, rate_limit;
};

void scheduler_wake(struct scheduler *scheduler); // any thread

/* The thread's body: until `stopping`, then ends every request. */
void scheduler_run(void *scheduler);

/* Reads what the pipeline offers now: limits of the table, rows_cap, vocab_size. */
void scheduler_read_info(struct scheduler *scheduler);

#endif
