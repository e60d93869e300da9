/* An HTTP/1.1 server on one event loop: requests in, answers out, nothing about what they mean.
 *
 * The owner polls for events and answers exchanges; nothing here calls upward:
 *
 *     while (http_server_poll(server, &event))
 *         switch (event.kind) { case HTTP_EVENT_REQUEST: http_respond(event.exchange, ...); ...
 *
 * All functions belong to the thread that polls, except http_server_wake and http_server_stop.
 *
 * An exchange is one request with its answer. It is the owner's from HTTP_EVENT_REQUEST (or
 * HTTP_EVENT_REFUSED, for what was no acceptable request) until the owner ends it (http_respond,
 * http_stream_end, http_abort) or HTTP_EVENT_GONE has been delivered: after either, its pointer is
 * dead. One exchange a connection is open at a time; requests that are pipelined behind it wait and
 * are answered in order. While an answer is awaited or streamed the socket is still read, so a
 * client that leaves is noticed at once. A client that closes its sending half while its request is
 * with the owner counts as gone (what LLM clients mean by it).
 *
 * Strict: what two parsers could read differently is refused with 400 and the connection closed
 * (both Content-Length and Transfer-Encoding, several lengths, folded fields, blanks before the
 * colon, bare CR or LF, no Host or several). HTTP/1.0 is understood and closed after the answer. */
#ifndef CASCADIA_NET_HTTP_SERVER_H
#define CASCADIA_NET_HTTP_SERVER_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_LISTEN_BACKLOG 1024

struct http_server;   // owned by whoever opened it
struct http_exchange; // owned by the server, lent to its owner as said above

struct http_server_options {
    const char *host;           // numeric address, "localhost" or a name; NULL: 127.0.0.1
    uint16_t port;              // 0: any free one (http_server_port tells)
    uint32_t connections_cap;   // 0: 1024; one more is answered 503 and closed
    uint64_t body_bytes_cap;    // 0: 16 MiB; more is answered 413
    uint64_t bodies_bytes_cap;  // of all bodies held at once; 0: 256 MiB; more is answered 503
    uint64_t output_bytes_cap;  // 0: 256 KiB; a stream with more unsent bytes is dropped
    uint32_t header_timeout_ms; // 0: 10 s, from the first byte of a head to its end
    uint32_t body_timeout_ms;   // 0: 30 s without a byte of the body
    uint32_t idle_timeout_ms;   // 0: 75 s between requests
    uint32_t write_timeout_ms;  // 0: 30 s in which a client takes nothing of a finished answer
    uint32_t heartbeat_ms;      // 0: 10 s of silence before a stream's heartbeat is sent
};

enum http_event_kind {
    HTTP_EVENT_REQUEST, // exchange: a whole request has arrived
    HTTP_EVENT_REFUSED, // exchange: not a request; answer it with http_refusal's status and reason
    HTTP_EVENT_GONE,    // exchange: its client left, or reads too slowly; the pointer dies with the
                        // next poll
    HTTP_EVENT_WORK,    // work: has been run
    HTTP_EVENT_WAKE,    // http_server_wake was called, once or several times
    HTTP_EVENT_TIMER,   // the time given to http_server_timer is over
    HTTP_EVENT_STOP,    // http_server_stop was called or a signal came; n_stops counts them
};

/* A job for the worker pool. Embed it in your own struct; it must live until HTTP_EVENT_WORK. */
struct http_work {
    void (*run)(struct http_work *work); // on a thread of the pool
};

struct http_event {
    enum http_event_kind kind;
    struct http_exchange *exchange; // REQUEST, REFUSED, GONE
    struct http_work *work;         // WORK
    uint32_t n_stops;               // STOP: so far
};

/* Binds, listens. ERR_SYSTEM, ERR_NOT_FOUND (no such host). */
struct http_server *http_server_open(const struct http_server_options *options, struct err *err);
/* Drops what is still open, waits for jobs on the worker pool. NULL is fine. */
void http_server_close(struct http_server *server);

uint16_t http_server_port(const struct http_server *server);
uint32_t http_server_exchanges(const struct http_server *server);   // lent to the owner now
uint32_t http_server_connections(const struct http_server *server); // open now

/* Waits for the next event. False when the server has drained: it no longer listens and no
 * connection and no job is left. */
bool http_server_poll(struct http_server *server, struct http_event *event);

/* Any thread; http_server_stop also from a signal handler. */
void http_server_wake(struct http_server *server);
void http_server_stop(struct http_server *server);

/* From now on SIGINT and SIGTERM are HTTP_EVENT_STOP, until the server is closed. */
void http_server_catch_signals(struct http_server *server);

/* Stops listening, closes idle connections; the rest close after their answers. */
void http_server_drain(struct http_server *server);
/* One timer: fires once, `timeout_ms` from now; 0 disarms it. An earlier one is forgotten. */
void http_server_timer(struct http_server *server, uint64_t timeout_ms);
/* Runs work->run on a thread of libuv's pool. */
void http_server_work(struct http_server *server, struct http_work *work);

/* ---- the request of an exchange; views live as long as the exchange ---- */

struct str http_method(const struct http_exchange *exchange); // "POST"
struct str http_path(const struct http_exchange *exchange);   // up to '?', as sent
struct str http_query(const struct http_exchange *exchange);  // after '?', or empty
struct str http_body(const struct http_exchange *exchange);
struct str http_field(const struct http_exchange *exchange, const char *name); // STR_NONE if absent
/* The body without a copy: *out is released by the caller; http_body is empty then. */
void http_take_body(struct http_exchange *exchange, struct buf *out);
/* Of a refused exchange: 400, 408, 413, 414, 417, 431, 503 or 505, and a sentence. */
int http_refusal(const struct http_exchange *exchange, const char **reason);
void http_set_user(struct http_exchange *exchange, void *user); // the owner's, for its own use
void *http_user(const struct http_exchange *exchange);
struct http_server *http_exchange_server(const struct http_exchange *exchange);

/* ---- the answer ---- */

struct http_field {
    const char *name;
    const char *value; // no CR, LF
};

/* A whole answer; ends the exchange. HEAD gets the head alone. `type` is the Content-Type. */
void http_respond(struct http_exchange *exchange, int status, const char *type, struct str body,
                  const struct http_field *fields, size_t n_fields);

/* An answer in pieces, each sent at once. When nothing was written for heartbeat_ms, `heartbeat`
 * (a literal; may be STR_NONE) is sent. A stream whose client does not keep up is dropped, and
 * HTTP_EVENT_GONE follows. */
void http_stream_begin(struct http_exchange *exchange, int status, const char *type,
                       struct str heartbeat, const struct http_field *fields, size_t n_fields);
void http_stream_write(struct http_exchange *exchange, struct str bytes);
void http_stream_end(struct http_exchange *exchange); // ends the exchange
/* The connection is closed after this answer, whatever was said in its head. */
void http_close_after(struct http_exchange *exchange);
/* Ends the exchange without ending the answer: what was written is sent, then the connection is
 * closed, and the client can tell that the answer is cut. */
void http_abort(struct http_exchange *exchange);

#endif
