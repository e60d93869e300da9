/* The loop that joins HTTP and the scheduler. Every event is handled without waiting; what waits
 * (prompts on the pool, answers in the scheduler) comes back as an event.
 *
 * Stopping: the first stop closes the listener and idle connections and drains the scheduler, which
 * finishes or fails what runs within the time given; the answers of those are still sent. After
 * that time and a short grace the loop ends whatever is left, such as a client that does not read.
 * A second stop ends it at once. */
#include "server/server.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "server/server_internal.h"

/* How often waiting streams and the end of a drain are looked at. */
#define TICK_MS_CAP 1000u
/* For the last answers to leave, once the drain's time is over. */
#define DRAIN_GRACE_MS 2000u
#define HEARTBEAT_MS_DEFAULT 10000u
#define BODY_BYTES_CAP_DEFAULT (16u << 20)

struct server *server_open(const struct server_options *options, struct err *err)
{
    struct server *const server = xcalloc(1, sizeof *server);

    server->options = *options;
    if (server->options.heartbeat_ms == 0)
        server->options.heartbeat_ms = HEARTBEAT_MS_DEFAULT;
    if (server->options.body_bytes_cap == 0)
        server->options.body_bytes_cap = BODY_BYTES_CAP_DEFAULT;
    server->id_base = clock_ns() ^ ((uint64_t)clock_unix_seconds() << 32);
    server->http = http_server_open(
        &(struct http_server_options){ .host = options->host,
                                       .port = options->port,
                                       .body_bytes_cap = server->options.body_bytes_cap,
                                       .output_bytes_cap = options->output_bytes_cap,
                                       .heartbeat_ms = server->options.heartbeat_ms },
        err);
    if (server->http == NULL) {
        free(server);
        return NULL;
    }
    return server;
}

uint16_t server_port(const struct server *server)
{
    return http_server_port(server->http);
}

void server_wake(void *server)
{
    http_server_wake(((struct server *)server)->http);
}

void server_stop(struct server *server)
{
    http_server_stop(server->http);
}

static void refuse(const struct server *server, struct http_exchange *exchange)
{
    const char *reason;
    const int status = http_refusal(exchange, &reason);
    struct api_error error;

    api_error_set(&error, status == 503 ? ERR_BUSY : ERR_ARGUMENT, "", "%s", reason);
    if (status == 413)
        api_error_set(&error, ERR_ARGUMENT, "", "%s: at most %llu bytes (--max-body)", reason,
                      (unsigned long long)server->options.body_bytes_cap);
    error.status = status;
    api_error_respond(&error, exchange);
}

static void advance_all(struct server *server)
{
    struct task *next;

    for (struct task *task = server->tasks; task != NULL; task = next) {
        next = task->next;
        task_advance(task);
    }
}

static void tick(struct server *server)
{
    const uint64_t now_ms = clock_ms();

    for (struct task *task = server->tasks; task != NULL; task = task->next)
        task_tick(task, now_ms);
}

/* The timer runs only while there is something to look at. */
static void set_tick(struct server *server)
{
    const uint32_t heartbeat_ms = server->options.heartbeat_ms;

    if (server->tasks != NULL || server->draining)
        http_server_timer(server->http, heartbeat_ms < TICK_MS_CAP ? heartbeat_ms : TICK_MS_CAP);
    else
        http_server_timer(server->http, 0);
}

static void begin_drain(struct server *server)
{
    const uint64_t timeout_ms = server->options.drain_timeout_ms;

    log_info("http: shutting down; what runs has %.1f s to finish", (double)timeout_ms / 1000);
    server->draining = true;
    server->drain_end_ms = clock_ms() + timeout_ms + DRAIN_GRACE_MS;
    http_server_drain(server->http);
    scheduler_drain(server->scheduler, timeout_ms);
    set_tick(server);
}

/* False when the loop shall end at once. */
static bool handle(struct server *server, const struct http_event *event)
{
    const bool was_idle = server->tasks == NULL;

    switch (event->kind) {
    case HTTP_EVENT_REQUEST:
        routes_handle(server, event->exchange);
        break;
    case HTTP_EVENT_REFUSED:
        refuse(server, event->exchange);
        break;
    case HTTP_EVENT_GONE:
        task_client_gone(http_user(event->exchange));
        break;
    case HTTP_EVENT_WORK:
        task_prepared((struct task *)event->work);
        break;
    case HTTP_EVENT_WAKE:
        advance_all(server);
        break;
    case HTTP_EVENT_TIMER:
        tick(server);
        set_tick(server);
        return !server->draining || clock_ms() < server->drain_end_ms;
    case HTTP_EVENT_STOP:
        if (event->n_stops > 1)
            return false;
        begin_drain(server);
        break;
    }
    if (was_idle && server->tasks != NULL)
        set_tick(server);
    return true;
}

bool server_run(struct server *server, const struct server_model *model,
                struct scheduler *scheduler)
{
    struct http_event event = { 0 };
    uint32_t n_stops = 0;

    server->model = model;
    server->scheduler = scheduler;
    if (server->options.catch_signals)
        http_server_catch_signals(server->http);
    while (http_server_poll(server->http, &event)) {
        if (event.kind == HTTP_EVENT_STOP)
            n_stops = event.n_stops;
        if (!handle(server, &event))
            break;
    }
    return n_stops < 2;
}

/* Frees what is left of requests. Work that is with the pool is waited for. */
static void drop_tasks(struct server *server)
{
    struct http_event event;
    struct task *next;

    for (struct task *task = server->tasks; task != NULL; task = next) {
        next = task->next;
        if (task->exchange != NULL)
            http_abort(task->exchange);
        task_client_gone(task);
    }
    while (server->tasks != NULL && http_server_poll(server->http, &event)) {
        if (event.kind == HTTP_EVENT_WORK)
            task_prepared((struct task *)event.work);
        else if (event.kind == HTTP_EVENT_REQUEST || event.kind == HTTP_EVENT_REFUSED)
            http_abort(event.exchange);
    }
}

void server_close(struct server *server)
{
    if (server == NULL)
        return;
    drop_tasks(server);
    http_server_close(server->http);
    free(server);
}
