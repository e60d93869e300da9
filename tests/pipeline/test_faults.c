/* What a network may do to a chain of three: a forwarder sits on each of its three links. Whatever
 * happens to a frame, no wrong token comes out, the loss is reported soon, and the chain serves
 * again by itself. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "helpers/cm.h"
#include "helpers/echo.h"
#include "helpers/forwarder.h"
#include "helpers/temporary.h"
#include "pipeline/worker.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_MS 150
#define PING_MS 100
#define SOON_MS 5000

struct member {
    struct pipeline_options options;
    atomic_int stop;
    struct thread thread;
    bool ran;
    struct err err;
};

/* Ranks listen at Unix paths; the forwarders between them at TCP ports. */
struct chain_of_three {
    char *folder;
    char *paths[3];
    struct forwarder *links[3]; // head to 1, 1 to 2, 2 to head
    struct member members[3];   // the first has no thread
    struct pipeline *head;
    uint64_t ping_ms;
};

static void run_member(void *context)
{
    struct member *member = context;
    member->ran = worker_run(&member->options, &member->stop, &member->err);
}

static struct pipeline_options rank_options(const struct chain_of_three *chain, uint32_t rank)
{
    static const uint32_t ends[4] = { 0, 2, 5, 8 };
    return (struct pipeline_options){
        .engine = { .model = "mock-model",
                    .engine = "mock",
                    .ctx_size = 1024,
                    .layer_first = ends[rank],
                    .layer_end = ends[rank + 1] },
        .rank = rank,
        .total = 3,
        .listen = chain->paths[rank],
        .next = rank < 2 ? forwarder_address(chain->links[rank]) : NULL,
        .head = rank == 2 ? forwarder_address(chain->links[2]) : NULL,
        .frame_ms = FRAME_MS,
        .ping_ms = chain->ping_ms,
    };
}

static void start_member(struct chain_of_three *chain, uint32_t rank)
{
    struct member *member = &chain->members[rank];
    struct err err;
    member->options = rank_options(chain, rank);
    atomic_store(&member->stop, 0);
    assert_true(thread_start(&member->thread, "worker", run_member, member, &err));
}

static void stop_member(struct chain_of_three *chain, uint32_t rank)
{
    struct member *member = &chain->members[rank];
    atomic_store(&member->stop, 1);
    thread_join(&member->thread);
    assert_true(member->ran);
}

static void open_head(struct chain_of_three *chain, uint64_t owed_reply_ms)
{
    struct pipeline_options options = rank_options(chain, 0);
    struct err err;
    options.owed_reply_ms = owed_reply_ms;
    chain->head = pipeline_open(&options, &err);
    if (!chain->head)
        fail_msg("%s", err.text);
    assert_true(echo_wait_ready(chain->head, 20000));
}

static void open_chain(struct chain_of_three *chain, uint64_t ping_ms, uint64_t owed_reply_ms)
{
    *chain = (struct chain_of_three){ .folder = temporary_dir(), .ping_ms = ping_ms };
    for (int i = 0; i < 3; i++)
        chain->paths[i] = xasprintf("unix:%s/rank-%d", chain->folder, i);
    for (int i = 0; i < 3; i++)
        chain->links[i] = forwarder_open("127.0.0.1:0", chain->paths[(i + 1) % 3]);
    start_member(chain, 2); // the last first, to show that order does not matter
    start_member(chain, 1);
    open_head(chain, owed_reply_ms);
}

static void close_chain(struct chain_of_three *chain)
{
    pipeline_close(chain->head);
    stop_member(chain, 1);
    stop_member(chain, 2);
    for (int i = 0; i < 3; i++) {
        forwarder_close(chain->links[i]);
        free(chain->paths[i]);
    }
    temporary_remove(chain->folder);
}

static const struct echo_options talk = { .text = "through thick and thin", .n_streams = 4 };

static void check_talk(struct chain_of_three *chain)
{
    struct err err;
    assert_true(echo_wait_ready(chain->head, 20000));
    if (!echo_talk(chain->head, &talk, &err))
        fail_msg("%s", err.text);
}

