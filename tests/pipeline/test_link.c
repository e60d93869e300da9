/* The link suite: what every kind of link promises. A new kind is one more row of `kinds`. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/thread.h"
#include "helpers/cm.h"
#include "helpers/temporary.h"
#include "pipeline/bytes.h"
#include "pipeline/link.h"
#include "pipeline/payload.h"

#include <stdio.h>
#include <stdlib.h>

#define CARRY 1024u
#define ROWS 512u
#define PATIENT_MS 10000 // nothing times out on a busy machine

static const char *const kinds[] = { "127.0.0.1:0", "[::1]:0", "unix", "local:suite" };
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static const struct frame_limits open_limits = {
    .kinds = UINT32_MAX, .rows_cap = ROWS, .carry = CARRY, .vocab_size = 8
};

static char *folder;

struct pair {
    struct link_listener *listener;
    struct link *near, *far; // dialled, accepted
};

static void pair_open(struct pair *pair, const char *kind, uint64_t frame_ms)
{
    struct link_options options = { .frame_ms = frame_ms, .spin_us = 20 };
    struct err err;
    char *path = xasprintf("unix:%s/link", folder);
    pair->listener = link_listen(strcmp(kind, "unix") == 0 ? path : kind, false, &err);
    assert_non_null(pair->listener);
    pair->near = link_dial(link_listener_address(pair->listener), &options, 1000, NULL, &err);
    assert_non_null(pair->near);
    pair->far = link_accept(pair->listener, &options, &err);
    assert_non_null(pair->far);
    assert_true(strlen(link_peer(pair->near)) > 0 && strlen(link_peer(pair->far)) > 0);
    free(path);
}

static void pair_close(struct pair *pair)
{
    link_close(pair->near);
    link_close(pair->far);
    link_listener_close(pair->listener);
}

/* A STEP whose values count from `first`. */
static void make_step(struct frame *frame, uint32_t rows, float first)
{
    frame_start(frame, FRAME_STEP, 1);
    frame->header.rows = rows;
    frame->header.cols = CARRY;
    frame->header.dtype = FRAME_F32;
    frame->header.batch = rows;
    for (uint32_t i = 0; i < rows * 4 + 1; i++)
        bytes_add_u32(&frame->payload, i);
    for (uint32_t i = 0; i < rows * CARRY; i++)
        bytes_add_f32(&frame->payload, first + (float)i);
}

struct many {
    struct link *link;
    uint32_t count;
    bool ok;
};

static void send_many(void *context)
{
    struct many *job = context;
    struct frame frame;
    struct err err;
    frame_init(&frame);
    job->ok = true;
    for (uint32_t i = 0; i < job->count && job->ok; i++) {
        make_step(&frame, i % 7 == 0 ? ROWS : 1 + i % 5, (float)i);
        job->ok = link_send(job->link, &frame, &err);
    }
    frame_release(&frame);
}

static void receive_many(void *context)
{
    struct many *job = context;
    struct frame frame, expected;
    struct err err;
    frame_init(&frame);
    frame_init(&expected);
    job->ok = true;
    for (uint32_t i = 0; i < job->count && job->ok; i++) {
        make_step(&expected, i % 7 == 0 ? ROWS : 1 + i % 5, (float)i);
        job->ok = link_receive(job->link, &frame, PATIENT_MS, &err) &&
                  frame.header.kind == FRAME_STEP && frame.header.rows == expected.header.rows &&
                  frame.header.batch == expected.header.batch &&
                  str_equal(buf_view(&frame.payload), buf_view(&expected.payload));
    }
    frame_release(&frame);
    frame_release(&expected);
}

/* Both ways at once, with frames larger than any buffer between. */
static void check_frames_arrive(const char *kind)
{
    struct pair pair;
    struct thread threads[4] = { 0 };
    struct err err;
    pair_open(&pair, kind, PATIENT_MS);
    link_limit(pair.near, &open_limits);
    link_limit(pair.far, &open_limits);
    struct many jobs[4] = { { pair.near, 15, false },
                            { pair.far, 15, false },
                            { pair.far, 15, false },
                            { pair.near, 15, false } };
    for (int i = 0; i < 4; i++)
        assert_true(
            thread_start(&threads[i], "link", i % 2 ? receive_many : send_many, &jobs[i], &err));
    for (int i = 0; i < 4; i++) {
        thread_join(&threads[i]);
        assert_true(jobs[i].ok);
    }
    pair_close(&pair);
}

static void check_silence_leaves_the_link_good(const char *kind)
{
    struct pair pair;
    struct frame frame;
    struct err err;
    frame_init(&frame);
    pair_open(&pair, kind, PATIENT_MS);
    link_limit(pair.far, &open_limits);
    for (int i = 0; i < 3; i++) {
        assert_false(link_receive(pair.far, &frame, 20, &err));
        assert_int_equal(err.code, ERR_TIMEOUT);
        frame_start(&frame, FRAME_PING, 1);
        assert_true(link_send(pair.near, &frame, &err));
        assert_true(link_receive(pair.far, &frame, PATIENT_MS, &err));
        assert_int_equal(frame.header.kind, FRAME_PING);
    }
    pair_close(&pair);
    frame_release(&frame);
}

