/* The loop, the listener and the queue of events.
 *
 * libuv calls back; the callbacks only change connections and push events, and http_server_poll
 * hands the events out one by one. So the owner is never called from inside this folder, may
 * answer an exchange whenever it likes, and can be tested as a plain loop.
 *
 * The ring of events cannot grow without bound: a connection has at most two in it (a request, or
 * that it is gone), a job one, and wakes, stops and the timer are merged. */
#include "net/http_server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "net/http_internal.h"

static const int signal_numbers[] = { SIGINT, SIGTERM };

/* ---- events ---- */

void http_event_push(struct http_server *server, struct http_event event)
{
    if (server->n_events == server->events_room) {
        const size_t room = server->events_room == 0 ? 64 : server->events_room * 2;
        struct http_event *const events = xcalloc(room, sizeof *events);

        for (size_t i = 0; i < server->n_events; i++)
            events[i] = server->events[(server->events_first + i) % server->events_room];
        free(server->events);
        server->events = events;
        server->events_room = room;
        server->events_first = 0;
    }
    server->events[(server->events_first + server->n_events++) % server->events_room] = event;
    /* libuv runs timers before it waits for input: without this an event of a timer would wait for
     * the next input. */
    uv_stop(&server->loop);
}

/* Takes back events of the exchange, or those of the kind if it is NULL. */
static void forget(struct http_server *server, const struct http_exchange *exchange,
                   enum http_event_kind kind)
{
    size_t n_kept = 0;

    for (size_t i = 0; i < server->n_events; i++) {
        const struct http_event event =
            server->events[(server->events_first + i) % server->events_room];
        const bool forgotten = exchange != NULL ? event.exchange == exchange : event.kind == kind;

        if (!forgotten)
            server->events[(server->events_first + n_kept++) % server->events_room] = event;
    }
    server->n_events = n_kept;
}

void http_event_forget(struct http_server *server, const struct http_exchange *exchange)
{
    forget(server, exchange, HTTP_EVENT_GONE);
}

/* Marks what the owner now knows; a request's connection may read on. */
static bool event_pop(struct http_server *server, struct http_event *event)
{
    if (server->n_events == 0)
        return false;
    *event = server->events[server->events_first];
    server->events_first = (server->events_first + 1) % server->events_room;
    server->n_events--;
    if (event->kind == HTTP_EVENT_REQUEST || event->kind == HTTP_EVENT_REFUSED)
        event->exchange->delivered = true;
    if (event->kind == HTTP_EVENT_REQUEST) {
        http_connection_read_on(event->exchange->connection);
    } else if (event->kind == HTTP_EVENT_GONE) {
        event->exchange->gone_delivered = true;
        server->dying = event->exchange;
        server->n_lent--;
    }
    return true;
}

static void on_async(uv_async_t *async)
{
    struct http_server *const server = async->data;
    const uint32_t n_stops = atomic_load(&server->n_stops);

    if (n_stops != server->n_stops_delivered) {
        server->n_stops_delivered = n_stops;
        http_event_push(server, (struct http_event){ .kind = HTTP_EVENT_STOP, .n_stops = n_stops });
    }
    if (atomic_exchange(&server->woken, false))
        http_event_push(server, (struct http_event){ .kind = HTTP_EVENT_WAKE });
}

void http_server_wake(struct http_server *server)
{
    if (!atomic_exchange(&server->woken, true))
        uv_async_send(&server->async);
}

void http_server_stop(struct http_server *server)
{
    atomic_fetch_add(&server->n_stops, 1);
    uv_async_send(&server->async);
}

static void on_signal(uv_signal_t *handle, int number)
{
    (void)number;
    http_server_stop(handle->data);
}

void http_server_catch_signals(struct http_server *server)
{
    for (size_t i = 0; i < 2; i++)
        must(uv_signal_start(&server->signals[i], on_signal, signal_numbers[i]) == 0);
}

static void on_timer(uv_timer_t *timer)
{
    http_event_push(timer->data, (struct http_event){ .kind = HTTP_EVENT_TIMER });
}

