#include "base/log.h"
#include "base/queue.h"
#include "helpers/cm.h"
#include "pipeline/acceptor.h"
#include "pipeline/dialler.h"
#include "pipeline/handshake.h"
#include "pipeline/payload.h"

#include <string.h>

static const struct engine_info whole = {
    .n_layers = 8,
    .layer_end = 8,
    .max_rows = 64,
    .max_sequences = 4,
    .n_pages = 100,
    .page_rows = 64,
    .vocab_size = 260,
    .ctx_size = 1024,
    .carry = 16,
    .model_hash = 0x1234,
    .settings_hash = 0x99,
};

/* Rank `rank` of three, with layers 0-3, 3-5 or 5-8. */
static struct handshake of_rank(uint32_t rank)
{
    static const uint32_t ends[4] = { 0, 3, 5, 8 };
    struct engine_info info = whole;
    struct handshake handshake;
    info.layer_first = ends[rank];
    info.layer_end = ends[rank + 1];
    handshake_init(&handshake, HANDSHAKE_NEIGHBOUR, rank, 3, &info);
    return handshake;
}

static void test_a_greeting_survives_a_round_trip(void **state)
{
    struct handshake mine = of_rank(1), again;
    struct frame frame;
    struct err err;
    (void)state;
    mine.info.rewind = REWIND_CHECKPOINTS;
    mine.info.n_checkpoints = 3;
    mine.info.step_read_ns = 77;
    mine.info.position_read_ps = 88;
    memcpy(mine.head, "[::1]:9000", 11);
    mine.head_is_definite = 1;
    frame_init(&frame);
    frame_start(&frame, FRAME_HELLO, 1);
    handshake_write(&frame, &mine);
    assert_true(handshake_read(&frame, &again, &err));
    assert_int_equal(again.role, HANDSHAKE_NEIGHBOUR);
    assert_true(again.rank == 1 && again.total == 3 && again.wire == FRAME_F32);
    assert_memory_equal(&again.info, &mine.info, sizeof mine.info);
    assert_string_equal(again.program, mine.program);
    assert_string_equal(again.head, "[::1]:9000");
    assert_int_equal(again.head_is_definite, 1);
    frame_release(&frame);
}

static void test_greetings_that_cannot_be(void **state)
{
    struct handshake mine, out;
    struct frame frame;
    struct err err;
    (void)state;
    frame_init(&frame);
    for (int i = 0; i < 8; i++) {
        mine = of_rank(1);
        if (i == 0)
            mine.rank = 3;
        if (i == 1)
            mine.info.layer_end = 9;
        if (i == 2)
            mine.info.layer_first = 5;
        if (i == 3)
            mine.info.max_rows = 0;
        if (i == 4)
            mine.info.carry = FRAME_COLUMNS_CAP + 1;
        if (i == 5)
            mine.role = HANDSHAKE_ROLE_COUNT;
        if (i == 6)
            memcpy(mine.head, "a\033[2J:1", 8);
        if (i == 7)
            mine.wire = FRAME_DTYPE_COUNT;
        frame_start(&frame, FRAME_HELLO, 1);
        handshake_write(&frame, &mine);
        assert_false(handshake_read(&frame, &out, &err));
        assert_int_equal(err.code, ERR_FORMAT);
    }
    mine = of_rank(1);
    frame_start(&frame, FRAME_HELLO, 1);
    handshake_write(&frame, &mine);
    frame.payload.size -= 1; // cut short
    assert_false(handshake_read(&frame, &out, &err));
    frame_release(&frame);
}

/* Both sides say the same sentence, and it holds `said`. */
static void check_mismatch(const struct handshake *dialled, const struct handshake *answered,
                           enum err_code code, const char *said)
{
    struct err err = { 0 };
    assert_false(handshake_check(dialled, answered, &err));
    assert_int_equal(err.code, code);
    if (!strstr(err.text, said))
        fail_msg("\"%s\" does not say \"%s\"", err.text, said);
}