/* Arms a fault on the way while a talk runs. */
struct strike {
    struct forwarder *link;
    enum forwarder_fault fault;
    enum frame_kind kind;
    bool backward;
    uint32_t at_step;
    uint64_t armed_ms;
};

static void arm(void *context, uint32_t step)
{
    struct strike *strike = context;
    if (step != strike->at_step)
        return;
    strike->armed_ms = clock_ms();
    forwarder_arm(strike->link, strike->fault, strike->kind, strike->backward);
}

/* Talks until the fault has struck and been noticed, and then once more. Faults that the receiver
 * sees only by the next frame are noticed by a ping's. */
static void check_strike(struct chain_of_three *chain, struct strike *strike)
{
    struct echo_options options = talk;
    struct err err = { 0 };
    uint32_t before = forwarder_struck(strike->link);
    uint32_t epoch = pipeline_epoch(chain->head);
    options.in_flight = arm;
    options.context = strike;
    bool heard_all = echo_talk(chain->head, &options, &err);
    assert_true(forwarder_struck(strike->link) == before + 1);
    if (!heard_all) {
        assert_int_equal(err.code, ERR_PEER_LOST);
        assert_true(strlen(err.text) > 0);
        assert_true(clock_ms() - strike->armed_ms < SOON_MS);
    }
    check_talk(chain);
    if (strike->fault == FORWARDER_DELAY)
        assert_true(heard_all && pipeline_epoch(chain->head) == epoch);
    else if (!heard_all)
        assert_true(pipeline_epoch(chain->head) > epoch);
}

static void test_faults_of_frames_with_work(void **state)
{
    struct chain_of_three chain;
    static const enum frame_kind kinds[3] = { FRAME_STEP, FRAME_STEP, FRAME_RESULT };
    (void)state;
    open_chain(&chain, PING_MS, 0);
    check_talk(&chain);
    for (int fault = 0; fault < FORWARDER_FAULT_COUNT; fault++) {
        for (int i = 0; i < 3; i++) {
            struct strike strike = { .link = chain.links[i],
                                     .fault = (enum forwarder_fault)fault,
                                     .kind = kinds[i],
                                     .at_step = 3 };
            check_strike(&chain, &strike);
        }
    }
    close_chain(&chain);
}

/* The prompts of all streams, in one large frame. */
static void test_faults_in_prefill(void **state)
{
    struct chain_of_three chain;
    static const enum forwarder_fault faults[] = { FORWARDER_CUT, FORWARDER_TRUNCATE,
                                                   FORWARDER_STALL, FORWARDER_CORRUPT_PAYLOAD };
    (void)state;
    open_chain(&chain, PING_MS, 0);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct err err = { 0 };
        forwarder_arm(chain.links[1], faults[i], FRAME_STEP, false);
        assert_true(echo_wait_ready(chain.head, 20000));
        assert_false(echo_talk(chain.head, &talk, &err));
        assert_int_equal(err.code, ERR_PEER_LOST);
        check_talk(&chain);
    }
    close_chain(&chain);
}

static void poll_until_struck(struct chain_of_three *chain, int link, uint32_t n)
{
    uint64_t started = clock_ms();
    while (forwarder_struck(chain->links[link]) < n) {
        const struct pipeline_result *result;
        pipeline_poll(chain->head, 10, &result);
        assert_true(clock_ms() - started < SOON_MS);
    }
}

/* A greeting is only spoken when there is a new link, so for those the link is cut first. Nothing
 * is dialled before the head polls again, so the second fault is in time. */
static void check_idle_strike(struct chain_of_three *chain, int link, enum frame_kind kind,
                              bool backward)
{
    uint32_t struck = forwarder_struck(chain->links[link]);
    uint32_t epoch = pipeline_epoch(chain->head);
    uint64_t started = clock_ms();
    if (kind == FRAME_HELLO || kind == FRAME_WELCOME) {
        forwarder_arm(chain->links[link], FORWARDER_CUT, FRAME_PING, false);
        poll_until_struck(chain, link, ++struck);
    }
    forwarder_arm(chain->links[link], FORWARDER_CORRUPT_PAYLOAD, kind, backward);
    poll_until_struck(chain, link, ++struck);
    /* Until an epoch after the fault has served. One may be lost in between: with a broken WELCOME,
     * one side believes for a moment that they are joined. */
    struct err err = { 0 };
    while (!echo_wait_ready(chain->head, 20000) || pipeline_epoch(chain->head) == epoch ||
           !echo_talk(chain->head, &talk, &err)) {
        const struct pipeline_result *result;
        pipeline_poll(chain->head, 10, &result);
        assert_true(clock_ms() - started < SOON_MS);
    }
}

