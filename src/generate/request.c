/* A request is made whole before it is queued: ids, token records and the first stretch of text
 * have their memory, so that drawing tokens allocates nothing. Text may outgrow its stretch when a
 * client polls slowly; it then grows by doubling, up to what max_tokens can say. */
#include "generate/request.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "generate/request_internal.h"
#include "generate/scheduler_internal.h"
#include "text/tokenizer.h"

#define TEXT_BYTES_CAP ((size_t)256 << 20) // unpolled text of one answer
#define TEXT_BYTES_FIRST ((size_t)16 << 10)
#define PIECE_BYTES_FIRST ((size_t)2 << 10) // a token's text and what a stop text held back

const char *request_finish_name(enum request_finish finish)
{
    return finish == REQUEST_FINISH_STOP ? "stop" : "length";
}

/* Not a secret, only different each time: the clocks, a counter and an address, mixed. */
static uint64_t random_seed(const struct request *request)
{
    static _Atomic uint64_t counter;
    const uint64_t parts[4] = { clock_ns(), (uint64_t)clock_unix_seconds(),
                                atomic_fetch_add(&counter, 1), (uint64_t)(uintptr_t)request };
    return hash_xxh3(parts, sizeof(parts));
}

static bool check_options(const struct request_options *options, uint32_t rows_cap,
                          uint32_t vocab_size, struct err *err)
{
    if (options->n_prompt == 0)
        return err_set(err, ERR_ARGUMENT, "the prompt is empty");
    if (options->n_prompt >= rows_cap)
        return err_set(err, ERR_ARGUMENT,
                       "the prompt has %u tokens, and the context of %u tokens has room for %u",
                       options->n_prompt, rows_cap, rows_cap > 0 ? rows_cap - 1 : 0);
    for (uint32_t i = 0; i < options->n_prompt; i++) {
        if (options->prompt[i] < 0 || (uint32_t)options->prompt[i] >= vocab_size)
            return err_set(err, ERR_ARGUMENT,
                           "token %d of the prompt is not in the vocabulary of %u",
                           options->prompt[i], vocab_size);
    }
    if (options->ignore_eos && options->sampling.grammar.language != SAMPLING_GRAMMAR_NONE)
        return err_set(err, ERR_ARGUMENT,
                       "ignore_eos cannot be combined with a grammar, which says where the answer "
                       "ends");
    return sampling_params_check(&options->sampling, vocab_size, err);
}

static bool allocate(struct request *request, const struct request_options *options,
                     struct err *err)
{
    const size_t n_ids = (size_t)request->n_prompt + request->max_tokens;
    request->ids = calloc(n_ids, sizeof(*request->ids));
    if (request->ids == NULL)
        return err_set(err, ERR_NO_MEMORY, "no memory for %zu tokens", n_ids);
    memcpy(request->ids, options->prompt, options->n_prompt * sizeof(*request->ids));
    request->n_ids = request->n_prompt;
    if (request->sampling.want_logprob || request->sampling.n_top > 0) {
        request->tokens_cap = request->max_tokens;
        const size_t bytes = sizeof(*request->view_tokens);
        request->mailbox.tokens = calloc(request->tokens_cap, bytes);
        request->view_tokens = calloc(request->tokens_cap, bytes);
        if (request->mailbox.tokens == NULL || request->view_tokens == NULL)
            return err_set(err, ERR_NO_MEMORY, "no memory for log-probabilities of %u tokens",
                           request->tokens_cap);
    }
    buf_init(&request->mailbox.text, TEXT_BYTES_CAP);
    buf_init(&request->view, TEXT_BYTES_CAP);
    buf_init(&request->piece, TEXT_BYTES_CAP);
    buf_reserve(&request->mailbox.text, TEXT_BYTES_FIRST);
    buf_reserve(&request->piece, PIECE_BYTES_FIRST);
    return true;
}

