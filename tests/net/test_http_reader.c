/* Requests byte by byte and in every cut, and the framing table of what must be refused. */
#include "net/http_reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"

#define BODY_CAP 1000u

/* Feeds `text` in two pieces cut at `cut`, each copied to memory of exactly its size so that a
 * sanitizer sees an over-read. Returns the bytes taken. */
static size_t feed_cut(struct http_reader *reader, struct str text, size_t cut)
{
    const struct str parts[2] = { str_slice(text, 0, cut), str_slice(text, cut, text.size) };
    size_t used = 0;

    http_reader_init(reader, BODY_CAP);
    for (int i = 0; i < 2; i++) {
        char *const copy = xmalloc(parts[i].size + 1);

        if (parts[i].size > 0)
            memcpy(copy, parts[i].data, parts[i].size);
        used += http_reader_feed(reader, (struct str){ .data = copy, .size = parts[i].size });
        free(copy);
    }
    return used;
}

static void assert_str(struct str actual, const char *expected)
{
    if (!str_is(actual, expected))
        fail_msg("\"%.*s\" is not \"%s\"", STR_ARG(actual), expected);
}

static void test_a_post_survives_every_cut(void **state)
{
    const struct str request = STR("POST /v1/x?a=b HTTP/1.1\r\nHost: h:80\r\nX-A:  some value \r\n"
                                   "Content-Length: 5\r\n\r\nhello");
    const struct str two = STR("POST /v1/x?a=b HTTP/1.1\r\nHost: h:80\r\nX-A:  some value \r\n"
                               "Content-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n");
    (void)state;

    for (size_t cut = 0; cut <= two.size; cut++) {
        struct http_reader reader;
        const size_t used = feed_cut(&reader, two, cut);

        assert_int_equal(used, request.size);
        assert_int_equal(reader.state, HTTP_READER_DONE);
        assert_str(reader.method, "POST");
        assert_str(reader.path, "/v1/x");
        assert_str(reader.query, "a=b");
        assert_str(buf_view(&reader.body), "hello");
        assert_str(http_reader_find(&reader, "x-a"), "some value");
        assert_null(http_reader_find(&reader, "x-b").data);
        assert_true(reader.keep_alive);
        http_reader_release(&reader);
    }
}

static void test_chunks_survive_every_cut(void **state)
{
    const struct str request =
        STR("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
            "3;name=v\r\nabc\r\n1\r\nd\r\n0\r\nHost: trailer\r\n\r\n");
    (void)state;

    for (size_t cut = 0; cut <= request.size; cut++) {
        struct http_reader reader;
        const size_t used = feed_cut(&reader, request, cut);

        assert_int_equal(used, request.size);
        assert_int_equal(reader.state, HTTP_READER_DONE);
        assert_str(buf_view(&reader.body), "abcd");
        assert_int_equal(reader.n_fields, 2);
        http_reader_release(&reader);
    }
}

static void test_a_get_is_whole_at_its_blank_line(void **state)
{
    const struct str request = STR("\r\nGET http://h/p#f HTTP/1.1\r\nHost: h\r\n\r\n");
    (void)state;

    for (size_t cut = 0; cut <= request.size; cut++) {
        struct http_reader reader;

        assert_int_equal(feed_cut(&reader, request, cut), request.size);
        assert_int_equal(reader.state, HTTP_READER_DONE);
        assert_str(reader.path, "/p");
        assert_int_equal(reader.query.size, 0);
        http_reader_release(&reader);
    }
}

struct row {
    const char *text;
    int status; // 0: accepted
};

