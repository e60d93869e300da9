/* Server and clients in one thread: clients are plain sockets whose bytes wait in the kernel while
 * the server is polled, so every order of events is the test's choice and nothing sleeps. */
#include "net/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

#define GET "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

static struct http_server *open_server(struct http_server_options options)
{
    struct err err = { 0 };
    struct http_server *const server = http_server_open(&options, &err);

    if (server == NULL)
        fail_msg("%s", err.text);
    return server;
}

static int connect_to(const struct http_server *server)
{
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_port = htons(http_server_port(server)),
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const struct timeval patience = { .tv_sec = 5 };
    const int client = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(client >= 0);
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(client, (const struct sockaddr *)&address, sizeof address), 0);
    return client;
}

static void send_text(int client, const char *text)
{
    assert_int_equal(send(client, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Reads until `needle` has come; false at the end of input, a reset, or after 5 s. */
static bool receive_until(int client, struct buf *in, const char *needle)
{
    char piece[65536];

    while (str_find(buf_view(in), str_from(needle)) == SIZE_MAX) {
        const ssize_t n = recv(client, piece, sizeof piece, 0);

        if (n <= 0)
            return false;
        buf_add(in, piece, (size_t)n);
    }
    return true;
}

static void assert_receives(int client, const char *needle)
{
    struct buf in;

    buf_init(&in, 1u << 20);
    if (!receive_until(client, &in, needle))
        fail_msg("no \"%s\" in \"%s\"", needle, in.data ? in.data : "");
    buf_release(&in);
}

static bool at_end(int client)
{
    char byte;

    return recv(client, &byte, 1, 0) == 0;
}

/* Polls until an event of that kind; any other fails the test. */
static struct http_event expect_event(struct http_server *server, enum http_event_kind kind)
{
    struct http_event event;

    assert_true(http_server_poll(server, &event));
    assert_int_equal(event.kind, kind);
    return event;
}

/* Lets the loop turn for a while without expecting anything. */
static void turn(struct http_server *server, uint64_t time_ms)
{
    http_server_timer(server, time_ms);
    expect_event(server, HTTP_EVENT_TIMER);
}

static void respond_text(struct http_exchange *exchange, const char *text)
{
    http_respond(exchange, 200, "text/plain", str_from(text), NULL, 0);
}

/* Serves until drained, answering nothing. */
static void close_server(struct http_server *server)
{
    http_server_close(server);
}

static void test_answers_and_keeps_alive(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){ 0 });
    const int client = connect_to(server);
    const struct http_field fields[] = { { "X-Answer", "42" } };
    struct buf in;
    (void)state;

    buf_init(&in, 1u << 20);
    for (int i = 0; i < 3; i++) {
        send_text(client, "POST /p?q=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab");
        const struct http_event event = expect_event(server, HTTP_EVENT_REQUEST);

        assert_true(str_is(http_method(event.exchange), "POST"));
        assert_true(str_is(http_path(event.exchange), "/p"));
        assert_true(str_is(http_query(event.exchange), "q=1"));
        assert_true(str_is(http_body(event.exchange), "ab"));
        assert_true(str_is(http_field(event.exchange, "host"), "h"));
        assert_int_equal(http_server_exchanges(server), 1);
        http_respond(event.exchange, 404, "text/plain", STR("body"), fields, 1);
        assert_int_equal(http_server_exchanges(server), 0);
        assert_true(receive_until(client, &in, "\r\n\r\nbody"));
        assert_true(str_starts(buf_view(&in), STR("HTTP/1.1 404 Not Found\r\n")));
        assert_true(str_find(buf_view(&in), STR("\r\nContent-Length: 4\r\n")) != SIZE_MAX);
        assert_true(str_find(buf_view(&in), STR("\r\nX-Answer: 42\r\n")) != SIZE_MAX);
        assert_true(str_find(buf_view(&in), STR(" GMT\r\n")) != SIZE_MAX);
        assert_true(str_find(buf_view(&in), STR("close")) == SIZE_MAX);
        buf_clear(&in);
    }
    assert_int_equal(http_server_connections(server), 1);
    buf_release(&in);
    close(client);
    close_server(server);
}

static void test_head_and_http_1_0(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){ 0 });
    int client = connect_to(server);
    struct buf in;
    (void)state;

    buf_init(&in, 1u << 20);
    send_text(client, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n" GET);
    respond_text(expect_event(server, HTTP_EVENT_REQUEST).exchange, "first");
    respond_text(expect_event(server, HTTP_EVENT_REQUEST).exchange, "second");
    assert_true(receive_until(client, &in, "second"));
    assert_true(str_find(buf_view(&in), STR("Content-Length: 5\r\n\r\nHTTP/1.1")) != SIZE_MAX);
    close(client);

    client = connect_to(server);
    buf_clear(&in);
    send_text(client, "GET / HTTP/1.0\r\n\r\n");
    struct http_exchange *exchange = expect_event(server, HTTP_EVENT_REQUEST).exchange;
    http_stream_begin(exchange, 200, "text/plain", STR_NONE, NULL, 0);
    http_stream_write(exchange, STR("abc"));
    http_stream_end(exchange);
    assert_true(receive_until(client, &in, "\r\n\r\nabc"));
    assert_true(str_find(buf_view(&in), STR("Connection: close\r\n")) != SIZE_MAX);
    assert_true(str_find(buf_view(&in), STR("chunked")) == SIZE_MAX);
    assert_true(at_end(client));
    close(client);
    buf_release(&in);
    close_server(server);
}