static void test_neighbours_that_agree(void **state)
{
    struct handshake a = of_rank(0), b = of_rank(1), c = of_rank(2);
    struct err err;
    (void)state;
    assert_true(handshake_check(&a, &b, &err));
    assert_true(handshake_check(&b, &c, &err));
    c.role = HANDSHAKE_LAST_TO_HEAD;
    assert_true(handshake_check(&c, &a, &err));
}

static void test_every_mismatch_is_named(void **state)
{
    struct handshake a = of_rank(0), b = of_rank(1), bad;
    (void)state;
    bad = b, memcpy(bad.program, "0.0.7", 6);
    check_mismatch(&a, &bad, ERR_UNSUPPORTED, "0.0.7");
    bad = b, bad.wire = FRAME_F16;
    check_mismatch(&a, &bad, ERR_UNSUPPORTED, "f16");
    bad = b, bad.wire = FRAME_Q8;
    check_mismatch(&bad, &a, ERR_UNSUPPORTED, "q8");
    bad = b, bad.info.model_hash++;
    check_mismatch(&a, &bad, ERR_ARGUMENT, "model 0000000000001234");
    bad = b, bad.info.settings_hash++;
    check_mismatch(&a, &bad, ERR_ARGUMENT, "settings");
    bad = b, bad.total = 4;
    check_mismatch(&a, &bad, ERR_ARGUMENT, "number of stages");
    bad = b, bad.info.n_layers = 9;
    check_mismatch(&a, &bad, ERR_ARGUMENT, "number of layers");
    bad = b, bad.info.carry = 17;
    check_mismatch(&a, &bad, ERR_ARGUMENT, "floats a row");
    bad = b, bad.info.vocab_size = 261;
    check_mismatch(&a, &bad, ERR_ARGUMENT, "vocabulary");
    bad = b, bad.info.page_rows = 32;
    check_mismatch(&a, &bad, ERR_ARGUMENT, "rows a page");
    bad = b, bad.info.layer_first = 4;
    check_mismatch(&a, &bad, ERR_ARGUMENT, "ends at layer 3");
    bad = b, bad.info.layer_first = 2;
    check_mismatch(&a, &bad, ERR_ARGUMENT, "begins at 2");
    bad = b, bad.rank = 2;
    check_mismatch(&a, &bad, ERR_ARGUMENT, "should dial rank 1");
    bad = b, bad.info.layer_end = 8;
    check_mismatch(&a, &bad, ERR_ARGUMENT, "only the last has the last layer");
    bad = of_rank(2), bad.info.layer_end = 7;
    check_mismatch(&b, &bad, ERR_ARGUMENT, "only the last has the last layer");
    bad = b, bad.role = HANDSHAKE_LAST_TO_HEAD;
    check_mismatch(&bad, &a, ERR_ARGUMENT, "as if it were the head");
}

static void test_capacities_narrow(void **state)
{
    struct engine_info chain = whole, stage = whole;
    (void)state;
    stage.max_rows = 32;
    stage.max_sequences = 3;
    stage.n_pages = 50;
    stage.ctx_size = 512;
    handshake_narrow(&chain, &stage);
    assert_true(chain.max_rows == 32 && chain.max_sequences == 3 && chain.n_pages == 50 &&
                chain.ctx_size == 512);
    stage = whole; // larger again: stays
    stage.rewind = REWIND_CHECKPOINTS;
    stage.n_checkpoints = 7;
    handshake_narrow(&chain, &stage);
    assert_int_equal(chain.max_rows, 32);
    assert_true(chain.rewind == REWIND_CHECKPOINTS && chain.n_checkpoints == 7);
    stage.n_checkpoints = 2;
    handshake_narrow(&chain, &stage);
    assert_int_equal(chain.n_checkpoints, 2);
    stage.rewind = REWIND_ROWS; // needs none
    stage.n_checkpoints = 0;
    handshake_narrow(&chain, &stage);
    assert_true(chain.rewind == REWIND_CHECKPOINTS && chain.n_checkpoints == 2);
}

