/* Stages that are not alike: the head plans within the smallest of them, a failure on one rank
 * alone is put right on all, and ranks that do not fit together are named at the head. */
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "helpers/cm.h"
#include "helpers/echo.h"
#include "pipeline/worker.h"

#include <stdatomic.h>
#include <string.h>

#define N_RANKS 3u
#define SOON_MS 10000
#define PAGE_BYTES (64u * sizeof(int32_t)) // of the mock

struct member {
    struct pipeline_options options;
    atomic_int stop;
    struct thread thread;
    bool ran;
    struct err err;
};

struct unequal_chain {
    struct member members[N_RANKS]; // the first is the head and has no thread
    struct pipeline *head;
};

/* Ranks that fit; a test then changes some. */
static void lay_out(struct unequal_chain *chain)
{
    static const uint32_t ends[N_RANKS + 1] = { 0, 2, 5, 8 };
    static const char *const addresses[N_RANKS + 1] = { "local:chain-0", "local:chain-1",
                                                        "local:chain-2", NULL };
    *chain = (struct unequal_chain){ 0 };
    for (uint32_t rank = 0; rank < N_RANKS; rank++)
        chain->members[rank].options = (struct pipeline_options){
            .engine = { .model = "mock-model",
                        .engine = "mock",
                        .ctx_size = 1024,
                        .layer_first = ends[rank],
                        .layer_end = ends[rank + 1] },
            .rank = rank,
            .total = N_RANKS,
            .listen = addresses[rank],
            .next = addresses[rank + 1],
        };
}

static void run_member(void *context)
{
    struct member *member = context;
    member->ran = worker_run(&member->options, &member->stop, &member->err);
}

static void start_member(struct unequal_chain *chain, uint32_t rank)
{
    struct err err;
    atomic_store(&chain->members[rank].stop, 0);
    assert_true(thread_start(&chain->members[rank].thread, "worker", run_member,
                             &chain->members[rank], &err));
}

static void stop_member(struct unequal_chain *chain, uint32_t rank)
{
    atomic_store(&chain->members[rank].stop, 1);
    thread_join(&chain->members[rank].thread);
    assert_true(chain->members[rank].ran);
}

static void open_chain(struct unequal_chain *chain)
{
    struct err err;
    for (uint32_t rank = N_RANKS - 1; rank > 0; rank--)
        start_member(chain, rank);
    chain->head = pipeline_open(&chain->members[0].options, &err);
    if (!chain->head)
        fail_msg("%s", err.text);
}

static void close_chain(struct unequal_chain *chain)
{
    pipeline_close(chain->head);
    for (uint32_t rank = 1; rank < N_RANKS; rank++)
        stop_member(chain, rank);
}

static void check_serves(struct unequal_chain *chain, uint32_t n_streams)
{
    const struct echo_options talk = { .text = "hello", .n_streams = n_streams };
    struct err err;
    assert_true(echo_wait_ready(chain->head, SOON_MS));
    if (!echo_talk(chain->head, &talk, &err))
        fail_msg("%s", err.text);
}

static void test_the_head_plans_within_the_smallest(void **state)
{
    struct unequal_chain chain;
    struct row row = { .position = 511, .token = 'a' };
    struct batch batch = { .n_rows = 1, .rows_cap = 1, .rows = &row };
    struct err err;
    (void)state;
    lay_out(&chain);
    chain.members[0].options.engine.max_sequences = 12;
    chain.members[1].options.engine.max_rows = 100;
    chain.members[1].options.engine.kv_memory_bytes = 40 * PAGE_BYTES;
    chain.members[2].options.engine.ctx_size = 500;
    open_chain(&chain);
    assert_int_equal(pipeline_info(chain.head)->ctx_size, 1024); // its own, before
    assert_true(echo_wait_ready(chain.head, SOON_MS));
    const struct engine_info *info = pipeline_info(chain.head);
    assert_int_equal(info->max_sequences, 12);
    assert_int_equal(info->max_rows, 100);
    assert_int_equal(info->n_pages, 40);
    assert_int_equal(info->ctx_size, 500);
    assert_false(pipeline_submit(chain.head, &batch, NULL, NULL, 0, &err)); // past the last's
    assert_int_equal(err.code, ERR_ARGUMENT);
    check_serves(&chain, 4);
    close_chain(&chain);
}