static void test_pipelined_requests_are_answered_in_order(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){ 0 });
    const int client = connect_to(server);
    struct buf in;
    (void)state;

    buf_init(&in, 1u << 20);
    send_text(client,
              "POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n1"
              "POST /2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
              "1\r\n2\r\n0\r\n\r\nGET /3 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" GET);
    struct http_exchange *exchange = expect_event(server, HTTP_EVENT_REQUEST).exchange;
    turn(server, 1); // the second is not offered before the first is answered
    assert_true(str_is(http_body(exchange), "1"));
    respond_text(exchange, "one");
    exchange = expect_event(server, HTTP_EVENT_REQUEST).exchange;
    assert_true(str_is(http_path(exchange), "/2"));
    assert_true(str_is(http_body(exchange), "2"));
    http_stream_begin(exchange, 200, "text/plain", STR_NONE, NULL, 0);
    http_stream_write(exchange, STR("two"));
    http_stream_end(exchange);
    exchange = expect_event(server, HTTP_EVENT_REQUEST).exchange;
    assert_true(str_is(http_path(exchange), "/3"));
    respond_text(exchange, "three");
    assert_true(receive_until(client, &in, "three"));
    const size_t one = str_find(buf_view(&in), STR("one"));
    const size_t two = str_find(buf_view(&in), STR("3\r\ntwo\r\n0\r\n\r\n"));
    assert_true(one < two && two != SIZE_MAX);
    turn(server, 1); // behind "close" nothing is read
    assert_int_equal(http_server_connections(server), 0);
    buf_release(&in);
    close(client);
    close_server(server);
}

static void test_a_flood_of_pipelined_requests_is_bounded(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){ 0 });
    const int client = connect_to(server);
    const int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    size_t n_sent = 0, n_idle = 0, n_answers = 0;
    struct http_exchange *lent = NULL;
    struct http_event event;
    struct buf flood;
    (void)state;

    buf_init(&flood, 1u << 20);
    for (int i = 0; i < 2000; i++)
        buf_add_text(&flood, GET);
    while (n_idle < 20) { // the server's input is full, then the kernel's buffers are
        const ssize_t n =
            send(client, flood.data + n_sent % flood.size, flood.size - n_sent % flood.size, flags);

        n_sent += n > 0 ? (size_t)n : 0;
        n_idle = n > 0 ? 0 : n_idle + 1;
        http_server_timer(server, 1);
        assert_true(http_server_poll(server, &event));
        if (event.kind == HTTP_EVENT_REQUEST)
            lent = event.exchange;
        assert_true(n_sent < (64u << 20));
    }
    assert_int_equal(http_server_exchanges(server), 1);
    close(client);
    respond_text(lent, "x");
    for (;;) { // what had arrived may be served, no more
        http_server_timer(server, 100);
        assert_true(http_server_poll(server, &event));
        if (event.kind == HTTP_EVENT_TIMER)
            break;
        assert_int_equal(event.kind, HTTP_EVENT_REQUEST);
        respond_text(event.exchange, "x");
        assert_true(++n_answers < 100000);
    }
    assert_int_equal(http_server_connections(server), 0);
    buf_release(&flood);
    close_server(server);
}