static void test_reads_add_up(void **state)
{
    struct engine_info chain = { .step_read_ns = 5, .position_read_ps = UINT32_MAX - 1 };
    const struct engine_info before = { .step_read_ns = 7, .position_read_ps = 2 };
    const struct engine_info unknown = { .step_read_ns = 0, .position_read_ps = 1 };
    (void)state;
    handshake_add_reads(&chain, &before);
    assert_int_equal(chain.step_read_ns, 12);
    assert_int_equal(chain.position_read_ps, UINT32_MAX);
    handshake_add_reads(&chain, &unknown);
    assert_int_equal(chain.step_read_ns, 0);
    handshake_add_reads(&chain, &before);
    assert_int_equal(chain.step_read_ns, 0);
}

static void test_where_the_head_is(void **state)
{
    static const struct {
        const char *listen, *peer, *head;
    } rows[] = {
        { "0.0.0.0:9000", "192.168.1.4:51234", "192.168.1.4:9000" },
        { "192.168.9.9:9000", "192.168.1.4:51234", "192.168.1.4:9000" },
        { "[::]:9000", "[fe80::1]:5", "[fe80::1]:9000" },
        { "0.0.0.0:9000", "127.0.0.1:5", "127.0.0.1:9000" },
        { "192.168.1.4:9000", "127.0.0.1:5",
          "192.168.1.4:9000" }, // rank 1 is on the head's machine
        { "127.0.0.1:9000", "127.0.0.1:5", "127.0.0.1:9000" },
        { "0.0.0.0:9000", "unix:/tmp/rank-1", "127.0.0.1:9000" },
        { "unix:/tmp/head", "127.0.0.1:5", "unix:/tmp/head" },
        { "local:head", "local:rank-1", "local:head" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char head[ADDRESS_TEXT_CAP];
        handshake_find_head(rows[i].listen, rows[i].peer, head);
        assert_string_equal(head, rows[i].head);
    }
}

/* --- over a link -------------------------------------------------------------------------------
 */

/* A side that answers as `answering`, one that dials as `dialling`. */
struct meeting {
    struct queue *events;
    struct frame_pool *pool;
    struct acceptor *acceptor;
    struct dialler *dialler;
};

static void meet(struct meeting *meeting, const struct handshake *dialling)
{
    struct err err;
    meeting->pool = frame_pool_new();
    meeting->events = queue_new(sizeof(struct event), EVENTS_CAP);
    const struct acceptor_options accept = { .listen = "local:meeting", .events = meeting->events };
    const struct dialler_options dial = { .address = "local:meeting",
                                          .who = "rank 1",
                                          .hello = *dialling,
                                          .epoch = 5,
                                          .tag = 9,
                                          .events = meeting->events,
                                          .pool = meeting->pool };
    meeting->acceptor = acceptor_start(&accept, &err);
    assert_non_null(meeting->acceptor);
    meeting->dialler = dialler_start(&dial, &err);
    assert_non_null(meeting->dialler);
}

static struct event next_event(struct meeting *meeting)
{
    struct event event;
    assert_true(queue_pop_wait(meeting->events, &event, 10000));
    return event;
}

static void part(struct meeting *meeting)
{
    dialler_stop(meeting->dialler);
    queue_close(meeting->events);
    acceptor_stop(meeting->acceptor);
    event_drain(meeting->events, meeting->pool);
    queue_free(meeting->events);
    frame_pool_free(meeting->pool);
}

static void test_a_welcome_joins(void **state)
{
    struct handshake a = of_rank(0), b = of_rank(1);
    struct meeting meeting;
    struct err err;
    (void)state;
    meet(&meeting, &a);
    struct event called = next_event(&meeting);
    assert_int_equal(called.kind, EVENT_CALLED);
    assert_int_equal(called.greeting->epoch, 5);
    assert_int_equal(called.greeting->theirs.rank, 0);
    assert_true(greeting_welcome(called.greeting, &b, &err));
    struct event joined = next_event(&meeting);
    assert_int_equal(joined.kind, EVENT_JOINED);
    assert_int_equal(joined.tag, 9);
    assert_int_equal(joined.greeting->theirs.rank, 1);
    event_drop(&called, meeting.pool);
    event_drop(&joined, meeting.pool);
    part(&meeting);
}

/* Strangers that dial in and stay silent, each of whom may take ten seconds, hold up nobody. */
static void test_silent_strangers_hold_up_nobody(void **state)
{
    struct handshake a = of_rank(0);
    struct link *strangers[12];
    struct meeting meeting = { .pool = frame_pool_new(),
                               .events = queue_new(sizeof(struct event), EVENTS_CAP) };
    const struct acceptor_options accept = { .listen = "127.0.0.1:0", .events = meeting.events };
    const struct link_options calm = { 0 };
    struct err err;
    (void)state;
    meeting.acceptor = acceptor_start(&accept, &err);
    assert_non_null(meeting.acceptor);
    const char *address = acceptor_address(meeting.acceptor);
    for (int i = 0; i < 12; i++) {
        strangers[i] = link_dial(address, &calm, 5000, NULL, &err);
        assert_non_null(strangers[i]);
    }
    const struct dialler_options dial = { .address = address,
                                          .who = "rank 1",
                                          .hello = a,
                                          .epoch = 5,
                                          .tag = 9,
                                          .events = meeting.events,
                                          .pool = meeting.pool };
    meeting.dialler = dialler_start(&dial, &err);
    assert_non_null(meeting.dialler);
    struct event called = next_event(&meeting); // within the ten seconds
    assert_int_equal(called.kind, EVENT_CALLED);
    assert_int_equal(called.greeting->epoch, 5);
    event_drop(&called, meeting.pool);
    for (int i = 0; i < 12; i++)
        link_close(strangers[i]);
    part(&meeting);
}

/* The side that answers finds the mismatch; the one that dials says the same, and tries again. */
static void test_a_mismatch_is_said_on_both_sides(void **state)
{
    struct handshake a = of_rank(0), b = of_rank(1);
    struct meeting meeting;
    struct err err;
    char said[sizeof err.text];
    (void)state;
    b.info.model_hash = 0xbad;
    meet(&meeting, &a);
    for (int i = 0; i < 2; i++) {
        struct event event = next_event(&meeting);
        while (event.kind != EVENT_CALLED) { // an AWAIT of the try before
            event_drop(&event, meeting.pool);
            event = next_event(&meeting);
        }
        assert_false(greeting_welcome(event.greeting, &b, &err));
        event_drop(&event, meeting.pool);
        if (i > 0)
            break;
        event = next_event(&meeting);
        assert_int_equal(event.frame->header.kind, FRAME_AWAIT);
        payload_read_await(event.frame, said, sizeof said);
        assert_non_null(strstr(said, err.text));
        assert_non_null(strstr(said, "0bad"));
        event_drop(&event, meeting.pool);
    }
    part(&meeting);
}

/* The side that dials finds what the other overlooked. */
static void test_the_dialler_looks_for_itself(void **state)
{
    struct handshake a = of_rank(0), b = of_rank(1), blind;
    struct meeting meeting;
    struct frame frame;
    struct err err;
    (void)state;
    meet(&meeting, &a);
    struct event called = next_event(&meeting);
    blind = b;
    blind.info.settings_hash = 1;
    frame_init(&frame);
    frame_start(&frame, FRAME_WELCOME, 5);
    handshake_write(&frame, &blind);
    assert_true(link_send(called.greeting->link, &frame, &err));
    assert_true(link_receive(called.greeting->link, &frame, 10000, &err));
    assert_int_equal(frame.header.kind, FRAME_FAIL);
    payload_read_fail(&frame, &err);
    assert_non_null(strstr(err.text, "settings"));
    frame_release(&frame);
    event_drop(&called, meeting.pool);
    part(&meeting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_greeting_survives_a_round_trip),
        cmocka_unit_test(test_greetings_that_cannot_be),
        cmocka_unit_test(test_neighbours_that_agree),
        cmocka_unit_test(test_every_mismatch_is_named),
        cmocka_unit_test(test_capacities_narrow),
        cmocka_unit_test(test_reads_add_up),
        cmocka_unit_test(test_where_the_head_is),
        cmocka_unit_test(test_a_welcome_joins),
        cmocka_unit_test(test_silent_strangers_hold_up_nobody),
        cmocka_unit_test(test_a_mismatch_is_said_on_both_sides),
        cmocka_unit_test(test_the_dialler_looks_for_itself),
    };
    log_setup(LOG_ERROR, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