void http_server_timer(struct http_server *server, uint64_t timeout_ms)
{
    forget(server, NULL, HTTP_EVENT_TIMER);
    if (timeout_ms == 0)
        uv_timer_stop(&server->timer);
    else
        uv_timer_start(&server->timer, on_timer, timeout_ms, 0);
}

/* ---- jobs ---- */

static void on_job(uv_work_t *request)
{
    struct http_job *const job = request->data;

    job->work->run(job->work);
}

static void on_job_done(uv_work_t *request, int status)
{
    struct http_job *const job = request->data;
    struct http_server *const server = job->server;

    (void)status; // jobs are never cancelled
    server->n_jobs--;
    http_event_push(server, (struct http_event){ .kind = HTTP_EVENT_WORK, .work = job->work });
    free(job);
}

void http_server_work(struct http_server *server, struct http_work *work)
{
    struct http_job *const job = xcalloc(1, sizeof *job);

    job->server = server;
    job->work = work;
    job->request.data = job;
    must(uv_queue_work(&server->loop, &job->request, on_job, on_job_done) == 0);
    server->n_jobs++;
}

/* ---- listening ---- */

static void on_connection(uv_stream_t *listener, int status)
{
    struct http_server *const server = listener->data;

    if (status == 0)
        http_connection_accept(server);
    else if (log_limit_pass(&server->accept_limit, 10000))
        log_warn("http: a connection could not be accepted: %s", uv_strerror(status));
}

static bool resolve(const char *host, uint16_t port, struct sockaddr_storage *out, struct err *err)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_PASSIVE };
    struct addrinfo *found = NULL;
    const int result = getaddrinfo(host, NULL, &hints, &found);

    if (result != 0)
        return err_set(err, ERR_NOT_FOUND, "host %s: %s", host, gai_strerror(result));
    const struct addrinfo *best = found; // an IPv4 address if there is one: what clients try
    for (const struct addrinfo *each = found; each != NULL; each = each->ai_next) {
        if (each->ai_family == AF_INET) {
            best = each;
            break;
        }
    }
    memcpy(out, best->ai_addr, best->ai_addrlen);
    freeaddrinfo(found);
    if (out->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)out)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)out)->sin_port = htons(port);
    return true;
}

static bool listen_on(struct http_server *server, struct err *err)
{
    struct sockaddr_storage address;
    int address_bytes = sizeof address;

    if (!resolve(server->options.host, server->options.port, &address, err))
        return false;
    int result = uv_tcp_bind(&server->listener, (const struct sockaddr *)&address, 0);
    if (result == 0)
        result = uv_listen((uv_stream_t *)&server->listener, HTTP_LISTEN_BACKLOG, on_connection);
    if (result == 0)
        result = uv_tcp_getsockname(&server->listener, (struct sockaddr *)&address, &address_bytes);
    if (result != 0)
        return err_set(err, ERR_SYSTEM, "cannot listen on %s port %u: %s", server->options.host,
                       server->options.port, uv_strerror(result));
    server->port =
        ntohs(address.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)&address)->sin6_port
                                            : ((const struct sockaddr_in *)&address)->sin_port);
    return true;
}

static void set_defaults(struct http_server_options *options)
{
    const struct http_server_options defaults = {
        .host = "127.0.0.1",
        .connections_cap = 1024,
        .body_bytes_cap = 16u << 20,
        .bodies_bytes_cap = 256u << 20,
        .output_bytes_cap = 256u << 10,
        .header_timeout_ms = 10000,
        .body_timeout_ms = 30000,
        .idle_timeout_ms = 75000,
        .write_timeout_ms = 30000,
        .heartbeat_ms = 10000,
    };

#define SET_DEFAULT(field)                                                                         \
    if (options->field == 0)                                                                       \
    options->field = defaults.field
    SET_DEFAULT(host);
    SET_DEFAULT(connections_cap);
    SET_DEFAULT(body_bytes_cap);
    SET_DEFAULT(bodies_bytes_cap);
    SET_DEFAULT(output_bytes_cap);
    SET_DEFAULT(header_timeout_ms);
    SET_DEFAULT(body_timeout_ms);
    SET_DEFAULT(idle_timeout_ms);
    SET_DEFAULT(write_timeout_ms);
    SET_DEFAULT(heartbeat_ms);
#undef SET_DEFAULT
}