static void test_a_stream_is_sent_piece_by_piece(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){ 0 });
    const int client = connect_to(server);
    (void)state;

    send_text(client, GET);
    struct http_exchange *const exchange = expect_event(server, HTTP_EVENT_REQUEST).exchange;
    http_stream_begin(exchange, 200, "text/event-stream", STR_NONE, NULL, 0);
    assert_receives(client, "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 3; i++) { // each is there without any turn of the loop
        http_stream_write(exchange, STR("0123456789abcdef"));
        assert_receives(client, "10\r\n0123456789abcdef\r\n");
    }
    http_stream_end(exchange);
    assert_receives(client, "0\r\n\r\n");
    send_text(client, GET);
    respond_text(expect_event(server, HTTP_EVENT_REQUEST).exchange, "next");
    assert_receives(client, "next");
    close(client);
    close_server(server);
}

static void test_a_leaving_client_is_noticed(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){ 0 });
    const struct linger reset = { .l_onoff = 1, .l_linger = 0 };
    int marker;
    (void)state;

    for (int i = 0; i < 4; i++) { // waiting or streaming, closed or reset
        const int client = connect_to(server);

        send_text(client, GET);
        struct http_exchange *const exchange = expect_event(server, HTTP_EVENT_REQUEST).exchange;
        http_set_user(exchange, &marker);
        if (i & 1)
            http_stream_begin(exchange, 200, "text/plain", STR_NONE, NULL, 0);
        turn(server, 1);
        if (i & 2)
            setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(client);
        const uint64_t closed_ms = clock_ms();
        const struct http_event event = expect_event(server, HTTP_EVENT_GONE);
        assert_ptr_equal(event.exchange, exchange);
        assert_ptr_equal(http_user(event.exchange), &marker);
        assert_true(clock_ms() - closed_ms < 1000);
        http_stream_write(exchange, STR("into the void")); // allowed until the next poll
        assert_int_equal(http_server_exchanges(server), 0);
    }
    close_server(server);
}

static void test_an_answer_may_cross_a_leaving_client(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){ 0 });
    const int first = connect_to(server), second = connect_to(server);
    (void)state;

    send_text(first, GET);
    struct http_exchange *const exchange = expect_event(server, HTTP_EVENT_REQUEST).exchange;
    send_text(second, GET);
    close(first);
    /* Both happen in one turn: the owner hears of the second request and answers the first, whose
     * end waits in the queue or is still to come. */
    struct http_event event;
    assert_true(http_server_poll(server, &event));
    if (event.kind == HTTP_EVENT_REQUEST) {
        respond_text(exchange, "nobody");
        respond_text(event.exchange, "second");
    } else {
        assert_int_equal(event.kind, HTTP_EVENT_GONE);
        respond_text(expect_event(server, HTTP_EVENT_REQUEST).exchange, "second");
    }
    turn(server, 5); // no event for the first any more
    assert_receives(second, "second");
    close(second);
    close_server(server);
}

static void test_half_closed_clients_get_immediate_answers(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){ 0 });
    const int client = connect_to(server);
    struct buf in;
    (void)state;

    buf_init(&in, 1u << 20);
    send_text(client, GET GET);
    shutdown(client, SHUT_WR);
    respond_text(expect_event(server, HTTP_EVENT_REQUEST).exchange, "one");
    respond_text(expect_event(server, HTTP_EVENT_REQUEST).exchange, "two");
    turn(server, 1);
    assert_true(receive_until(client, &in, "two"));
    assert_true(str_find(buf_view(&in), STR("one")) != SIZE_MAX);
    assert_true(at_end(client));
    buf_release(&in);
    close(client);
    close_server(server);
}

static void test_a_slow_reader_is_dropped(void **state)
{
    const size_t cap = 100000;
    struct http_server *const server =
        open_server((struct http_server_options){ .output_bytes_cap = cap });
    const int client = connect_to(server);
    char piece[1000];
    size_t n_pieces = 0;
    struct http_event event = { 0 };
    (void)state;

    memset(piece, 'x', sizeof piece);
    send_text(client, GET);
    struct http_exchange *const exchange = expect_event(server, HTTP_EVENT_REQUEST).exchange;
    http_stream_begin(exchange, 200, "text/plain", STR_NONE, NULL, 0);
    while (event.kind != HTTP_EVENT_GONE) {
        http_stream_write(exchange, (struct str){ .data = piece, .size = sizeof piece });
        n_pieces++;
        http_server_wake(server);
        assert_true(http_server_poll(server, &event));
        assert_true(n_pieces < 50000);
    }
    assert_true(n_pieces * sizeof piece > cap); // not before
    close(client);
    close_server(server);
}

