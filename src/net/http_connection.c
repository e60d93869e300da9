/* One client's socket: a small machine with the phases of enum http_phase.
 *
 *     IDLE -> HEAD -> BODY -> LENT -> STREAM -> FLUSH -> IDLE ...
 *
 * A request becomes an exchange that the owner answers; meanwhile reading goes on, into `input`, so
 * that pipelined requests wait there and an end of input is seen. After the answer has left, the
 * next request is taken from `input`. A refused request gets its answer too; then the sending half
 * is shut and input is thrown away for a moment, since closing a socket with unread input makes
 * the kernel reset it, and the client would lose the refusal.
 *
 * Reading stops when a request is delivered and starts again when the owner has seen it: an answer
 * given at once then precedes an end of input that is already waiting, and `printf ... | nc` works.
 *
 * One timer a connection: what it means depends on the phase. */
#include "net/http_internal.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buffer);

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct http_connection *const connection = handle->data;

    (void)suggested;
    *buffer = uv_buf_init(connection->server->read_buffer, HTTP_READ_BYTES);
}

static void set_reading(struct http_connection *connection, bool reading)
{
    if (connection->reading == reading || connection->phase == HTTP_PHASE_CLOSED)
        return;
    connection->reading = reading;
    if (reading)
        uv_read_start((uv_stream_t *)&connection->tcp, on_alloc, on_read);
    else
        uv_read_stop((uv_stream_t *)&connection->tcp);
}

void http_exchange_free(struct http_exchange *exchange)
{
    if (exchange == NULL)
        return;
    http_reader_release(&exchange->reader);
    free(exchange);
}

static bool is_lent(const struct http_connection *connection)
{
    return connection->phase == HTTP_PHASE_LENT || connection->phase == HTTP_PHASE_STREAM;
}

static void count_body(struct http_connection *connection, size_t body_bytes)
{
    struct http_server *const server = connection->server;

    server->bodies_bytes = server->bodies_bytes - connection->body_bytes + body_bytes;
    connection->body_bytes = body_bytes;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct http_connection *const connection = handle->data;
    struct http_server *const server = connection->server;

    if (--connection->handles_open > 0)
        return;
    buf_release(&connection->input);
    buf_release(&connection->pending);
    buf_release(&connection->writing);
    free(connection);
    server->n_connections--;
}

void http_connection_drop(struct http_connection *connection)
{
    struct http_server *const server = connection->server;
    struct http_exchange *const exchange = connection->exchange;

    if (connection->phase == HTTP_PHASE_CLOSED)
        return;
    count_body(connection, 0);
    if (is_lent(connection) && exchange->delivered) {
        exchange->connection = NULL;
        http_event_push(server,
                        (struct http_event){ .kind = HTTP_EVENT_GONE, .exchange = exchange });
    } else {
        if (is_lent(connection)) {
            http_event_forget(server, exchange);
            server->n_lent--;
        }
        http_exchange_free(exchange);
    }
    connection->exchange = NULL;
    connection->phase = HTTP_PHASE_CLOSED;
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        server->connections = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    uv_close((uv_handle_t *)&connection->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&connection->timer, on_handle_closed);
}

/* ---- requests ---- */

static void begin_request(struct http_connection *connection)
{
    struct http_server *const server = connection->server;
    struct http_exchange *const exchange = xcalloc(1, sizeof *exchange);

    exchange->server = server;
    exchange->connection = connection;
    http_reader_init(&exchange->reader, server->options.body_bytes_cap);
    connection->exchange = exchange;
    connection->phase = HTTP_PHASE_IDLE;
    http_connection_set_timer(connection, server->options.idle_timeout_ms);
}

/* Hands the exchange to the owner, as a request or as a refusal. */
static void lend(struct http_connection *connection, enum http_event_kind kind)
{
    struct http_exchange *const exchange = connection->exchange;

    exchange->keep_alive =
        kind == HTTP_EVENT_REQUEST && exchange->reader.keep_alive && !connection->server->draining;
    connection->phase = HTTP_PHASE_LENT;
    connection->server->n_lent++;
    http_connection_set_timer(connection, 0);
    set_reading(connection, false);
    http_event_push(connection->server, (struct http_event){ .kind = kind, .exchange = exchange });
}

static void refuse(struct http_connection *connection, int status, const char *reason)
{
    struct http_reader *const reader = &connection->exchange->reader;

    reader->state = HTTP_READER_BAD;
    reader->status = status;
    reader->reason = reason;
    lend(connection, HTTP_EVENT_REFUSED);
}

static void send_continue(struct http_connection *connection)
{
    connection->exchange->reader.expects_continue = false;
    buf_add_str(&connection->pending, STR("HTTP/1.1 100 Continue\r\n\r\n"));
    http_connection_flush(connection);
}