static void destroy(struct request *request)
{
    completion_release(&request->completion);
    mutex_release(&request->mailbox.mutex);
    buf_release(&request->mailbox.text);
    buf_release(&request->view);
    buf_release(&request->piece);
    free(request->mailbox.tokens);
    free(request->view_tokens);
    free(request->ids);
    free(request->grammar_text);
    free(request);
}

struct request *request_new(const struct request_options *options,
                            const struct tokenizer *tokenizer, uint32_t rows_cap,
                            uint32_t vocab_size, struct err *err)
{
    if (!check_options(options, rows_cap, vocab_size, err))
        return NULL;
    struct request *request = xcalloc(1, sizeof(*request));
    mutex_init(&request->mailbox.mutex);
    const uint32_t room = rows_cap - options->n_prompt;
    request->max_tokens =
        options->max_tokens > 0 && options->max_tokens < room ? options->max_tokens : room;
    request->n_prompt = options->n_prompt;
    request->submitted_ns = clock_ns();
    request->sampling = options->sampling;
    request->sampling.prompt_rows = options->n_prompt;
    const struct str grammar = options->sampling.grammar.text;
    if (grammar.size > 0) {
        request->grammar_text = xstrndup(grammar.data, grammar.size);
        request->sampling.grammar.text.data = request->grammar_text;
    }
    const size_t n_tokens = tokenizer_n_tokens(tokenizer);
    request->sampling.token_cap = n_tokens < vocab_size ? (uint32_t)n_tokens : 0;
    if (!options->has_seed)
        request->sampling.seed = random_seed(request);
    const struct completion_options completion = { .tokenizer = tokenizer,
                                                   .prompt = options->prompt,
                                                   .n_prompt = options->n_prompt,
                                                   .stops = options->stops,
                                                   .n_stops = options->n_stops,
                                                   .max_tokens = request->max_tokens,
                                                   .ignore_eos = options->ignore_eos,
                                                   .keep_special = options->keep_special };
    if (!completion_init(&request->completion, &completion, err) ||
        !allocate(request, options, err)) {
        destroy(request);
        return NULL;
    }
    request->n_owners = 2;
    return request;
}

void request_drop_owner(struct request *request)
{
    if (atomic_fetch_sub(&request->n_owners, 1) == 1)
        destroy(request);
}

void request_limit(struct request *request, uint32_t max_tokens)
{
    must(max_tokens > request->n_ids - request->n_prompt);
    if (max_tokens < request->max_tokens)
        request->max_tokens = request->completion.max_tokens = max_tokens;
}

/* Records the token for clients that want log-probabilities; its text is given out later. */
static void add_record(struct request *request, const struct sampled_token *sampled,
                       uint32_t text_first, uint32_t text_size)
{
    struct request_mailbox *mailbox = &request->mailbox;
    must(mailbox->n_tokens < request->tokens_cap);
    mailbox->tokens[mailbox->n_tokens++] = (struct request_token){ .sampled = *sampled,
                                                                   .text_first = text_first,
                                                                   .text_size = text_size };
}

/* Tokens are ready when all their text is out; at the end, when some of it is: the rest was cut off
 * by a stop text. */
static void ready_records(struct request_mailbox *mailbox, bool at_end)
{
    while (mailbox->n_ready < mailbox->n_tokens) {
        const struct request_token *token = &mailbox->tokens[mailbox->n_ready];
        const uint32_t needed = token->text_first + (at_end ? 0 : token->text_size);
        if (needed > mailbox->given_bytes ||
            (at_end && needed == mailbox->given_bytes && token->text_size > 0))
            break;
        mailbox->n_ready++;
    }
}