/* Greetings and pings are frames like any other. */
static void test_faults_of_frames_without_work(void **state)
{
    struct chain_of_three chain;
    (void)state;
    open_chain(&chain, PING_MS, 0);
    for (int link = 0; link < 3; link++) {
        check_idle_strike(&chain, link, FRAME_PING, false);
        check_idle_strike(&chain, link, FRAME_PING, true);
        check_idle_strike(&chain, link, FRAME_PONG, false);
        check_idle_strike(&chain, link, FRAME_PONG, true);
        check_idle_strike(&chain, link, FRAME_HELLO, false);
        check_idle_strike(&chain, link, FRAME_WELCOME, true);
    }
    close_chain(&chain);
}

/* Links that live and bring nothing: the head's timer for the answer is what is left. */
static void test_an_owed_answer_that_does_not_come_ends_the_epoch(void **state)
{
    struct chain_of_three chain;
    struct err err = { 0 };
    (void)state;
    open_chain(&chain, 0, 200); // pings every 10 s: no next frame shows the gap
    forwarder_arm(chain.links[2], FORWARDER_SWALLOW, FRAME_RESULT, false);
    uint64_t started = clock_ms();
    assert_false(echo_talk(chain.head, &talk, &err));
    assert_int_equal(err.code, ERR_PEER_LOST);
    assert_true(clock_ms() - started < SOON_MS);
    check_talk(&chain);
    close_chain(&chain);
}

/* A worker that goes and comes back; the others stay as they are. */
static void test_workers_may_come_and_go(void **state)
{
    struct chain_of_three chain;
    struct buf text;
    (void)state;
    open_chain(&chain, PING_MS, 0);
    buf_init(&text, 4096);
    for (uint32_t rank = 1; rank < 3; rank++) {
        const struct pipeline_result *result;
        uint64_t started = clock_ms();
        stop_member(&chain, rank);
        while (pipeline_state(chain.head) == PIPELINE_READY) {
            pipeline_poll(chain.head, 50, &result);
            assert_true(clock_ms() - started < SOON_MS);
        }
        do { // who is missing is known at the head
            pipeline_poll(chain.head, 50, &result);
            buf_clear(&text);
            pipeline_describe(chain.head, &text);
            assert_true(clock_ms() - started < SOON_MS);
        } while (!strstr(text.data, rank == 1 ? "rank 1 at" : "rank 2 at"));
        assert_non_null(strstr(text.data, "connecting"));
        start_member(&chain, rank);
        check_talk(&chain);
    }
    buf_release(&text);
    close_chain(&chain);
}

/* A head that goes and one that comes: its clients' batches are its own affair. */
static void test_workers_wait_for_the_next_head(void **state)
{
    struct chain_of_three chain;
    (void)state;
    open_chain(&chain, PING_MS, 0);
    check_talk(&chain);
    uint32_t epoch = pipeline_epoch(chain.head);
    for (int i = 0; i < 3; i++) {
        pipeline_close(chain.head);
        open_head(&chain, 0);
        assert_true(pipeline_epoch(chain.head) != epoch);
        epoch = pipeline_epoch(chain.head);
        check_talk(&chain);
    }
    close_chain(&chain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults_of_frames_with_work),
        cmocka_unit_test(test_faults_in_prefill),
        cmocka_unit_test(test_faults_of_frames_without_work),
        cmocka_unit_test(test_an_owed_answer_that_does_not_come_ends_the_epoch),
        cmocka_unit_test(test_workers_may_come_and_go),
        cmocka_unit_test(test_workers_wait_for_the_next_head),
    };
    log_setup(LOG_ERROR, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
