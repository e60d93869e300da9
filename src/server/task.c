/* A request that generates, from its body to its answer.
 *
 *     pool: body -> JSON -> fields -> template -> ids        (task_start)
 *     loop: ids -> request_submit                            (task_prepared)
 *     loop: events -> pieces of a stream, or a whole answer  (task_advance)
 *
 * Parsing, rendering and tokenising may take long for a long prompt, so a thread of the pool does
 * them; the loop goes on meanwhile. Client and request end independently: a client that leaves
 * frees the request, which cancels it; the exchange of one that stays is answered exactly once.
 *
 * The head of a stream is held back until there is a token, so that what fails before it has an
 * HTTP status of its own. Only when that takes longer than a heartbeat does the stream begin
 * empty, because proxies cut connections that stay silent. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/memory.h"
#include "server/server_internal.h"
#include "server/sse.h"

#define ANSWER_BYTES_CAP (64u << 20)

/* ---- before the scheduler ---- */

/* On the pool's thread. */
static bool read_body(struct task *task, struct api_error *error)
{
    const struct server_model *const model = task->server->model;
    struct err err;

    task->document = json_parse(buf_view(&task->body), &err);
    if (task->document == NULL)
        return api_error_set(error, ERR_ARGUMENT, "", "the body is %s", err.text);
    if (json_kind(task->document) != JSON_KIND_OBJECT)
        return api_error_set(error, ERR_ARGUMENT, "", "the body must be a JSON object");
    return api_request_read(&task->api_request, task->document, model, error) &&
           task->api->read(task->document, model, &task->api_request, error);
}

static void prepare(struct http_work *work)
{
    struct task *const task = (struct task *)work;

    read_body(task, &task->error);
    buf_release(&task->body);
}

void task_start(struct server *server, const struct task_api *api, struct http_exchange *exchange)
{
    struct task *const task = xcalloc(1, sizeof *task);

    task->work.run = prepare;
    task->server = server;
    task->api = api;
    task->exchange = exchange;
    task->created = clock_unix_seconds();
    snprintf(task->id, sizeof task->id, "%s%016llx%08x", api->id_prefix,
             (unsigned long long)server->id_base, server->n_ids++);
    http_take_body(exchange, &task->body);
    http_set_user(exchange, task);
    api_request_init(&task->api_request, server->model);
    buf_init(&task->text, ANSWER_BYTES_CAP);
    task->next = server->tasks;
    if (task->next != NULL)
        task->next->previous = task;
    server->tasks = task;
    task->is_preparing = true;
    http_server_work(server->http, &task->work);
}

void task_free(struct task *task)
{
    must(!task->is_preparing && task->exchange == NULL);
    if (task->previous != NULL)
        task->previous->next = task->next;
    else
        task->server->tasks = task->next;
    if (task->next != NULL)
        task->next->previous = task->previous;
    request_free(task->request); // cancels it unless it has ended
    json_free(task->document);
    api_request_release(&task->api_request);
    buf_release(&task->body);
    buf_release(&task->text);
    logprob_list_release(&task->logprobs);
    free(task);
}

/* ---- answers ---- */

/* Up to the choice's text: what every answer and piece has in common. */
static void write_start(const struct task *task, struct buf *out)
{
    const struct server_model *const model = task->server->model;

    buf_add_text(out, "{\"id\":");
    json_write_string(out, str_from(task->id));
    buf_add_text(out, ",\"object\":");
    json_write_string(
        out, str_from(task->api_request.stream ? task->api->chunk_object : task->api->object));
    buf_printf(out, ",\"created\":%lld,\"model\":", (long long)task->created);
    json_write_string(out, str_from(model->id));
    buf_add_text(out, ",\"system_fingerprint\":");
    json_write_string(out, str_from(model->fingerprint));
}

/* ,"choices":[{...}]; finish NULL: the answer goes on. */
static void write_choice(struct task *task, struct str text, const char *finish, struct buf *out)
{
    const bool is_piece = task->api_request.stream;

    buf_add_text(out, ",\"choices\":[{\"index\":0,");
    task->api->write_text(text, is_piece, !task->has_content, out);
    buf_add_text(out, ",\"logprobs\":");
    if (task->api_request.wants_logprobs && (task->logprobs.n_tokens > 0 || !is_piece))
        logprob_list_take(&task->logprobs, out);
    else
        buf_add_text(out, "null");
    buf_add_text(out, ",\"finish_reason\":");
    if (finish != NULL)
        json_write_string(out, str_from(finish));
    else
        buf_add_text(out, "null");
    buf_add_text(out, "}]");
}

static void begin_stream(struct task *task)
{
    if (task->has_begun)
        return;
    task->has_begun = true;
    sse_begin(task->exchange);
}

/* A piece of a stream; the last one has the finish reason and the times. */
static void send_piece(struct task *task, struct str text, const struct request_event *end)
{
    struct buf out;

    begin_stream(task);
    buf_init(&out, ANSWER_BYTES_CAP);
    write_start(task, &out);
    write_choice(task, text, end != NULL ? request_finish_name(end->finish) : NULL, &out);
    if (task->api_request.include_usage)
        buf_add_text(&out, ",\"usage\":null");
    if (end != NULL) {
        buf_add_text(&out, ",\"timings\":");
        openai_write_timings(&end->usage, &out);
    }
    buf_add_char(&out, '}');
    task->has_content = true;
    sse_send(task->exchange, buf_view(&out));
    buf_release(&out);
}