static void test_a_big_answer_reaches_a_slow_reader_that_reads(void **state)
{
    const size_t size = 8u << 20;
    struct http_server *const server =
        open_server((struct http_server_options){ .output_bytes_cap = 1000 });
    const int client = connect_to(server);
    char *const body = xmalloc(size);
    char *const piece = xmalloc(65536);
    size_t n_received = 0;
    (void)state;

    memset(body, 'y', size);
    send_text(client, GET);
    struct http_exchange *const exchange = expect_event(server, HTTP_EVENT_REQUEST).exchange;
    http_respond(exchange, 200, "text/plain", (struct str){ .data = body, .size = size }, NULL, 0);
    while (n_received < size) {
        const ssize_t n = recv(client, piece, 65536, MSG_DONTWAIT);

        assert_true(n > 0 || errno == EAGAIN);
        n_received += n > 0 ? (size_t)n : 0;
        if (n < 0)
            turn(server, 1);
    }
    free(piece);
    free(body);
    close(client);
    close_server(server);
}

static void test_a_reader_that_stops_is_dropped(void **state)
{
    const size_t size = 8u << 20;
    struct http_server *const server =
        open_server((struct http_server_options){ .write_timeout_ms = 20 });
    const int client = connect_to(server);
    char *const body = xcalloc(1, size);
    (void)state;

    send_text(client, GET);
    struct http_exchange *const exchange = expect_event(server, HTTP_EVENT_REQUEST).exchange;
    http_respond(exchange, 200, "text/plain", (struct str){ .data = body, .size = size }, NULL, 0);
    free(body);
    while (http_server_connections(server) > 0) // ends by the write timer, or the test times out
        turn(server, 10);
    close(client);
    close_server(server);
}

/* Answers a refusal as an owner would, and checks its status. */
static void answer_refusal(struct http_server *server, int status)
{
    const struct http_event event = expect_event(server, HTTP_EVENT_REFUSED);
    const char *reason;

    assert_int_equal(http_refusal(event.exchange, &reason), status);
    http_respond(event.exchange, status, "text/plain", str_from(reason), NULL, 0);
}

static void test_refusals_are_answered_and_closed(void **state)
{
    struct http_server *const server =
        open_server((struct http_server_options){ .body_bytes_cap = 1000 });
    char *const big = xcalloc(1, 1u << 20);
    struct buf in;
    (void)state;

    buf_init(&in, 1u << 20);
    int client = connect_to(server);
    send_text(client, "GET / HTTP/1.1\r\nContent-Length : 1\r\n\r\n" GET);
    answer_refusal(server, 400);
    assert_true(receive_until(client, &in, "Connection: close\r\n"));
    turn(server, 1);
    close(client);

    /* The body keeps coming while the refusal is under way: it must arrive, not be reset away. */
    client = connect_to(server);
    buf_clear(&in);
    send_text(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n");
    send(client, big, 100000, MSG_NOSIGNAL | MSG_DONTWAIT);
    answer_refusal(server, 413);
    for (int i = 0; i < 20; i++) {
        send(client, big, 50000, MSG_NOSIGNAL | MSG_DONTWAIT);
        turn(server, 1);
    }
    assert_true(receive_until(client, &in, "HTTP/1.1 413 Content Too Large\r\n"));
    close(client);
    free(big);
    buf_release(&in);
    close_server(server);
}

static void test_bodies_together_have_a_ceiling(void **state)
{
    struct http_server *const server = open_server(
        (struct http_server_options){ .body_bytes_cap = 1000, .bodies_bytes_cap = 1500 });
    int clients[2];
    char body[901] = { 0 };
    (void)state;

    memset(body, 'b', 900);
    for (int i = 0; i < 2; i++) {
        clients[i] = connect_to(server);
        send_text(clients[i], "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n");
        send_text(clients[i], body);
    }
    answer_refusal(server, 503);
    close(clients[0]);
    close(clients[1]);
    close_server(server);
}

static void test_timers(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){
        .header_timeout_ms = 20, .body_timeout_ms = 30, .idle_timeout_ms = 200 });
    int client = connect_to(server);
    (void)state;

    send_text(client, "GET / HT");
    answer_refusal(server, 408);
    assert_receives(client, "408 Request Timeout");
    close(client);

    client = connect_to(server);
    send_text(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
    answer_refusal(server, 408);
    close(client);

    client = connect_to(server);
    send_text(client, GET);
    respond_text(expect_event(server, HTTP_EVENT_REQUEST).exchange, "x");
    turn(server, 400);
    assert_receives(client, "\r\n\r\nx");
    assert_true(at_end(client)); // idle
    close(client);
    close_server(server);
}

