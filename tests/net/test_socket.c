#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "helpers/cm.h"
#include "net/socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Two joined sockets of one kind of address. */
struct pair {
    struct socket_listener *listener;
    struct socket *near, *far; // dialled, accepted
};

static char folder[] = "/tmp/test_socket_XXXXXX";

static struct address address_of(const char *kind)
{
    struct address address;
    struct err err;
    char *path = xasprintf("unix:%s/socket", folder);
    const char *text = strcmp(kind, "unix") == 0 ? path : kind;
    assert_true(address_parse(str_from(text), &address, &err));
    free(path);
    return address;
}

static void pair_open(struct pair *pair, const char *kind)
{
    struct address address = address_of(kind);
    struct err err;
    pair->listener = socket_listen(&address, &err);
    assert_non_null(pair->listener);
    pair->near = socket_dial(socket_listener_address(pair->listener), 1000, NULL, &err);
    assert_non_null(pair->near);
    pair->far = socket_accept(pair->listener, 1000, NULL, &err);
    assert_non_null(pair->far);
}

static void pair_close(struct pair *pair)
{
    socket_close(pair->near);
    socket_close(pair->far);
    socket_listener_close(pair->listener);
}

#define BIG_BYTES (8u << 20) // more than the buffers hold: the writer must wait for the reader

struct big_write {
    struct socket *socket;
    const char *bytes;
    bool done;
};

static void write_big(void *context)
{
    struct big_write *job = context;
    struct str pieces[3] = { { job->bytes, 64 }, { NULL, 0 }, { job->bytes + 64, BIG_BYTES - 64 } };
    struct err err;
    job->done = socket_write(job->socket, pieces, 3, 5000, &err);
}

static void check_pieces_arrive_in_order(const char *kind)
{
    struct pair pair;
    struct err err;
    struct thread thread = { 0 };
    char *sent = xmalloc(BIG_BYTES), *got = xmalloc(BIG_BYTES);
    for (size_t i = 0; i < BIG_BYTES; i++)
        sent[i] = (char)(i * 2654435761u >> 13);
    pair_open(&pair, kind);
    struct big_write job = { pair.near, sent, false };
    assert_true(thread_start(&thread, "writer", write_big, &job, &err));
    assert_true(socket_wait(pair.far, 5000, &err));
    assert_true(socket_read(pair.far, got, 64, 5000, &err));
    assert_true(socket_read(pair.far, got + 64, BIG_BYTES - 64, 5000, &err));
    thread_join(&thread);
    assert_true(job.done);
    assert_memory_equal(sent, got, BIG_BYTES);
    pair_close(&pair);
    free(sent);
    free(got);
}

static void test_pieces_arrive_in_order(void **state)
{
    (void)state;
    check_pieces_arrive_in_order("127.0.0.1:0");
    check_pieces_arrive_in_order("localhost:0");
    check_pieces_arrive_in_order("unix");
}

static void check_silence_and_end(const char *kind)
{
    struct pair pair;
    struct err err;
    char byte;
    pair_open(&pair, kind);
    uint64_t start = clock_ms();
    assert_false(socket_wait(pair.far, 30, &err));
    assert_int_equal(err.code, ERR_TIMEOUT);
    assert_false(socket_read(pair.far, &byte, 1, 30, &err));
    assert_int_equal(err.code, ERR_TIMEOUT);
    assert_true(clock_ms() - start >= 58);
    socket_close(pair.near);
    pair.near = NULL;
    assert_true(socket_wait(pair.far, 1000, &err)); // the end is something to read
    assert_false(socket_read(pair.far, &byte, 1, 1000, &err));
    assert_int_equal(err.code, ERR_PEER_LOST);
    pair_close(&pair);
}

static void test_silence_is_a_timeout_and_the_end_a_lost_peer(void **state)
{
    (void)state;
    check_silence_and_end("127.0.0.1:0");
    check_silence_and_end("unix");
}

static void test_a_reader_that_takes_nothing_times_the_writer_out(void **state)
{
    struct pair pair;
    struct err err;
    char *bytes = xcalloc(1, BIG_BYTES);
    struct str piece = { bytes, BIG_BYTES };
    (void)state;
    pair_open(&pair, "127.0.0.1:0");
    assert_false(socket_write(pair.near, &piece, 1, 50, &err));
    assert_int_equal(err.code, ERR_TIMEOUT);
    pair_close(&pair);
    free(bytes);
}

struct blocked_read {
    struct socket *socket;
    struct err err;
    bool waited;
};

static void wait_for_ever(void *context)
{
    struct blocked_read *job = context;
    char byte;
    job->waited = socket_wait(job->socket, UINT64_MAX, &job->err);
    if (job->waited)
        socket_read(job->socket, &byte, 1, UINT64_MAX, &job->err);
}

