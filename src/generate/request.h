/* A request: ids and wishes in, text in pieces out, and exactly one end.
 *
 * Life: request_submit (scheduler.h) -> any number of REQUEST_TEXT -> one of REQUEST_DONE,
 * REQUEST_CANCELLED, REQUEST_FAILED -> request_free.
 *
 * Ownership: the client that submitted a request owns its handle from the success of request_submit
 * until request_free, which it may call at any time (before the end it also cancels). The scheduler
 * holds the request by itself as long as it works on it, so neither waits for the other.
 *
 * Threads: one client thread polls and frees a request; request_cancel and the getters, any thread.
 * The scheduler never waits for a client: what nobody polls gathers in the request, whose size is
 * bounded by max_tokens. */
#ifndef CASCADIA_GENERATE_REQUEST_H
#define CASCADIA_GENERATE_REQUEST_H

#include "base/err.h"
#include "base/str.h"
#include "sample/sampling_params.h"

#include <stdbool.h>
#include <stdint.h>

struct request;

/* Copied by request_submit, the text of a grammar too. */
struct request_options {
    const int32_t *prompt;
    uint32_t n_prompt;
    struct sampling_params
        sampling;            // seed only if has_seed; prompt_rows and token_cap are filled in
    bool has_seed;           // else a random one is chosen: request_seed tells which
    uint32_t max_tokens;     // 0, or more than fits: to the end of the context
    const struct str *stops; // texts that end the answer and are not part of it
    uint32_t n_stops;        // at most STOPS_CAP (stops.h), none empty
    bool ignore_eos;         // go on after end-of-sequence ids (benchmarks); not with a grammar
    bool keep_special;       // write special tokens out as text
};

enum request_event_kind {
    REQUEST_TEXT,      // a piece of the answer
    REQUEST_DONE,      // finished: `finish` says why
    REQUEST_CANCELLED, // by request_cancel
    REQUEST_FAILED,    // `err` says why
};

enum request_finish {
    REQUEST_FINISH_STOP,   // an end-of-sequence id or a stop text
    REQUEST_FINISH_LENGTH, // max_tokens, or the end of the context
};

/* Whether the grammar compiles: ERR_ARGUMENT or ERR_UNSUPPORTED, with a sentence for whoever wrote
 * it. Takes a while for a large one: not for a thread that others wait for. Any thread. */
bool request_check_grammar(const struct sampling_grammar *grammar, struct err *err);

const char *request_finish_name(enum request_finish finish); // "stop", "length"

/* Times are in milliseconds of the monotonic clock; 0 for what did not happen. */
struct request_usage {
    uint32_t prompt_rows;  // ids of the prompt
    uint32_t generated;    // tokens drawn, an end-of-sequence id included
    double queue_ms;       // submitted to admitted
    double prefill_ms;     // admitted to first token
    double decode_ms;      // first token to last token: generated - 1 steps
    double first_token_ms; // submitted to first token
    double read_share;     // of the machines' read limit, in its steps of decoding; 0: not known
};

/* A token of a piece, when log-probabilities were asked for. */
struct request_token {
    struct sampled_token sampled;
    uint32_t text_first, text_size; // its bytes in the answer, counted from the answer's beginning
};

struct request_event {
    enum request_event_kind kind;
    /* REQUEST_TEXT: all that has gathered since the last poll. Whole UTF-8 characters; `text` may
     * be empty when there are only tokens. Views are valid until the next poll or request_free. */
    struct str text;
    const struct request_token *tokens; // of the text given out so far, each once, in order
    uint32_t n_tokens;                  // 0 unless want_logprob or n_top
    /* The end; text that was still to come has come before. */
    enum request_finish finish; // REQUEST_DONE
    struct err err;             // REQUEST_FAILED
    struct request_usage usage; // all three ends
};

/* The next event, if there is one. After the end there are no more. */
bool request_poll(struct request *request, struct request_event *event);

/* Stops it within one step; REQUEST_CANCELLED follows unless it has ended before. Not after
 * scheduler_free. */
void request_cancel(struct request *request);

uint64_t request_seed(const struct request *request); // given or chosen

void request_free(struct request *request); // NULL is fine

#endif