struct http_server *http_server_open(const struct http_server_options *options, struct err *err)
{
    struct http_server *const server = xcalloc(1, sizeof *server);

    server->options = *options;
    set_defaults(&server->options);
    signal(SIGPIPE, SIG_IGN); // libuv writes without MSG_NOSIGNAL
    must(uv_loop_init(&server->loop) == 0);
    must(uv_tcp_init(&server->loop, &server->listener) == 0);
    must(uv_async_init(&server->loop, &server->async, on_async) == 0);
    must(uv_timer_init(&server->loop, &server->timer) == 0);
    server->listener.data = server;
    server->async.data = server;
    server->timer.data = server;
    for (size_t i = 0; i < 2; i++) {
        must(uv_signal_init(&server->loop, &server->signals[i]) == 0);
        server->signals[i].data = server;
    }
    if (!listen_on(server, err)) {
        http_server_close(server);
        return NULL;
    }
    return server;
}

uint16_t http_server_port(const struct http_server *server)
{
    return server->port;
}

uint32_t http_server_exchanges(const struct http_server *server)
{
    return server->n_lent;
}

uint32_t http_server_connections(const struct http_server *server)
{
    return server->n_connections;
}

/* ---- the loop ---- */

static void bury(struct http_server *server)
{
    http_exchange_free(server->dying);
    server->dying = NULL;
}

bool http_server_poll(struct http_server *server, struct http_event *event)
{
    bury(server);
    for (;;) {
        if (event_pop(server, event))
            return true;
        if (server->draining && server->n_connections == 0 && server->n_jobs == 0)
            return false;
        uv_run(&server->loop, UV_RUN_ONCE);
    }
}

static void stop_listening(struct http_server *server)
{
    if (!uv_is_closing((uv_handle_t *)&server->listener))
        uv_close((uv_handle_t *)&server->listener, NULL);
}

void http_server_drain(struct http_server *server)
{
    struct http_connection *next;

    server->draining = true;
    stop_listening(server);
    for (struct http_connection *each = server->connections; each != NULL; each = next) {
        next = each->next;
        if (each->phase == HTTP_PHASE_IDLE)
            http_connection_drop(each);
    }
}

void http_server_close(struct http_server *server)
{
    if (server == NULL)
        return;
    bury(server);
    stop_listening(server);
    while (server->connections != NULL)
        http_connection_drop(server->connections);
    uv_close((uv_handle_t *)&server->async, NULL);
    uv_close((uv_handle_t *)&server->timer, NULL);
    for (size_t i = 0; i < 2; i++)
        uv_close((uv_handle_t *)&server->signals[i], NULL);
    while (uv_loop_close(&server->loop) == UV_EBUSY) // handles that close, jobs that still run
        uv_run(&server->loop, UV_RUN_DEFAULT);
    for (size_t i = 0; i < server->n_events; i++) {
        const struct http_event *const event =
            &server->events[(server->events_first + i) % server->events_room];

        if (event->kind == HTTP_EVENT_GONE)
            http_exchange_free(event->exchange);
    }
    free(server->events);
    free(server);
}

const char *http_date(struct http_server *server)
{
    const int64_t now = clock_unix_seconds();

    if (now != server->date_seconds) {
        const time_t seconds = (time_t)now;
        struct tm utc;

        /* The names are English in every locale that this program sets: none but "C". */
        if (gmtime_r(&seconds, &utc) == NULL ||
            strftime(server->date, sizeof server->date, "%a, %d %b %Y %H:%M:%S GMT", &utc) == 0)
            server->date[0] = '\0';
        server->date_seconds = now;
    }
    return server->date;
}