/* The reader has moved on: adjusts phase and timer to where it stands. */
static void follow_reader(struct http_connection *connection, bool more_input)
{
    struct http_server *const server = connection->server;
    struct http_reader *const reader = &connection->exchange->reader;

    count_body(connection, reader->body.size);
    if (reader->state == HTTP_READER_BAD) {
        lend(connection, HTTP_EVENT_REFUSED);
    } else if (reader->state == HTTP_READER_DONE) {
        lend(connection, HTTP_EVENT_REQUEST);
    } else if (server->bodies_bytes > server->options.bodies_bytes_cap) {
        refuse(connection, 503, "too many request bodies at once");
    } else if (reader->state == HTTP_READER_HEAD && connection->phase == HTTP_PHASE_IDLE) {
        connection->phase = HTTP_PHASE_HEAD;
        http_connection_set_timer(connection, server->options.header_timeout_ms);
    } else if (reader->state == HTTP_READER_BODY) {
        if (connection->phase != HTTP_PHASE_BODY)
            connection->body_started_ms = clock_ms();
        connection->phase = HTTP_PHASE_BODY;
        if (reader->expects_continue && !more_input)
            send_continue(connection);
        http_connection_set_timer(connection, server->options.body_timeout_ms);
    }
}

/* Bytes for the request being read; what lies behind it waits in `input`. */
static void consume(struct http_connection *connection, struct str in)
{
    while (in.size > 0 && connection->phase <= HTTP_PHASE_BODY) {
        const size_t used = http_reader_feed(&connection->exchange->reader, in);

        in = str_slice(in, used, in.size);
        follow_reader(connection, in.size > 0);
    }
    if (in.size == 0 || connection->phase > HTTP_PHASE_FLUSH)
        return;
    buf_add_str(&connection->input, in);
    if (connection->input.size > HTTP_INPUT_BYTES_CAP - HTTP_READ_BYTES)
        set_reading(connection, false); // until the next request is taken
}

void http_connection_read_on(struct http_connection *connection)
{
    if (connection->input.size <= HTTP_INPUT_BYTES_CAP - HTTP_READ_BYTES)
        set_reading(connection, true);
}

/* Takes the next request from what has been received already. */
static void next_request(struct http_connection *connection)
{
    struct buf waiting = connection->input;

    begin_request(connection);
    buf_init(&connection->input, HTTP_INPUT_BYTES_CAP);
    consume(connection, buf_view(&waiting));
    buf_release(&waiting);
    if (connection->phase > HTTP_PHASE_BODY)
        return;
    if (connection->end_of_input ||
        (connection->server->draining && connection->phase == HTTP_PHASE_IDLE))
        http_connection_drop(connection);
    else
        set_reading(connection, true);
}

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buffer)
{
    struct http_connection *const connection = stream->data;

    if (n_read == 0)
        return;
    if (n_read > 0) {
        if (connection->phase < HTTP_PHASE_LINGER)
            consume(connection, (struct str){ .data = buffer->base, .size = (size_t)n_read });
        return;
    }
    connection->end_of_input = true;
    if (n_read == UV_EOF && connection->phase == HTTP_PHASE_FLUSH)
        set_reading(connection, false); // the answer still goes out
    else
        http_connection_drop(connection);
}

/* ---- answers ---- */

size_t http_connection_unsent(const struct http_connection *connection)
{
    return connection->pending.size +
           (connection->write_in_flight
                ? uv_stream_get_write_queue_size((const uv_stream_t *)&connection->tcp)
                : 0);
}

static void on_shutdown(uv_shutdown_t *shutdown, int status)
{
    (void)shutdown;
    (void)status; // the linger timer or the client ends the connection
}

/* All bytes of a complete answer have left. */
static void after_flush(struct http_connection *connection)
{
    struct http_exchange *const exchange = connection->exchange;
    const bool refused = exchange->reader.state == HTTP_READER_BAD;
    const bool keep_alive = exchange->keep_alive && !connection->server->draining;

    http_exchange_free(exchange);
    connection->exchange = NULL;
    if (keep_alive) {
        next_request(connection);
    } else if (refused && !connection->end_of_input) {
        connection->phase = HTTP_PHASE_LINGER;
        http_connection_set_timer(connection, HTTP_LINGER_MS);
        set_reading(connection, true);
        uv_shutdown(&connection->shutdown, (uv_stream_t *)&connection->tcp, on_shutdown);
    } else {
        http_connection_drop(connection);
    }
}

static void on_written(uv_write_t *write, int status)
{
    struct http_connection *const connection = write->data;

    connection->write_in_flight = false;
    buf_clear(&connection->writing);
    if (status < 0)
        http_connection_drop(connection);
    else
        http_connection_flush(connection);
}

