/* What request.c and the scheduler share. Fields say who may touch them; the mailbox alone is
 * touched by two threads, under its mutex, because a piece of text has no fixed size and base/queue
 * holds items that have. It is held for the time of a copy. */
#ifndef CASCADIA_GENERATE_REQUEST_INTERNAL_H
#define CASCADIA_GENERATE_REQUEST_INTERNAL_H

#include "base/buf.h"
#include "base/thread.h"
#include "generate/completion.h"
#include "generate/request.h"

#include <stdatomic.h>

struct scheduler;

/* Pieces and the end on their way to the client. */
struct request_mailbox {
    struct mutex mutex;
    struct buf text;
    struct request_token *tokens; // [tokens_cap] NULL unless log-probabilities are wanted
    uint32_t n_tokens;
    uint32_t n_ready;     // tokens whose text has been given out
    uint32_t given_bytes; // text given out since the beginning
    bool ended;
    struct request_event end;
};

struct request {
    /* Set by request_submit, then read by anybody. */
    uint64_t id;
    struct scheduler *scheduler;
    uint64_t submitted_ns;
    uint32_t n_prompt;
    struct sampling_params sampling;
    char *grammar_text;  // that of `sampling`
    uint32_t tokens_cap; // 0: no log-probabilities wanted

    _Atomic int n_owners;   // client and scheduler
    _Atomic bool cancelled; // by the client

    /* The scheduler's thread. */
    uint32_t max_tokens; // at least 1, fits the context; only lowered later
    int32_t *ids;        // [n_prompt + max_tokens] prompt and answer
    uint32_t n_ids;
    struct completion completion;
    struct buf piece;     // text of one token
    bool text_lost;       // the client left more unread than there is room for
    struct request *next; // of the list it waits in
    uint64_t admission;   // rising; the youngest running request is preempted first
    uint64_t admitted_ns; // first admission; 0: not yet
    uint64_t first_token_ns, last_token_ns;
    double limit_ns, steps_ns; // of its decode steps: least time by what they read, and time

    struct request_mailbox mailbox; // both

    /* The client's thread: what the last event's views point at. */
    struct buf view;
    struct request_token *view_tokens;
    bool end_taken;
};

/* Checks and copies. `rows_cap` is the longest sequence there can be. ERR_ARGUMENT, ERR_NO_MEMORY.
 * The new request has two owners. */
struct request *request_new(const struct request_options *options,
                            const struct tokenizer *tokenizer, uint32_t rows_cap,
                            uint32_t vocab_size, struct err *err);
static inline bool request_has_grammar(const struct request *request)
{
    return request->sampling.grammar.language != SAMPLING_GRAMMAR_NONE;
}

void request_drop_owner(struct request *request);

/* The scheduler's side. Lowers max_tokens to what there is room for, more than what was drawn. */
void request_limit(struct request *request, uint32_t max_tokens);
/* Adds a sampled token, and gives out its text if it ended nothing. */
enum completion_state request_add_token(struct request *request,
                                        const struct sampled_token *sampled, uint64_t now_ns);
/* The one end; err only for REQUEST_FAILED. Gives up the scheduler's ownership. */
void request_end(struct request *request, enum request_event_kind kind, enum request_finish finish,
                 const struct err *err);

#endif