/* A body that trickles restarts its timer at each byte, but not for ever. The timer is long enough
 * that a busy machine does not keep us from sending the next byte in time. */
#define BODY_MS 200

static void test_trickle_ends(void **state)
{
    struct http_server *const server =
        open_server((struct http_server_options){ .body_timeout_ms = BODY_MS });
    struct http_event event;
    (void)state;

    const int client = connect_to(server);
    send_text(client, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 900000\r\n\r\n");
    const uint64_t started_ms = clock_ms();
    do {
        send(client, "x", 1, MSG_NOSIGNAL);
        http_server_timer(server, 5);
        assert_true(http_server_poll(server, &event));
    } while (event.kind == HTTP_EVENT_TIMER);
    http_server_timer(server, 0);
    assert_int_equal(event.kind, HTTP_EVENT_REFUSED);
    assert_true(clock_ms() - started_ms > 10 * BODY_MS - 5);
    respond_text(event.exchange, "x");
    close(client);
    close_server(server);
}

static void test_expect_continue(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){ 0 });
    const int client = connect_to(server);
    (void)state;

    send_text(client, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                      "Content-Length: 2\r\n\r\n");
    turn(server, 5);
    assert_receives(client, "HTTP/1.1 100 Continue\r\n\r\n");
    send_text(client, "ab");
    const struct http_event event = expect_event(server, HTTP_EVENT_REQUEST);
    struct buf body;
    http_take_body(event.exchange, &body);
    assert_true(str_is(buf_view(&body), "ab"));
    assert_int_equal(http_body(event.exchange).size, 0);
    buf_release(&body);
    respond_text(event.exchange, "done");
    assert_receives(client, "HTTP/1.1 200 OK");
    close(client);
    close_server(server);
}

static void test_heartbeat_fills_silence(void **state)
{
    struct http_server *const server =
        open_server((struct http_server_options){ .heartbeat_ms = 10 });
    const int client = connect_to(server);
    (void)state;

    send_text(client, GET);
    struct http_exchange *const exchange = expect_event(server, HTTP_EVENT_REQUEST).exchange;
    http_stream_begin(exchange, 200, "text/event-stream", STR(": beat\n\n"), NULL, 0);
    turn(server, 50);
    assert_receives(client, "8\r\n: beat\n\n\r\n8\r\n: beat\n\n\r\n");
    http_stream_end(exchange);
    close(client);
    close_server(server);
}

static void test_abort_cuts_the_answer(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){ 0 });
    const int client = connect_to(server);
    struct buf in;
    (void)state;

    buf_init(&in, 1u << 20);
    send_text(client, GET);
    struct http_exchange *const exchange = expect_event(server, HTTP_EVENT_REQUEST).exchange;
    http_stream_begin(exchange, 200, "text/plain", STR_NONE, NULL, 0);
    http_stream_write(exchange, STR("part"));
    http_abort(exchange);
    turn(server, 1);
    assert_false(receive_until(client, &in, "\r\n0\r\n"));
    assert_true(str_find(buf_view(&in), STR("part")) != SIZE_MAX);
    buf_release(&in);
    close(client);
    close_server(server);
}

static void wake_from_thread(void *server)
{
    for (int i = 0; i < 1000; i++)
        http_server_wake(server);
    http_server_stop(server);
}

static void test_wakes_are_merged_and_stops_counted(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){ 0 });
    struct thread thread = { 0 };
    struct err err;
    struct http_event event;
    uint32_t n_wakes = 0;
    (void)state;

    http_server_catch_signals(server);
    assert_true(thread_start(&thread, "waker", wake_from_thread, server, &err));
    do {
        assert_true(http_server_poll(server, &event));
        n_wakes += event.kind == HTTP_EVENT_WAKE;
    } while (event.kind != HTTP_EVENT_STOP);
    thread_join(&thread);
    assert_int_equal(event.n_stops, 1);
    assert_true(n_wakes <= 1000);
    raise(SIGTERM);
    do
        assert_true(http_server_poll(server, &event)); // a last wake may come first
    while (event.kind == HTTP_EVENT_WAKE);
    assert_int_equal(event.kind, HTTP_EVENT_STOP);
    assert_int_equal(event.n_stops, 2);
    close_server(server);
}