/* Where parsers differ, or where a client is plainly wrong. */
static const struct row rows[] = {
    { "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 0 },
    { "GET / HTTP/1.1\r\nHost:\r\n\r\n", 0 },
    { "GET / HTTP/1.0\r\n\r\n", 0 },
    { "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", 0 },
    { "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 0 },
    { "GET / HTTP/1.1\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n",
      400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: "
      "4\r\n\r\n0\r\n\r\n",
      400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +4\r\n\r\nabcd", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x4\r\n\r\nabcd", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4, 4\r\n\r\nabcd", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length : 3\r\n\r\nabc", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length\t: 3\r\n\r\nabc", 400 },
    { "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400 },
    { "GET / HTTP/1.1\nHost: h\n\n", 400 },
    { "GET / HTTP/1.1\r\nHost: h\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: h\r\nA: b\rTransfer-Encoding: chunked\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: h\r\nA: \x01\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: h\r\n: v\r\n\r\n", 400 },
    { "GET nowhere HTTP/1.1\r\nHost: h\r\n\r\n", 400 },
    { "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", 400 },
    { "GARBAGE\r\n\r\n", 400 },
    { "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n", 400 },
    { "\x16\x03\x01\x02\n", 400 }, // TLS to a plain port
    { "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400 },
    { "GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505 },
    { "GET / HTTP/9.9\r\nHost: h\r\n\r\n", 505 },
    { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
      "chunked\r\n\r\n"
      "0\r\n\r\n",
      400 },
    { "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
      400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\nHost: h\r\nExpect: miracles\r\nContent-Length: 1\r\n\r\n", 417 },
    { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n", 413 },
    { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n", 413 },
    { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", 413 },
};

static void test_the_framing_table(void **state)
{
    size_t n_wrong = 0;
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct str text = str_from(rows[i].text);

        for (size_t cut = 0; cut <= text.size; cut++) {
            struct http_reader reader;

            feed_cut(&reader, text, cut);
            const int status = reader.state == HTTP_READER_BAD    ? reader.status
                               : reader.state == HTTP_READER_DONE ? 0
                                                                  : -1;
            if (status != rows[i].status) {
                print_error("row %zu cut at %zu: %d, not %d:\n%s\n", i, cut, status, rows[i].status,
                            rows[i].text);
                n_wrong++;
            }
            http_reader_release(&reader);
            if (n_wrong > 0)
                break;
        }
    }
    assert_int_equal(n_wrong, 0);
}

static void test_ceilings(void **state)
{
    struct http_reader reader;
    char line[HTTP_FIELD_BYTES_CAP + 2];
    (void)state;

    memset(line, 'a', sizeof line);
    http_reader_init(&reader, BODY_CAP);
    http_reader_feed(&reader, STR("GET /"));
    http_reader_feed(&reader, (struct str){ .data = line, .size = sizeof line });
    assert_int_equal(reader.status, 414);
    http_reader_release(&reader);

    http_reader_init(&reader, BODY_CAP);
    http_reader_feed(&reader, STR("GET / HTTP/1.1\r\nHost: h\r\nA: "));
    http_reader_feed(&reader, (struct str){ .data = line, .size = sizeof line });
    assert_int_equal(reader.status, 431);
    http_reader_release(&reader);

    http_reader_init(&reader, BODY_CAP);
    http_reader_feed(&reader, STR("GET / HTTP/1.1\r\nHost: h\r\n"));
    for (int i = 0; i < 16 && reader.state == HTTP_READER_HEAD; i++) {
        http_reader_feed(&reader, STR("A: "));
        http_reader_feed(&reader, (struct str){ .data = line, .size = HTTP_FIELD_BYTES_CAP - 5 });
        http_reader_feed(&reader, STR("\r\n"));
    }
    assert_int_equal(reader.status, 431);
    assert_true(reader.head.size <= HTTP_HEAD_BYTES_CAP);
    http_reader_release(&reader);

    http_reader_init(&reader, BODY_CAP);
    http_reader_feed(&reader, STR("GET / HTTP/1.1\r\nHost: h\r\n"));
    for (uint32_t i = 0; i < HTTP_FIELDS_CAP; i++)
        http_reader_feed(&reader, STR("A: b\r\n"));
    http_reader_feed(&reader, STR("\r\n"));
    assert_int_equal(reader.status, 431);
    http_reader_release(&reader);
}

static void test_chunked_body_ceilings(void **state)
{
    struct http_reader reader;
    char big[BODY_CAP + 1];
    (void)state;

    memset(big, 'x', sizeof big);
    http_reader_init(&reader, BODY_CAP);
    http_reader_feed(
        &reader, STR("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n"));
    http_reader_feed(&reader, (struct str){ .data = big, .size = sizeof big });
    assert_int_equal(reader.status, 413);
    http_reader_release(&reader);

    /* A chunk extension that never ends. */
    http_reader_init(&reader, BODY_CAP);
    http_reader_feed(&reader,
                     STR("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;"));
    size_t sent = 0;
    while (reader.state == HTTP_READER_BODY && sent < (1u << 20))
        sent += http_reader_feed(&reader, (struct str){ .data = big, .size = sizeof big });
    assert_int_equal(reader.status, 400);
    assert_true(sent < (1u << 17));
    http_reader_release(&reader);
}

static void test_expect_and_keep_alive(void **state)
{
    struct http_reader reader;
    (void)state;

    http_reader_init(&reader, BODY_CAP);
    http_reader_feed(&reader, STR("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                                  "Content-Length: 2\r\nConnection: close\r\n\r\n"));
    assert_int_equal(reader.state, HTTP_READER_BODY);
    assert_true(reader.expects_continue);
    assert_false(reader.keep_alive);
    http_reader_feed(&reader, STR("ab"));
    assert_int_equal(reader.state, HTTP_READER_DONE);
    http_reader_release(&reader);

    http_reader_init(&reader, BODY_CAP);
    http_reader_feed(&reader, STR("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n"));
    assert_int_equal(reader.state, HTTP_READER_DONE);
    assert_false(reader.expects_continue);
    http_reader_release(&reader);

    http_reader_init(&reader, BODY_CAP);
    http_reader_feed(&reader, STR("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    assert_true(reader.keep_alive);
    assert_int_equal(reader.minor, 0);
    http_reader_release(&reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_post_survives_every_cut),
        cmocka_unit_test(test_chunks_survive_every_cut),
        cmocka_unit_test(test_a_get_is_whole_at_its_blank_line),
        cmocka_unit_test(test_the_framing_table),
        cmocka_unit_test(test_ceilings),
        cmocka_unit_test(test_chunked_body_ceilings),
        cmocka_unit_test(test_expect_and_keep_alive),
    };
    return cmocka_run_group_tests_name("http_reader", tests, NULL, NULL);
}
