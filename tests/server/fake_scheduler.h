/* A scheduler that plays the prompt's script, so that the API can be tested without a model and
 * with every kind of end. Include it in one test program: its functions take the place of
 * generate/scheduler.c's.
 *
 * A script is what stands behind the last '>' of the prompt (mark ids above 255 are left out),
 * cut at ';':
 *     say TEXT    a piece of answer (with want_logprob a token of each byte)
 *     stop        the end, by a stop       length   the end, by the length
 *     lost        failure: ERR_PEER_LOST   hang     nothing more, until it is freed
 * A script that begins with "busy" is refused with ERR_BUSY. */
#ifndef CASCADIA_TESTS_SERVER_FAKE_SCHEDULER_H
#define CASCADIA_TESTS_SERVER_FAKE_SCHEDULER_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/memory.h"
#include "generate/scheduler.h"
#include "server/server.h"

#define FAKE_PROMPT_ROWS_CAP 1000u
#define FAKE_EVENTS_CAP 64

struct fake_event {
    struct request_event event;
    char text[256];
    struct request_token tokens[256];
};

struct request {
    struct scheduler *scheduler;
    struct fake_event *events; // [FAKE_EVENTS_CAP]
    uint32_t n_events, n_polled;
    bool ended;
};

/* What the server asked for last, and what became of it. The server's thread writes; a test reads
 * when the answer is there. */
struct scheduler {
    struct server *server; // woken after a submit
    struct request_options last;
    char stops[4][64];
    char prompt[4096];
    _Atomic bool ready;
    _Atomic uint32_t n_live;      // requests that are not freed
    _Atomic uint32_t n_cancelled; // freed before their end
    _Atomic uint64_t drain_timeout_ms;
};

static void fake_add_tokens(struct fake_event *item, uint32_t text_first)
{
    item->event.tokens = item->tokens;
    for (size_t i = 0; i < item->event.text.size; i++) {
        struct request_token *const token = &item->tokens[item->event.n_tokens++];

        token->sampled = (struct sampled_token){ .token = (unsigned char)item->text[i],
                                                 .logprob = -0.5f,
                                                 .n_top = 2,
                                                 .top_tokens = { 'a', 0xC3 },
                                                 .top_logprobs = { -0.25f, -1.5f } };
        token->text_first = text_first + (uint32_t)i;
        token->text_size = 1;
    }
}

static void fake_play(struct request *request, const struct request_options *options,
                      struct str script)
{
    const struct request_usage usage = { .prompt_rows = options->n_prompt,
                                         .generated = 5,
                                         .queue_ms = 1,
                                         .prefill_ms = 100,
                                         .decode_ms = 200,
                                         .first_token_ms = 101,
                                         .read_share = 0.75 };
    uint32_t text_size = 0;
    struct str line;

    while (str_split(&script, ';', &line) && request->n_events < FAKE_EVENTS_CAP) {
        struct fake_event *const item = &request->events[request->n_events];

        item->event.usage = usage;
        if (str_starts(line, STR("say "))) {
            const struct str text = str_slice(line, 4, line.size);

            memcpy(item->text, text.data, text.size);
            item->event.kind = REQUEST_TEXT;
            item->event.text = (struct str){ .data = item->text, .size = text.size };
            if (options->sampling.want_logprob)
                fake_add_tokens(item, text_size);
            text_size += (uint32_t)text.size;
        } else if (str_is(line, "stop") || str_is(line, "length")) {
            item->event.kind = REQUEST_DONE;
            item->event.finish = str_is(line, "stop") ? REQUEST_FINISH_STOP : REQUEST_FINISH_LENGTH;
        } else if (str_is(line, "lost")) {
            item->event.kind = REQUEST_FAILED;
            err_set(&item->event.err, ERR_PEER_LOST, "stage 1 is lost");
        } else {
            return;
        }
        request->n_events++;
    }
}

struct request *request_submit(struct scheduler *scheduler, const struct request_options *options,
                               struct err *err)
{
    size_t size = 0, script = 0;

    scheduler->last = *options;
    scheduler->last.prompt = NULL; // borrowed for the call
    scheduler->last.stops = NULL;
    for (uint32_t i = 0; i < options->n_stops; i++)
        snprintf(scheduler->stops[i], sizeof scheduler->stops[i], "%.*s",
                 STR_ARG(options->stops[i]));
    for (uint32_t i = 0; i < options->n_prompt && size < sizeof scheduler->prompt - 1; i++) {
        if (options->prompt[i] < 256)
            scheduler->prompt[size++] = (char)options->prompt[i];
    }
    scheduler->prompt[size] = '\0';
    for (size_t i = 0; i < size; i++)
        script = scheduler->prompt[i] == '>' ? i + 1 : script;
    const struct str text = { .data = scheduler->prompt + script, .size = size - script };
    if (str_starts(text, STR("busy"))) {
        err_set(err, ERR_BUSY, "the queue is full");
        return NULL;
    }
    struct request *const request = xcalloc(1, sizeof *request);
    request->scheduler = scheduler;
    request->events = xcalloc(FAKE_EVENTS_CAP, sizeof *request->events);
    fake_play(request, options, text);
    atomic_fetch_add(&scheduler->n_live, 1);
    server_wake(scheduler->server);
    return request;
}

bool request_poll(struct request *request, struct request_event *event)
{
    if (request->n_polled == request->n_events)
        return false;
    *event = request->events[request->n_polled++].event;
    request->ended = event->kind != REQUEST_TEXT;
    return true;
}

void request_free(struct request *request)
{
    if (request == NULL)
        return;
    if (!request->ended)
        atomic_fetch_add(&request->scheduler->n_cancelled, 1);
    atomic_fetch_sub(&request->scheduler->n_live, 1);
    free(request->events);
    free(request);
}

const char *request_finish_name(enum request_finish finish)
{
    return finish == REQUEST_FINISH_STOP ? "stop" : "length";
}

bool scheduler_ready(const struct scheduler *scheduler)
{
    return atomic_load(&scheduler->ready);
}

void scheduler_drain(struct scheduler *scheduler, uint64_t timeout_ms)
{
    atomic_store(&scheduler->drain_timeout_ms, timeout_ms);
}

void scheduler_stats(const struct scheduler *scheduler, struct scheduler_stats *out)
{
    *out = (struct scheduler_stats){ .running = atomic_load(&scheduler->n_live),
                                     .pages_total = 8,
                                     .failed_total = 3,
                                     .read_share = 0.5,
                                     .prompt_rows_cap = FAKE_PROMPT_ROWS_CAP };
}

void scheduler_describe(const struct scheduler *scheduler, struct buf *out)
{
    (void)scheduler;
    buf_add_text(out, "{\"state\":\"ready\"}");
}

#endif