/* With no choices: the event that include_usage asks for. */
static void send_usage(struct task *task, const struct request_usage *usage)
{
    struct buf out;

    buf_init(&out, ANSWER_BYTES_CAP);
    write_start(task, &out);
    buf_add_text(&out, ",\"choices\":[],\"usage\":");
    openai_write_usage(usage, &out);
    buf_add_char(&out, '}');
    sse_send(task->exchange, buf_view(&out));
    buf_release(&out);
}

static void respond_whole(struct task *task, const struct request_event *end)
{
    struct buf out;

    buf_init(&out, 2 * ANSWER_BYTES_CAP);
    write_start(task, &out);
    write_choice(task, buf_view(&task->text), request_finish_name(end->finish), &out);
    buf_add_text(&out, ",\"usage\":");
    openai_write_usage(&end->usage, &out);
    buf_add_text(&out, ",\"timings\":");
    openai_write_timings(&end->usage, &out);
    buf_add_char(&out, '}');
    json_respond(task->exchange, 200, &out);
    buf_release(&out);
}

static void finish(struct task *task, const struct request_event *end)
{
    if (task->api_request.stream) {
        send_piece(task, STR(""), end);
        if (task->api_request.include_usage)
            send_usage(task, &end->usage);
        sse_finish(task->exchange);
    } else {
        respond_whole(task, end);
    }
    task->exchange = NULL;
    task_free(task);
}

static void fail(struct task *task, const struct api_error *error)
{
    struct buf out;

    if (error->status == 500)
        log_warn("http: %s: %s", task->id, error->message);
    else // the client's affair, or the scheduler has said it once for all
        log_debug("http: %s: %d %s", task->id, error->status, error->message);
    if (task->has_begun) {
        buf_init(&out, sizeof *error * 8);
        api_error_write(error, &out);
        sse_fail(task->exchange, buf_view(&out));
        buf_release(&out);
    } else {
        api_error_respond(error, task->exchange);
    }
    task->exchange = NULL;
    task_free(task);
}

/* ---- with the scheduler ---- */

static bool check_length(struct task *task, struct api_error *error)
{
    const size_t n_prompt = task->api_request.prompt.n_ids;
    struct scheduler_stats stats;

    scheduler_stats(task->server->scheduler, &stats);
    if (n_prompt <= stats.prompt_rows_cap)
        return true;
    api_error_set(error, ERR_ARGUMENT, task->api->prompt_param,
                  "the prompt has %zu tokens; this model takes at most %u in a prompt (context "
                  "size %u)",
                  n_prompt, stats.prompt_rows_cap, task->server->model->ctx_size);
    error->code = "context_length_exceeded";
    return false;
}

static bool submit(struct task *task, struct api_error *error)
{
    struct request_options *const options = &task->api_request.options;
    struct err err;

    if (task->error.status != 0) {
        *error = task->error;
        return false;
    }
    if (!check_length(task, error))
        return false;
    options->prompt = (const int32_t *)task->api_request.prompt.ids;
    options->n_prompt = (uint32_t)task->api_request.prompt.n_ids;
    task->request = request_submit(task->server->scheduler, options, &err);
    if (task->request == NULL) {
        api_error_from(error, &err);
        return false;
    }
    task->submitted_ms = clock_ms();
    return true;
}

void task_prepared(struct task *task)
{
    struct api_error error;

    task->is_preparing = false;
    if (task->exchange == NULL) {
        task_free(task);
        return;
    }
    const bool good = submit(task, &error);
    json_free(task->document); // the request has its own copy of prompt and stops
    task->document = NULL;
    token_list_release(&task->api_request.prompt);
    if (!good) {
        fail(task, &error);
        return;
    }
    logprob_list_init(&task->logprobs, task->api->is_legacy,
                      task->api_request.options.sampling.n_top);
    const struct str echo = buf_view(&task->api_request.echo);
    if (echo.size > 0 && task->api_request.stream)
        send_piece(task, echo, NULL);
    else
        buf_add_str(&task->text, echo);
    task_advance(task);
}

static void take_text(struct task *task, const struct request_event *event)
{
    for (uint32_t i = 0; task->api_request.wants_logprobs && i < event->n_tokens; i++)
        logprob_list_add(&task->logprobs, task->server->model->tokenizer, &event->tokens[i]);
    if (!task->api_request.stream)
        buf_add_str(&task->text, event->text);
    else if (event->text.size > 0 || task->logprobs.n_tokens > 0)
        send_piece(task, event->text, NULL);
}

void task_advance(struct task *task)
{
    struct request_event event;
    struct api_error error;

    if (task->request == NULL)
        return;
    while (request_poll(task->request, &event)) {
        switch (event.kind) {
        case REQUEST_TEXT:
            take_text(task, &event);
            break;
        case REQUEST_DONE:
            finish(task, &event);
            return;
        case REQUEST_CANCELLED:
            api_error_set(&error, ERR_CANCELLED, "", "the request was cancelled");
            fail(task, &error);
            return;
        case REQUEST_FAILED:
            api_error_from(&error, &event.err);
            fail(task, &error);
            return;
        }
    }
}

void task_client_gone(struct task *task)
{
    task->exchange = NULL;
    if (!task->is_preparing)
        task_free(task);
}

void task_tick(struct task *task, uint64_t now_ms)
{
    const uint64_t patience_ms = task->server->options.heartbeat_ms;

    if (task->request != NULL && task->api_request.stream && !task->has_begun &&
        now_ms - task->submitted_ms >= patience_ms)
        begin_stream(task);
}