static void check_a_new_link_takes_greetings_only(const char *kind)
{
    struct pair pair;
    struct frame frame;
    struct err err;
    frame_init(&frame);
    pair_open(&pair, kind, PATIENT_MS);
    make_step(&frame, 1, 0);
    assert_true(link_send(pair.near, &frame, &err));
    assert_false(link_receive(pair.far, &frame, 1000, &err));
    assert_int_equal(err.code, ERR_FORMAT);
    pair_close(&pair);
    frame_release(&frame);
}

static void check_last_words_arrive_before_the_end(const char *kind)
{
    struct pair pair;
    struct frame frame;
    struct err err;
    frame_init(&frame);
    pair_open(&pair, kind, PATIENT_MS);
    link_limit(pair.far, &open_limits);
    frame_start(&frame, FRAME_BYE, 1);
    assert_true(link_send(pair.near, &frame, &err));
    link_close(pair.near);
    pair.near = NULL;
    assert_true(link_receive(pair.far, &frame, PATIENT_MS, &err));
    assert_int_equal(frame.header.kind, FRAME_BYE);
    assert_false(link_receive(pair.far, &frame, 1000, &err));
    assert_int_equal(err.code, ERR_PEER_LOST);
    pair_close(&pair);
    frame_release(&frame);
}

static void wait_for_frame(void *context)
{
    struct many *job = context;
    struct frame frame;
    struct err err = { 0 };
    frame_init(&frame);
    job->ok = !link_receive(job->link, &frame, UINT64_MAX, &err) && err.code == ERR_PEER_LOST;
    frame_release(&frame);
}

static void check_cut_ends_both_sides(const char *kind)
{
    struct pair pair;
    struct thread threads[2] = { 0 };
    struct frame frame;
    struct err err;
    frame_init(&frame);
    pair_open(&pair, kind, PATIENT_MS);
    struct many jobs[2] = { { .link = pair.near }, { .link = pair.far } };
    for (int i = 0; i < 2; i++)
        assert_true(thread_start(&threads[i], "link", wait_for_frame, &jobs[i], &err));
    link_cut(pair.far);
    for (int i = 0; i < 2; i++) {
        thread_join(&threads[i]);
        assert_true(jobs[i].ok);
    }
    frame_start(&frame, FRAME_PING, 1);
    assert_false(link_send(pair.far, &frame, &err));
    assert_int_equal(err.code, ERR_PEER_LOST);
    pair_close(&pair);
    frame_release(&frame);
}

static void check_a_reader_that_takes_nothing_times_the_writer_out(const char *kind)
{
    struct pair pair;
    struct frame frame;
    struct err err = { 0 };
    frame_init(&frame);
    pair_open(&pair, kind, 200);
    make_step(&frame, ROWS, 0);
    uint64_t start = clock_ms();
    while (link_send(pair.near, &frame, &err))
        assert_true(clock_ms() - start < 20000);
    assert_int_equal(err.code, ERR_TIMEOUT);
    pair_close(&pair);
    frame_release(&frame);
}

struct waiting {
    struct link_listener *listener;
    bool ok;
};

static void accept_for_ever(void *context)
{
    struct waiting *job = context;
    struct link_options options = { 0 };
    struct err err = { 0 };
    struct link *link;
    while ((link = link_accept(job->listener, &options, &err)))
        link_close(link); // who asked whether the Unix path is in use
    job->ok = err.code == ERR_CANCELLED;
}

static void check_listeners(const char *kind)
{
    struct link_options options = { 0 };
    struct thread threads[2] = { 0 };
    struct err err;
    char *path = xasprintf("unix:%s/link", folder);
    struct link_listener *listener =
        link_listen(strcmp(kind, "unix") == 0 ? path : kind, false, &err);
    assert_non_null(listener);
    char *address = xstrdup(link_listener_address(listener));
    assert_null(link_listen(address, false, &err));
    assert_int_equal(err.code, ERR_BUSY);
    struct waiting jobs[2] = { { listener, false }, { listener, false } };
    for (int i = 0; i < 2; i++)
        assert_true(thread_start(&threads[i], "accept", accept_for_ever, &jobs[i], &err));
    link_listener_wake(listener);
    for (int i = 0; i < 2; i++) {
        thread_join(&threads[i]);
        assert_true(jobs[i].ok);
    }
    link_listener_close(listener);
    assert_null(link_dial(address, &options, 1000, NULL, &err));
    assert_int_equal(err.code, ERR_PEER_LOST);
    free(address);
    free(path);
}

/* Containers without IPv6 are common. */
static bool kind_is_there(const char *kind)
{
    struct err err;
    if (strcmp(kind, "[::1]:0") != 0)
        return true;
    struct link_listener *listener = link_listen(kind, false, &err);
    if (!listener)
        print_message("skipped: %s (%s)\n", kind, err.text);
    link_listener_close(listener);
    return listener != NULL;
}

