/* Three ranks in processes of their own, over TCP, that are killed outright: in every phase the
 * head hears of it soon, and the rank that is started again serves with the others as they are.
 *
 * The program starts itself: with "worker" as its first word it is one rank, with "head" a head
 * that holds a conversation and then waits to be killed. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "helpers/cm.h"
#include "helpers/echo.h"
#include "helpers/ranks.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define SOON_MS 5000
#define PATIENT_MS 30000
#define TEXT "the quick brown fox jumps over the lazy dog"

struct chain_of_three {
    char addresses[3][RANKS_ADDRESS_CAP];
    pid_t ranks[3]; // the head's only in the test that kills heads
    struct pipeline *head;
};

static struct pipeline_options options_of(const struct chain_of_three *chain, uint32_t rank)
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
        .listen = chain->addresses[rank],
        .next = rank < 2 ? chain->addresses[rank + 1] : NULL,
        .ping_ms = 200,
        .frame_ms = 1000,
    };
}

/* A head in a process of its own: says on stdout when it has heard all of it. */
static int be_head(const struct pipeline_options *options)
{
    const struct echo_options talk = { .text = TEXT, .n_streams = 4 };
    const struct pipeline_result *result;
    struct err err;
    struct pipeline *head = pipeline_open(options, &err);
    if (!head || !echo_wait_ready(head, PATIENT_MS) || !echo_talk(head, &talk, &err))
        return 1;
    if (write(STDOUT_FILENO, "+", 1) != 1)
        return 1;
    for (;;)
        pipeline_poll(head, 100, &result);
}

static void start_rank(struct chain_of_three *chain, uint32_t rank, int out)
{
    const struct pipeline_options options = options_of(chain, rank);
    chain->ranks[rank] = ranks_start(&options, out);
}

/* --- the chain ---------------------------------------------------------------------------------
 */

static void open_head(struct chain_of_three *chain)
{
    const struct pipeline_options options = options_of(chain, 0);
    struct err err;
    chain->head = pipeline_open(&options, &err);
    if (!chain->head)
        fail_msg("%s", err.text);
}

static void open_chain(struct chain_of_three *chain)
{
    *chain = (struct chain_of_three){ 0 };
    ranks_choose_addresses(chain->addresses, 3);
    start_rank(chain, 1, -1);
    start_rank(chain, 2, -1);
    open_head(chain);
    assert_true(echo_wait_ready(chain->head, PATIENT_MS));
}

static void close_chain(struct chain_of_three *chain)
{
    pipeline_close(chain->head);
    ranks_end(chain->ranks[1]);
    ranks_end(chain->ranks[2]);
}

static void check_serves(struct chain_of_three *chain)
{
    const struct echo_options talk = { .text = TEXT, .n_streams = 4 };
    struct err err;
    assert_true(echo_wait_ready(chain->head, PATIENT_MS));
    if (!echo_talk(chain->head, &talk, &err))
        fail_msg("%s", err.text);
}

/* A rank dies while a batch is in flight for certain: it was stopped before the batch was sent. */
struct blow {
    struct chain_of_three *chain;
    uint32_t rank, at_step;
    uint64_t struck_ms;
};

static void strike(void *context, uint32_t step)
{
    struct blow *blow = context;
    if (step + 1 == blow->at_step) {
        kill(blow->chain->ranks[blow->rank], SIGSTOP); // from the next batch on it answers nothing
    } else if (step == blow->at_step) {
        blow->struck_ms = clock_ms();
        ranks_kill(blow->chain->ranks[blow->rank]);
    }
}

/* Step 1 is the first token after the prompts; 0 the prompts themselves. */
static void check_blow(struct chain_of_three *chain, uint32_t rank, uint32_t at_step)
{
    struct blow blow = { chain, rank, at_step, 0 };
    const struct echo_options talk = {
        .text = TEXT, .n_streams = 4, .in_flight = strike, .context = &blow
    };
    struct err err = { 0 };
    if (at_step == 0)
        kill(chain->ranks[rank], SIGSTOP);
    assert_false(echo_talk(chain->head, &talk, &err));
    assert_int_equal(err.code, ERR_PEER_LOST);
    if (blow.struck_ms) // else the pings found the stopped rank first
        assert_true(clock_ms() - blow.struck_ms < SOON_MS);
    else
        ranks_kill(chain->ranks[rank]);
    ranks_check_running(chain->ranks[3 - rank]);
    start_rank(chain, rank, -1);
    check_serves(chain);
}

static void test_a_killed_rank_is_heard_of_and_taken_in_again(void **state)
{
    struct chain_of_three chain;
    (void)state;
    open_chain(&chain);
    check_serves(&chain);
    for (uint32_t rank = 1; rank < 3; rank++) {
        check_blow(&chain, rank, 0); // in prefill
        check_blow(&chain, rank, 9); // in decode
    }
    close_chain(&chain);
}

static void test_a_rank_killed_while_idle(void **state)
{
    struct chain_of_three chain;
    (void)state;
    open_chain(&chain);
    for (uint32_t rank = 1; rank < 3; rank++) {
        const struct pipeline_result *result;
        uint64_t started = clock_ms();
        ranks_kill(chain.ranks[rank]);
        while (pipeline_state(chain.head) == PIPELINE_READY) {
            assert_false(pipeline_poll(chain.head, 100, &result));
            assert_true(clock_ms() - started < SOON_MS);
        }
        ranks_check_running(chain.ranks[3 - rank]);
        start_rank(&chain, rank, -1);
        check_serves(&chain);
    }
    close_chain(&chain);
}

/* A rank that lives and does nothing: its links stay open, so only the pings tell. */
static void test_a_stopped_rank_is_lost_by_its_pings(void **state)
{
    struct chain_of_three chain;
    (void)state;
    open_chain(&chain);
    for (uint32_t rank = 1; rank < 3; rank++) {
        const struct echo_options talk = { .text = TEXT, .n_streams = 4 };
        struct err err = { 0 };
        uint64_t started = clock_ms();
        kill(chain.ranks[rank], SIGSTOP);
        assert_false(echo_talk(chain.head, &talk, &err));
        assert_int_equal(err.code, ERR_PEER_LOST);
        assert_true(clock_ms() - started < SOON_MS);
        kill(chain.ranks[rank], SIGCONT);
        check_serves(&chain);
    }
    close_chain(&chain);
}

static void test_killed_heads_are_followed_by_others(void **state)
{
    struct chain_of_three chain;
    int pipe_ends[2];
    char said;
    (void)state;
    open_chain(&chain);
    pipeline_close(chain.head);
    assert_int_equal(pipe(pipe_ends), 0);
    for (int i = 0; i < 3; i++) {
        start_rank(&chain, 0, pipe_ends[1]);
        assert_int_equal(read(pipe_ends[0], &said, 1), 1); // it has talked
        ranks_kill(chain.ranks[0]);
        ranks_check_running(chain.ranks[1]);
        ranks_check_running(chain.ranks[2]);
    }
    open_head(&chain);
    check_serves(&chain);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    close_chain(&chain);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_rank_is_heard_of_and_taken_in_again),
        cmocka_unit_test(test_a_rank_killed_while_idle),
        cmocka_unit_test(test_a_stopped_rank_is_lost_by_its_pings),
        cmocka_unit_test(test_killed_heads_are_followed_by_others),
    };
    int status;
    log_setup(LOG_ERROR, false);
    if (ranks_main(argc, argv, be_head, &status))
        return status;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