static void test_drain(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){ 0 });
    const int idle = connect_to(server), busy = connect_to(server);
    struct http_event event;
    struct buf in;
    (void)state;

    buf_init(&in, 1u << 20);
    send_text(idle, GET);
    respond_text(expect_event(server, HTTP_EVENT_REQUEST).exchange, "x");
    send_text(busy, GET);
    struct http_exchange *const exchange = expect_event(server, HTTP_EVENT_REQUEST).exchange;
    http_server_drain(server);
    turn(server, 1);
    assert_receives(idle, "\r\n\r\nx");
    assert_true(at_end(idle));
    const int late = socket(AF_INET, SOCK_STREAM, 0);
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_port = htons(http_server_port(server)),
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    assert_int_equal(connect(late, (const struct sockaddr *)&address, sizeof address), -1);
    assert_int_equal(errno, ECONNREFUSED);
    respond_text(exchange, "last");
    assert_false(http_server_poll(server, &event));
    assert_true(receive_until(busy, &in, "last"));
    assert_true(str_find(buf_view(&in), STR("Connection: close")) != SIZE_MAX);
    buf_release(&in);
    close(late);
    close(idle);
    close(busy);
    close_server(server);
}

static void test_too_many_connections(void **state)
{
    struct http_server *const server =
        open_server((struct http_server_options){ .connections_cap = 2 });
    int clients[3];
    (void)state;

    for (int i = 0; i < 3; i++)
        clients[i] = connect_to(server);
    answer_refusal(server, 503);
    assert_receives(clients[2], "503 Service Unavailable");
    send_text(clients[1], GET);
    respond_text(expect_event(server, HTTP_EVENT_REQUEST).exchange, "ok");
    assert_receives(clients[1], "ok");
    for (int i = 0; i < 3; i++)
        close(clients[i]);
    close_server(server);
}

struct job {
    struct http_work work; // first
    int input, output;
};

static void run_job(struct http_work *work)
{
    struct job *const job = (struct job *)work;

    job->output = job->input * 2;
}

static void test_jobs_run_on_the_pool(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){ 0 });
    struct job jobs[8];
    int sum = 0;
    (void)state;

    for (int i = 0; i < 8; i++) {
        jobs[i] = (struct job){ .work.run = run_job, .input = i };
        http_server_work(server, &jobs[i].work);
    }
    for (int i = 0; i < 8; i++)
        sum += ((struct job *)expect_event(server, HTTP_EVENT_WORK).work)->output;
    assert_int_equal(sum, 56);
    close_server(server);
}

static void test_open_says_what_is_wrong(void **state)
{
    struct http_server *const server = open_server((struct http_server_options){ 0 });
    struct err err = { 0 };
    (void)state;

    assert_null(
        http_server_open(&(struct http_server_options){ .port = http_server_port(server) }, &err));
    assert_int_equal(err.code, ERR_SYSTEM);
    assert_non_null(strstr(err.text, "address already in use"));
    assert_null(http_server_open(&(struct http_server_options){ .host = "256.1.1.1" }, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    close_server(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_and_keeps_alive),
        cmocka_unit_test(test_head_and_http_1_0),
        cmocka_unit_test(test_pipelined_requests_are_answered_in_order),
        cmocka_unit_test(test_a_flood_of_pipelined_requests_is_bounded),
        cmocka_unit_test(test_a_stream_is_sent_piece_by_piece),
        cmocka_unit_test(test_a_leaving_client_is_noticed),
        cmocka_unit_test(test_an_answer_may_cross_a_leaving_client),
        cmocka_unit_test(test_half_closed_clients_get_immediate_answers),
        cmocka_unit_test(test_a_slow_reader_is_dropped),
        cmocka_unit_test(test_a_big_answer_reaches_a_slow_reader_that_reads),
        cmocka_unit_test(test_a_reader_that_stops_is_dropped),
        cmocka_unit_test(test_refusals_are_answered_and_closed),
        cmocka_unit_test(test_bodies_together_have_a_ceiling),
        cmocka_unit_test(test_timers),
        cmocka_unit_test(test_trickle_ends),
        cmocka_unit_test(test_expect_continue),
        cmocka_unit_test(test_heartbeat_fills_silence),
        cmocka_unit_test(test_abort_cuts_the_answer),
        cmocka_unit_test(test_wakes_are_merged_and_stops_counted),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_too_many_connections),
        cmocka_unit_test(test_jobs_run_on_the_pool),
        cmocka_unit_test(test_open_says_what_is_wrong),
    };
    return cmocka_run_group_tests_name("http_server", tests, NULL, NULL);
}