/* One test for each promise, each over every kind. */
#define SUITE(name)                                                                                \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        for (size_t i = 0; i < N_KINDS; i++) {                                                     \
            if (kind_is_there(kinds[i]))                                                           \
                check_##name(kinds[i]);                                                            \
        }                                                                                          \
    }
SUITE(frames_arrive)
SUITE(silence_leaves_the_link_good)
SUITE(a_new_link_takes_greetings_only)
SUITE(last_words_arrive_before_the_end)
SUITE(cut_ends_both_sides)
SUITE(a_reader_that_takes_nothing_times_the_writer_out)
SUITE(listeners)

/* What a relay may do to frames: the receiving end is over after any of it. */
static void check_forged(struct link *link, struct socket *from, const uint8_t *bytes, size_t size,
                         enum err_code code)
{
    struct frame frame;
    struct err err = { 0 };
    struct str piece = { (const char *)bytes, size };
    frame_init(&frame);
    assert_true(socket_write(from, &piece, 1, 1000, &err));
    assert_false(link_receive(link, &frame, 1000, &err));
    assert_int_equal(err.code, code);
    frame_release(&frame);
}

/* A raw socket joined to a link. */
static struct link *raw_pair(struct link_listener *listener, struct socket **raw)
{
    struct link_options options = { .frame_ms = 50 };
    struct address address;
    struct err err;
    assert_true(address_parse(str_from(link_listener_address(listener)), &address, &err));
    *raw = socket_dial(&address, 1000, NULL, &err);
    assert_non_null(*raw);
    struct link *link = link_accept(listener, &options, &err);
    assert_non_null(link);
    link_limit(link, &open_limits);
    return link;
}

static void test_forged_stalled_and_cut_frames_are_fatal(void **state)
{
    struct frame_header header = { .kind = FRAME_DROP, .payload_bytes = 4 };
    uint8_t good[FRAME_HEADER_BYTES + 4], bad[FRAME_HEADER_BYTES + 4];
    struct err err;
    struct socket *raw;
    (void)state;
    bytes_put_u32(good + FRAME_HEADER_BYTES, 3);
    header.payload_xxh = hash_xxh3(good + FRAME_HEADER_BYTES, 4);
    struct link_listener *listener = link_listen("127.0.0.1:0", false, &err);
    assert_non_null(listener);
    enum { CORRUPT_PAYLOAD, GAP, NOISE, STALLED_HEADER, STALLED_PAYLOAD, END_WITHIN, N_FORGERIES };
    static const enum err_code codes[N_FORGERIES] = { ERR_CORRUPT, ERR_FORMAT,  ERR_FORMAT,
                                                      ERR_TIMEOUT, ERR_TIMEOUT, ERR_PEER_LOST };
    for (int i = 0; i < N_FORGERIES; i++) {
        struct link *link = raw_pair(listener, &raw);
        header.sequence_on_link = i == GAP ? 1 : 0;
        frame_header_encode(&header, good);
        memcpy(bad, good, sizeof bad);
        size_t size = sizeof bad;
        if (i == CORRUPT_PAYLOAD)
            bad[FRAME_HEADER_BYTES] ^= 0x40;
        if (i == NOISE)
            memset(bad, 'G', sizeof bad);
        if (i == STALLED_HEADER)
            size = 30;
        if (i == STALLED_PAYLOAD)
            size = FRAME_HEADER_BYTES + 2;
        if (i == END_WITHIN) {
            struct str piece = { (const char *)bad, 30 };
            assert_true(socket_write(raw, &piece, 1, 1000, &err));
            socket_cut(raw);
            struct frame frame;
            frame_init(&frame);
            assert_false(link_receive(link, &frame, 1000, &err));
            assert_int_equal(err.code, codes[i]);
            frame_release(&frame);
        } else {
            check_forged(link, raw, bad, size, codes[i]);
        }
        link_close(link);
        socket_close(raw);
    }
    link_listener_close(listener);
}

static void test_a_bind_beyond_this_machine_needs_insecure(void **state)
{
    struct err err;
    (void)state;
    assert_null(link_listen("0.0.0.0:0", false, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "--insecure"));
    struct link_listener *listener = link_listen("0.0.0.0:0", true, &err);
    assert_non_null(listener);
    link_listener_close(listener);
    assert_null(link_listen("nowhere", true, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
}

static int make_folder(void **state)
{
    (void)state;
    folder = temporary_dir();
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    temporary_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_arrive),
        cmocka_unit_test(test_silence_leaves_the_link_good),
        cmocka_unit_test(test_a_new_link_takes_greetings_only),
        cmocka_unit_test(test_last_words_arrive_before_the_end),
        cmocka_unit_test(test_cut_ends_both_sides),
        cmocka_unit_test(test_a_reader_that_takes_nothing_times_the_writer_out),
        cmocka_unit_test(test_listeners),
        cmocka_unit_test(test_forged_stalled_and_cut_frames_are_fatal),
        cmocka_unit_test(test_a_bind_beyond_this_machine_needs_insecure),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