enum completion_state request_add_token(struct request *request,
                                        const struct sampled_token *sampled, uint64_t now_ns)
{
    struct completion *completion = &request->completion;
    struct request_mailbox *mailbox = &request->mailbox;
    request->ids[request->n_ids++] = sampled->token;
    request->last_token_ns = now_ns;
    if (request->first_token_ns == 0)
        request->first_token_ns = now_ns;

    const uint32_t text_first = completion->text_bytes;
    buf_clear(&request->piece);
    const enum completion_state state =
        completion_push(completion, sampled->token, &request->piece);
    mutex_lock(&mailbox->mutex);
    buf_add_str(&mailbox->text, buf_view(&request->piece));
    request->text_lost |= !buf_ok(&mailbox->text) || !buf_ok(&request->piece);
    mailbox->given_bytes = completion->given_bytes;
    if (request->tokens_cap > 0) {
        if (!completion->ended_without_text)
            add_record(request, sampled, text_first, completion->text_bytes - text_first);
        ready_records(mailbox, state != COMPLETION_GOES_ON);
    }
    mutex_unlock(&mailbox->mutex);
    return state;
}

static double milliseconds(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns == 0 || to_ns < from_ns ? 0.0 : (double)(to_ns - from_ns) / 1e6;
}

static struct request_usage usage_of(const struct request *request)
{
    return (struct request_usage){
        .prompt_rows = request->n_prompt,
        .generated = request->n_ids - request->n_prompt,
        .queue_ms = milliseconds(request->submitted_ns, request->admitted_ns),
        .prefill_ms = milliseconds(request->admitted_ns, request->first_token_ns),
        .decode_ms = milliseconds(request->first_token_ns, request->last_token_ns),
        .first_token_ms = milliseconds(request->submitted_ns, request->first_token_ns),
        .read_share = request->steps_ns > 0.0 ? request->limit_ns / request->steps_ns : 0.0,
    };
}

void request_end(struct request *request, enum request_event_kind kind, enum request_finish finish,
                 const struct err *err)
{
    struct request_mailbox *mailbox = &request->mailbox;
    mutex_lock(&mailbox->mutex);
    must(!mailbox->ended);
    mailbox->ended = true;
    mailbox->end =
        (struct request_event){ .kind = kind, .finish = finish, .usage = usage_of(request) };
    if (err != NULL)
        mailbox->end.err = *err;
    mutex_unlock(&mailbox->mutex);
    request_drop_owner(request);
}

/* Moves what has gathered to the client's side. */
static bool take_text(struct request *request, struct request_event *event)
{
    struct request_mailbox *mailbox = &request->mailbox;
    if (mailbox->text.size == 0 && mailbox->n_ready == 0)
        return false;
    buf_clear(&request->view);
    buf_add(&request->view, mailbox->text.data, mailbox->text.size);
    buf_clear(&mailbox->text);
    const uint32_t n_tokens = mailbox->n_ready;
    if (n_tokens > 0) {
        const size_t bytes = sizeof(*mailbox->tokens);
        memcpy(request->view_tokens, mailbox->tokens, n_tokens * bytes);
        mailbox->n_tokens -= n_tokens;
        mailbox->n_ready = 0;
        memmove(mailbox->tokens, mailbox->tokens + n_tokens, mailbox->n_tokens * bytes);
    }
    *event = (struct request_event){ .kind = REQUEST_TEXT,
                                     .text = buf_view(&request->view),
                                     .tokens = request->view_tokens,
                                     .n_tokens = n_tokens };
    return true;
}

bool request_poll(struct request *request, struct request_event *event)
{
    struct request_mailbox *mailbox = &request->mailbox;
    if (request->end_taken)
        return false;
    mutex_lock(&mailbox->mutex);
    bool found = take_text(request, event);
    if (!found && mailbox->ended) {
        *event = mailbox->end;
        request->end_taken = true;
        found = true;
    }
    mutex_unlock(&mailbox->mutex);
    return found;
}

void request_cancel(struct request *request)
{
    atomic_store(&request->cancelled, true);
    scheduler_wake(request->scheduler);
}

uint64_t request_seed(const struct request *request)
{
    return request->sampling.seed;
}

void request_free(struct request *request)
{
    if (request == NULL)
        return;
    mutex_lock(&request->mailbox.mutex);
    const bool ended = request->mailbox.ended;
    mutex_unlock(&request->mailbox.mutex);
    if (!ended)
        request_cancel(request);
    request_drop_owner(request);
}
