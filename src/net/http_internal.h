/* What http_server, http_connection and http_answer share. Everything here belongs to the thread
 * that polls, except where a field says otherwise. */
#ifndef CASCADIA_NET_HTTP_INTERNAL_H
#define CASCADIA_NET_HTTP_INTERNAL_H

#include "base/buf.h"
#include "base/log.h"
#include "base/str.h"
#include "net/http_reader.h"
#include "net/http_server.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define HTTP_READ_BYTES 65536u             // one read from a socket
#define HTTP_INPUT_BYTES_CAP 131072u       // pipelined bytes that wait; then reading stops
#define HTTP_ANSWER_BYTES_CAP (256u << 20) // unsent bytes of one whole answer
#define HTTP_LINGER_MS 2000u               // reads on after a refusal, so that it is not reset away
#define HTTP_BODY_TIMEOUTS_CAP 20u         // a body may take so many body timeouts in all

enum http_phase {
    HTTP_PHASE_IDLE, // between requests
    HTTP_PHASE_HEAD,
    HTTP_PHASE_BODY,
    HTTP_PHASE_LENT,   // the exchange is the owner's, no answer begun
    HTTP_PHASE_STREAM, // the owner is answering in pieces
    HTTP_PHASE_FLUSH,  // the answer is complete, its bytes are not all sent
    HTTP_PHASE_LINGER, // the sending half is shut; what comes is thrown away
    HTTP_PHASE_CLOSED, // handles are closing
};

struct http_exchange {
    struct http_server *server;
    struct http_connection *connection; // NULL: the client is gone
    struct http_reader reader;
    void *user;
    bool chunked;        // pieces go out as chunks
    bool keep_alive;     // after this answer
    bool delivered;      // the owner has seen it
    bool gone_delivered; // the pointer dies with the next poll
    struct str heartbeat;
};

struct http_connection {
    struct http_server *server;
    struct http_connection *previous, *next; // all open ones
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_write_t write;
    uv_shutdown_t shutdown;
    enum http_phase phase;
    struct http_exchange *exchange; // being read or answered
    struct buf input;               // received, belongs to the next requests
    struct buf pending;             // to be written
    struct buf writing;             // libuv has it
    bool write_in_flight, reading, end_of_input;
    size_t flush_bytes; // unsent at the last look: no progress means a dead reader
    size_t body_bytes;  // this connection's part of server->bodies_bytes
    uint64_t body_started_ms;
    uint32_t handles_open;
};

struct http_job {
    uv_work_t request;
    struct http_server *server;
    struct http_work *work;
};

struct http_server {
    struct http_server_options options;
    uv_loop_t loop;
    uv_tcp_t listener;
    uv_async_t async;
    uv_timer_t timer;
    uv_signal_t signals[2];
    bool draining;
    uint16_t port;
    struct http_connection *connections;
    uint32_t n_connections, n_jobs, n_lent;
    uint64_t bodies_bytes;
    struct http_event *events; // ring
    size_t events_first, n_events, events_room;
    struct http_exchange *dying; // freed by the next poll
    _Atomic bool woken;          // any thread
    _Atomic uint32_t n_stops;    // any thread
    uint32_t n_stops_delivered;
    struct log_limit accept_limit;
    int64_t date_seconds; // the Date field below is of this second
    char date[40];
    char read_buffer[HTTP_READ_BYTES];
};

/* http_server.c */
void http_event_push(struct http_server *server, struct http_event event);
void http_event_forget(struct http_server *server, const struct http_exchange *exchange);
const char *http_date(struct http_server *server);

/* http_connection.c */
void http_connection_accept(struct http_server *server);
/* Drops the connection now; the owner of a lent exchange is told. */
void http_connection_drop(struct http_connection *connection);
/* Sends what is pending as far as the socket takes it. */
void http_connection_flush(struct http_connection *connection);
size_t http_connection_unsent(const struct http_connection *connection);
/* The exchange has been answered; goes on with the next request or closes. Frees the exchange. */
void http_connection_finish(struct http_connection *connection);
/* The owner has seen the request: reads on, to notice a client that leaves. */
void http_connection_read_on(struct http_connection *connection);
void http_connection_set_timer(struct http_connection *connection, uint64_t timeout_ms);
void http_exchange_free(struct http_exchange *exchange);

#endif