/* Rank 1 alone runs out of pages: rank 0 has taken the rows, rank 2 never sees them. */
static void test_a_failure_in_the_middle_is_put_right_on_all(void **state)
{
    struct unequal_chain chain;
    struct err err = { 0 };
    const struct echo_options too_many = { .text = "hello", .n_streams = 4 };
    (void)state;
    lay_out(&chain);
    chain.members[1].options.engine.kv_memory_bytes = 3 * PAGE_BYTES;
    open_chain(&chain);
    assert_true(echo_wait_ready(chain.head, SOON_MS));
    uint32_t epoch = pipeline_epoch(chain.head);
    for (int i = 0; i < 3; i++) {
        assert_false(echo_talk(chain.head, &too_many, &err));
        assert_int_equal(err.code, ERR_BUSY);
        assert_non_null(strstr(err.text, "rank 1"));
        check_serves(&chain, 3);
    }
    assert_int_equal(pipeline_epoch(chain.head), epoch); // one batch, not the chain
    close_chain(&chain);
}

/* Polls until the head's description has `said`. */
static void wait_until_described(struct unequal_chain *chain, const char *said)
{
    const struct pipeline_result *result;
    uint64_t started = clock_ms();
    struct buf text;
    buf_init(&text, 4096);
    for (;;) {
        pipeline_poll(chain->head, 20, &result);
        buf_clear(&text);
        pipeline_describe(chain->head, &text);
        if (strstr(text.data, said))
            break;
        if (clock_ms() - started > SOON_MS)
            fail_msg("%s does not say \"%s\"", text.data, said);
    }
    assert_int_equal(pipeline_state(chain->head), PIPELINE_CONNECTING);
    buf_release(&text);
}

static void test_ranks_that_do_not_fit_are_named_at_the_head(void **state)
{
    struct unequal_chain chain;
    (void)state;
    lay_out(&chain);
    chain.members[2].options.engine.layer_first = 6;
    open_chain(&chain);
    wait_until_described(&chain, "rank 1 ends at layer 5, rank 2 begins at 6");
    stop_member(&chain, 2);
    chain.members[2].options.engine.layer_first = 5; // mended there: nobody else is started again
    start_member(&chain, 2);
    check_serves(&chain, 4);
    close_chain(&chain);
}

static void test_workers_that_cannot_be(void **state)
{
    struct pipeline_options good, bad;
    struct unequal_chain chain;
    const atomic_int stop = 1;
    struct err err;
    (void)state;
    lay_out(&chain);
    good = chain.members[1].options;
    assert_true(worker_run(&good, &stop, &err)); // told to stop at once
    bad = good, bad.rank = 3;
    assert_false(worker_run(&bad, &stop, &err));
    bad = good, bad.listen = NULL;
    assert_false(worker_run(&bad, &stop, &err));
    bad = good, bad.next = NULL;
    assert_false(worker_run(&bad, &stop, &err));
    bad = good, bad.engine.layer_end = 8;
    assert_false(worker_run(&bad, &stop, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    bad = good, bad.listen = "0.0.0.0:0";
    assert_false(worker_run(&bad, &stop, &err));
    assert_non_null(strstr(err.text, "--insecure"));
    bad = good, bad.engine.engine = "steam";
    assert_false(worker_run(&bad, &stop, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    bad = chain.members[0].options, bad.next = NULL;
    assert_null(pipeline_open(&bad, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    bad = chain.members[0].options, bad.listen = NULL;
    assert_null(pipeline_open(&bad, &err));
    bad = chain.members[0].options, bad.rank = 1;
    assert_null(pipeline_open(&bad, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_head_plans_within_the_smallest),
        cmocka_unit_test(test_a_failure_in_the_middle_is_put_right_on_all),
        cmocka_unit_test(test_ranks_that_do_not_fit_are_named_at_the_head),
        cmocka_unit_test(test_workers_that_cannot_be),
    };
    log_setup(LOG_ERROR, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
