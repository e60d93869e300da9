/* The chain of stages as the head sees it: batches in, results out.
 *
 * The head is the process with stage 0. Its pipeline owns stage 0's engine (run on a thread of its
 * own), the link to stage 1 and the direct link from the last stage. With one stage everything is
 * in this process, through the same code. All functions are called by one thread, the scheduler,
 * except pipeline_wake and pipeline_describe (any thread). Nothing here blocks but pipeline_poll,
 * and it is what moves the chain: losses are noticed, and stages dialled again, while it is called.
 *
 * Life: open -> (connecting -> ready -> lost -> connecting ...) -> close. When the chain is lost
 * every batch in flight ends with one failed result, sequences on all stages are gone, and the
 * epoch rises when it is ready again. */
#ifndef CASCADIA_PIPELINE_PIPELINE_H
#define CASCADIA_PIPELINE_PIPELINE_H

#include "base/buf.h"
#include "base/err.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "sample/sampling_params.h"

#include <stdbool.h>
#include <stdint.h>

struct pipeline;
struct tokenizer;

enum pipeline_state {
    PIPELINE_CONNECTING, // not all stages are there; submit gives ERR_BUSY
    PIPELINE_READY,
};

/* Of one rank; pipeline_open takes those of rank 0, worker_run (worker.h) those of the others. */
struct pipeline_options {
    struct engine_options engine; // with this rank's layers
    uint32_t rank;                // 0 for the head
    uint32_t total;               // stages; 1: all in this process
    /* Addresses: "host:port", "[v6]:port", "unix:/path" or, within a process, "local:name". */
    const char *listen;     // where the rank before (for the head: the last one) dials in
    const char *next;       // where the next rank listens; NULL on the last
    const char *head;       // where the last rank dials the head; NULL: found out on the way
    bool insecure;          // a bind beyond loopback without TLS is allowed
    uint32_t batches_cap;   // in flight; 0: one a stage plus one
    uint64_t owed_reply_ms; // for one row through one stage, larger batches longer; 0: 120 s
    uint64_t ping_ms;       // 0: 10 s; three unanswered: the neighbour is lost
    uint64_t frame_ms;      // 0: 10 s in which a frame that has begun, or a greeting, must progress
    uint32_t spin_us;       // a reader polls so long before it sleeps; 0: sleeps at once
    /* Of the last rank, whose masks hold answers to their grammars; outlives the pipeline. NULL:
     * there is none, and requests with a grammar fail. */
    const struct tokenizer *tokenizer;
};

/* The answer to one batch. Owned by the pipeline, valid until the next poll. */
struct pipeline_result {
    uint64_t batch;
    bool failed; // then `err` says why, and the sequences of the batch are dropped everywhere
                 // (ERR_BATCH_LOST, ERR_BUSY) or the whole epoch is over (ERR_PEER_LOST)
    struct err err;
    uint32_t n_tokens;                  // one for each ROW_SAMPLE row, in row order
    const struct sampled_token *tokens; // below 0: none could be drawn, from that row alone
    const uint32_t *rows;               // [n_tokens] index of the row in its batch
    uint32_t n_logits;                  // ROW_LOGITS rows, in row order
    const float *logits;                // [n_logits][vocab_size]
};

/* Opens stage 0's engine and starts to dial. Returns at once when total > 1; state tells when the
 * chain is there. */
struct pipeline *pipeline_open(const struct pipeline_options *options, struct err *err);
void pipeline_close(struct pipeline *pipeline); // says BYE; NULL is fine

enum pipeline_state pipeline_state(struct pipeline *pipeline);
uint32_t pipeline_epoch(struct pipeline *pipeline); // rises each time the chain becomes ready
/* The smallest of all stages once ready; stage 0's before. */
const struct engine_info *pipeline_info(struct pipeline *pipeline);

/* Hands a batch on (copied; `values` are not read). `params[i]`, n_params of them, belong to
 * sequences[i]; give those of every sequence with a ROW_SAMPLE row: they travel when the sequence
 * is new on this epoch, after a drop or a keep, or when they changed. The text of a grammar lives
 * until the sequence is dropped. ERR_BUSY: connecting, or
 * batches_cap in flight. ERR_ARGUMENT: beyond pipeline_info, or more ROW_LOGITS rows than
 * pipeline_logits_rows_cap. */
bool pipeline_submit(struct pipeline *pipeline, const struct batch *batch,
                     const uint32_t *sequences, const struct sampling_params *const *params,
                     uint32_t n_params, struct err *err);

/* ROW_LOGITS rows that one batch may have: their logits must fit one frame. */
uint32_t pipeline_logits_rows_cap(struct pipeline *pipeline);

/* Next result, if one comes within timeout_ms or before pipeline_wake: true and *result. */
bool pipeline_poll(struct pipeline *pipeline, uint64_t timeout_ms,
                   const struct pipeline_result **result);
void pipeline_wake(struct pipeline *pipeline); // any thread: makes a waiting poll return

void pipeline_keep(struct pipeline *pipeline, uint32_t from, uint32_t to, uint32_t rows);
void pipeline_drop(struct pipeline *pipeline, uint32_t sequence);

/* JSON object for /health: state, epoch, stages, what is awaited. Any thread. */
void pipeline_describe(struct pipeline *pipeline, struct buf *out);

#endif