void http_connection_flush(struct http_connection *connection)
{
    uv_stream_t *const stream = (uv_stream_t *)&connection->tcp;
    struct buf *const pending = &connection->pending;

    if (connection->phase == HTTP_PHASE_CLOSED || connection->write_in_flight)
        return;
    if (pending->size > 0) {
        uv_buf_t bytes = uv_buf_init(pending->data, (unsigned int)pending->size);
        const int written = uv_try_write(stream, &bytes, 1);

        if (written < 0 && written != UV_EAGAIN) {
            http_connection_drop(connection);
            return;
        }
        buf_drop_front(pending, written > 0 ? (size_t)written : 0);
    }
    if (pending->size > 0) {
        const struct buf swapped = connection->writing;

        connection->writing = *pending;
        *pending = swapped;
        const uv_buf_t bytes =
            uv_buf_init(connection->writing.data, (unsigned int)connection->writing.size);
        connection->write.data = connection;
        connection->write_in_flight =
            uv_write(&connection->write, stream, &bytes, 1, on_written) == 0;
        if (!connection->write_in_flight)
            http_connection_drop(connection);
    } else if (connection->phase == HTTP_PHASE_FLUSH) {
        after_flush(connection);
    }
}

void http_connection_finish(struct http_connection *connection)
{
    connection->phase = HTTP_PHASE_FLUSH;
    count_body(connection, 0);
    connection->flush_bytes = http_connection_unsent(connection);
    http_connection_set_timer(connection, connection->server->options.write_timeout_ms);
    http_connection_flush(connection);
}

/* ---- time ---- */

static void heartbeat(struct http_connection *connection)
{
    struct http_exchange *const exchange = connection->exchange;

    if (exchange->heartbeat.size > 0)
        http_stream_write(exchange, exchange->heartbeat); // sets the timer again
}

static void on_timer(uv_timer_t *timer)
{
    struct http_connection *const connection = timer->data;
    const struct http_server_options *const options = &connection->server->options;

    switch (connection->phase) {
    case HTTP_PHASE_IDLE:
    case HTTP_PHASE_LINGER:
        http_connection_drop(connection);
        break;
    case HTTP_PHASE_HEAD:
        refuse(connection, 408, "the header took too long");
        break;
    case HTTP_PHASE_BODY:
        refuse(connection, 408, "the body took too long");
        break;
    case HTTP_PHASE_STREAM:
        heartbeat(connection);
        break;
    case HTTP_PHASE_FLUSH:
        if (http_connection_unsent(connection) >= connection->flush_bytes) {
            http_connection_drop(connection);
            break;
        }
        connection->flush_bytes = http_connection_unsent(connection);
        http_connection_set_timer(connection, options->write_timeout_ms);
        break;
    case HTTP_PHASE_LENT:
    case HTTP_PHASE_CLOSED:
        break;
    }
}

void http_connection_set_timer(struct http_connection *connection, uint64_t timeout_ms)
{
    if (connection->phase == HTTP_PHASE_CLOSED)
        return;
    if (connection->phase == HTTP_PHASE_BODY) {
        const uint64_t cap = HTTP_BODY_TIMEOUTS_CAP * timeout_ms;
        const uint64_t spent = clock_ms() - connection->body_started_ms;

        timeout_ms = spent >= cap ? 1 : timeout_ms < cap - spent ? timeout_ms : cap - spent;
    }
    if (timeout_ms == 0)
        uv_timer_stop(&connection->timer);
    else
        uv_timer_start(&connection->timer, on_timer, timeout_ms, 0);
}

/* ---- birth ---- */

void http_connection_accept(struct http_server *server)
{
    struct http_connection *const connection = xcalloc(1, sizeof *connection);

    connection->server = server;
    connection->handles_open = 2;
    uv_tcp_init(&server->loop, &connection->tcp);
    uv_timer_init(&server->loop, &connection->timer);
    connection->tcp.data = connection;
    connection->timer.data = connection;
    buf_init(&connection->input, HTTP_INPUT_BYTES_CAP);
    buf_init(&connection->pending, HTTP_ANSWER_BYTES_CAP);
    buf_init(&connection->writing, HTTP_ANSWER_BYTES_CAP);
    connection->next = server->connections;
    if (connection->next != NULL)
        connection->next->previous = connection;
    server->connections = connection;
    server->n_connections++;
    if (uv_accept((uv_stream_t *)&server->listener, (uv_stream_t *)&connection->tcp) != 0) {
        http_connection_drop(connection);
        return;
    }
    uv_tcp_nodelay(&connection->tcp, 1);
    uv_tcp_keepalive(&connection->tcp, 1, 60);
    begin_request(connection);
    if (server->n_connections > server->options.connections_cap)
        refuse(connection, 503, "too many connections");
    else
        set_reading(connection, true);
}
