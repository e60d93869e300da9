/* Answers, whole and in pieces.
 *
 * Every write goes to the socket at once if it takes it; what it does not take waits in `pending`.
 * A whole answer may wait as long as its reader makes progress (HTTP_PHASE_FLUSH has a timer). A
 * stream may have only output_bytes_cap unsent: a reader that is slower than the model is not
 * waited for, since what it does not read would fill memory and its request holds a slot. */
#include "net/http_internal.h"

#include "base/err.h"

/* The exchange is no longer the owner's. */
static void take_back(struct http_exchange *exchange)
{
    exchange->server->n_lent--;
}

/* True if there is nobody to answer; an ending call then also buries the exchange. */
static bool is_gone(struct http_exchange *exchange, bool ending)
{
    if (exchange->connection != NULL)
        return false;
    if (ending && !exchange->gone_delivered) {
        http_event_forget(exchange->server, exchange);
        take_back(exchange);
        http_exchange_free(exchange);
    }
    return true;
}

/* The phrases of RFC 9110 for what this program answers. */
static const char *status_phrase(int status)
{
    static const struct {
        int status;
        const char *phrase;
    } rows[] = {
        { 200, "OK" },
        { 204, "No Content" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 408, "Request Timeout" },
        { 413, "Content Too Large" },
        { 414, "URI Too Long" },
        { 415, "Unsupported Media Type" },
        { 417, "Expectation Failed" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 499, "Client Closed Request" },
        { 500, "Internal Server Error" },
        { 501, "Not Implemented" },
        { 502, "Bad Gateway" },
        { 503, "Service Unavailable" },
        { 504, "Gateway Timeout" },
        { 505, "HTTP Version Not Supported" },
        { 507, "Insufficient Storage" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].status == status)
            return rows[i].phrase;
    }
    return "Unknown";
}

static void add_head(struct http_exchange *exchange, int status, const char *type,
                     const struct http_field *fields, size_t n_fields)
{
    struct buf *const out = &exchange->connection->pending;

    exchange->keep_alive = exchange->keep_alive && !exchange->server->draining;
    buf_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\n", status,
               status_phrase(status), http_date(exchange->server), type);
    for (size_t i = 0; i < n_fields; i++) {
        must(strpbrk(fields[i].value, "\r\n") == NULL);
        buf_printf(out, "%s: %s\r\n", fields[i].name, fields[i].value);
    }
    if (!exchange->keep_alive)
        buf_add_text(out, "Connection: close\r\n");
    else if (exchange->reader.minor == 0)
        buf_add_text(out, "Connection: keep-alive\r\n");
}

void http_respond(struct http_exchange *exchange, int status, const char *type, struct str body,
                  const struct http_field *fields, size_t n_fields)
{
    struct http_connection *const connection = exchange->connection;

    if (is_gone(exchange, true))
        return;
    must(connection->phase == HTTP_PHASE_LENT);
    add_head(exchange, status, type, fields, n_fields);
    buf_printf(&connection->pending, "Content-Length: %zu\r\n\r\n", body.size);
    if (!str_is(exchange->reader.method, "HEAD"))
        buf_add_str(&connection->pending, body);
    take_back(exchange);
    connection->phase = HTTP_PHASE_FLUSH; // a drop has nobody to tell any more
    if (buf_ok(&connection->pending))
        http_connection_finish(connection);
    else
        http_connection_drop(connection);
}

void http_stream_begin(struct http_exchange *exchange, int status, const char *type,
                       struct str heartbeat, const struct http_field *fields, size_t n_fields)
{
    struct http_connection *const connection = exchange->connection;

    if (is_gone(exchange, false))
        return;
    must(connection->phase == HTTP_PHASE_LENT);
    exchange->chunked = exchange->reader.minor > 0;
    exchange->keep_alive = exchange->keep_alive && exchange->chunked;
    exchange->heartbeat = heartbeat;
    add_head(exchange, status, type, fields, n_fields);
    buf_add_text(&connection->pending,
                 exchange->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    connection->phase = HTTP_PHASE_STREAM;
    http_connection_set_timer(connection, exchange->server->options.heartbeat_ms);
    http_connection_flush(connection);
}

void http_stream_write(struct http_exchange *exchange, struct str bytes)
{
    struct http_connection *const connection = exchange->connection;

    if (is_gone(exchange, false) || bytes.size == 0)
        return;
    must(connection->phase == HTTP_PHASE_STREAM);
    if (exchange->chunked)
        buf_printf(&connection->pending, "%zx\r\n", bytes.size);
    buf_add_str(&connection->pending, bytes);
    if (exchange->chunked)
        buf_add_str(&connection->pending, STR("\r\n"));
    http_connection_set_timer(connection, exchange->server->options.heartbeat_ms);
    http_connection_flush(connection);
    if (exchange->connection != NULL &&
        http_connection_unsent(connection) > exchange->server->options.output_bytes_cap)
        http_connection_drop(connection);
}

static void end_stream(struct http_exchange *exchange, bool whole)
{
    struct http_connection *const connection = exchange->connection;

    if (is_gone(exchange, true))
        return;
    must(connection->phase == HTTP_PHASE_STREAM || !whole);
    if (whole && exchange->chunked)
        buf_add_str(&connection->pending, STR("0\r\n\r\n"));
    if (!whole)
        exchange->keep_alive = false;
    take_back(exchange);
    http_connection_finish(connection);
}

void http_stream_end(struct http_exchange *exchange)
{
    end_stream(exchange, true);
}

void http_close_after(struct http_exchange *exchange)
{
    exchange->keep_alive = false;
}

void http_abort(struct http_exchange *exchange)
{
    end_stream(exchange, false);
}

/* ---- the request ---- */

struct str http_method(const struct http_exchange *exchange)
{
    return exchange->reader.method;
}

struct str http_path(const struct http_exchange *exchange)
{
    return exchange->reader.path;
}

struct str http_query(const struct http_exchange *exchange)
{
    return exchange->reader.query;
}

struct str http_body(const struct http_exchange *exchange)
{
    return buf_view(&exchange->reader.body);
}

struct str http_field(const struct http_exchange *exchange, const char *name)
{
    return http_reader_find(&exchange->reader, name);
}

void http_take_body(struct http_exchange *exchange, struct buf *out)
{
    *out = exchange->reader.body;
    exchange->reader.body = (struct buf){ 0 };
}

int http_refusal(const struct http_exchange *exchange, const char **reason)
{
    *reason = exchange->reader.reason;
    return exchange->reader.status;
}

void http_set_user(struct http_exchange *exchange, void *user)
{
    exchange->user = user;
}

void *http_user(const struct http_exchange *exchange)
{
    return exchange->user;
}

struct http_server *http_exchange_server(const struct http_exchange *exchange)
{
    return exchange->server;
}