static void test_cut_ends_a_blocked_reader_and_all_writing(void **state)
{
    struct pair pair;
    struct err err;
    struct thread thread = { 0 };
    struct str piece = STR("x");
    (void)state;
    pair_open(&pair, "unix");
    socket_spin(pair.far, 100);
    struct blocked_read job = { .socket = pair.far };
    assert_true(thread_start(&thread, "reader", wait_for_ever, &job, &err));
    socket_cut(pair.far);
    thread_join(&thread);
    assert_true(job.waited);
    assert_int_equal(job.err.code, ERR_PEER_LOST);
    assert_false(socket_write(pair.far, &piece, 1, 1000, &err));
    assert_int_equal(err.code, ERR_PEER_LOST);
    pair_close(&pair);
}

static void test_nobody_there(void **state)
{
    struct err err;
    (void)state;
    struct address address = address_of("127.0.0.1:0");
    struct socket_listener *listener = socket_listen(&address, &err);
    assert_non_null(listener);
    address = *socket_listener_address(listener);
    assert_int_not_equal(address.port, 0);
    socket_listener_close(listener);
    assert_null(socket_dial(&address, 1000, NULL, &err));
    assert_int_equal(err.code, ERR_PEER_LOST);
    address = address_of("unix");
    assert_null(socket_dial(&address, 1000, NULL, &err));
    assert_int_equal(err.code, ERR_PEER_LOST);
}

static void test_an_address_has_one_listener(void **state)
{
    struct err err;
    struct address address = address_of("127.0.0.1:0");
    (void)state;
    struct socket_listener *first = socket_listen(&address, &err);
    assert_non_null(first);
    assert_null(socket_listen(socket_listener_address(first), &err));
    assert_int_equal(err.code, ERR_BUSY);
    socket_listener_close(first);
    address = address_of("unix");
    first = socket_listen(&address, &err);
    assert_non_null(first);
    assert_null(socket_listen(&address, &err));
    assert_int_equal(err.code, ERR_BUSY);
    socket_listener_close(first);
    assert_int_not_equal(access(address.path, F_OK), 0);
}

static void test_a_stale_path_is_replaced_but_no_other_file(void **state)
{
    struct err err;
    struct stat about;
    struct address address = address_of("unix");
    char *aside = xasprintf("%s.aside", address.path);
    (void)state;
    struct socket_listener *listener = socket_listen(&address, &err);
    assert_non_null(listener);
    assert_int_equal(rename(address.path, aside), 0); // what a killed process leaves
    socket_listener_close(listener);
    assert_int_equal(rename(aside, address.path), 0);
    listener = socket_listen(&address, &err);
    assert_non_null(listener);
    assert_int_equal(stat(address.path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    socket_listener_close(listener);
    FILE *file = fopen(address.path, "w");
    assert_non_null(file);
    fclose(file);
    assert_null(socket_listen(&address, &err));
    assert_int_equal(err.code, ERR_BUSY);
    assert_int_equal(access(address.path, F_OK), 0);
    unlink(address.path);
    free(aside);
}

struct blocked_accept {
    struct socket_listener *listener;
    struct socket_waker *waker;
    struct err err;
    struct socket *got;
};

static void accept_for_ever(void *context)
{
    struct blocked_accept *job = context;
    job->got = socket_accept(job->listener, UINT64_MAX, job->waker, &job->err);
}

static void test_a_waker_ends_accept_until_it_is_reset(void **state)
{
    struct err err;
    struct thread threads[2] = { 0 };
    struct address address = address_of("127.0.0.1:0");
    (void)state;
    struct socket_waker *waker = socket_waker_new(&err);
    struct socket_listener *listener = socket_listen(&address, &err);
    struct blocked_accept jobs[2] = { { .listener = listener, .waker = waker },
                                      { .listener = listener, .waker = waker } };
    for (int i = 0; i < 2; i++)
        assert_true(thread_start(&threads[i], "accept", accept_for_ever, &jobs[i], &err));
    socket_waker_wake(waker);
    for (int i = 0; i < 2; i++) {
        thread_join(&threads[i]);
        assert_null(jobs[i].got);
        assert_int_equal(jobs[i].err.code, ERR_CANCELLED);
    }
    socket_waker_reset(waker);
    assert_null(socket_accept(listener, 10, waker, &err));
    assert_int_equal(err.code, ERR_TIMEOUT);
    socket_listener_close(listener);
    socket_waker_free(waker);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); // fails if a listener left its path behind
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_arrive_in_order),
        cmocka_unit_test(test_silence_is_a_timeout_and_the_end_a_lost_peer),
        cmocka_unit_test(test_a_reader_that_takes_nothing_times_the_writer_out),
        cmocka_unit_test(test_cut_ends_a_blocked_reader_and_all_writing),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_an_address_has_one_listener),
        cmocka_unit_test(test_a_stale_path_is_replaced_but_no_other_file),
        cmocka_unit_test(test_a_waker_ends_accept_until_it_is_reset),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
