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
#include "net/socket.h"
#include "pipeline/worker.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOON_MS 5000
#define PATIENT_MS 30000
#define CHILD_S 200 // no child outlives a test that failed by much
#define TEXT "the quick brown fox jumps over the lazy dog"

extern char **environ;

struct chain_of_three {
    char addresses[3][32];
    pid_t ranks[3]; // 0: not running; the head's only in the test that kills heads
    struct pipeline *head;
};

/* --- processes ---------------------------------------------------------------------------------
 */

static struct pipeline_options options_of(uint32_t rank, const char *listen, const char *next)
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
        .listen = listen,
        .next = next,
        .ping_ms = 200,
        .frame_ms = 1000,
    };
}

static atomic_int stop;

static void on_signal(int number)
{
    (void)number;
    atomic_store(&stop, 1);
}

static int be_worker(char **words)
{
    const struct sigaction action = { .sa_handler = on_signal };
    const char *next = words[2][0] ? words[2] : NULL;
    struct pipeline_options options = options_of((uint32_t)(words[0][0] - '0'), words[1], next);
    struct err err;
    sigaction(SIGTERM, &action, NULL);
    return worker_run(&options, &stop, &err) ? 0 : 1;
}

/* Says on stdout when it has heard all of it. */
static int be_head(char **words)
{
    struct pipeline_options options = options_of(0, words[1], words[2]);
    const struct echo_options talk = { .text = TEXT, .n_streams = 4 };
    const struct pipeline_result *result;
    struct err err;
    struct pipeline *head = pipeline_open(&options, &err);
    if (!head || !echo_wait_ready(head, PATIENT_MS) || !echo_talk(head, &talk, &err))
        return 1;
    if (write(STDOUT_FILENO, "+", 1) != 1)
        return 1;
    for (;;)
        pipeline_poll(head, 100, &result);
}

/* `out`: what becomes its stdout, or -1. */
static pid_t start_process(char *const words[], int out)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    if (out >= 0)
        posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, words, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static void start_rank(struct chain_of_three *chain, uint32_t rank)
{
    char number[2] = { (char)('0' + rank), '\0' }, none[1] = "";
    char program[] = "rank", kind[] = "worker";
    char *words[] = {
        program, kind, number, chain->addresses[rank], rank < 2 ? chain->addresses[rank + 1] : none,
        NULL
    };
    chain->ranks[rank] = start_process(words, -1);
}

static void kill_rank(struct chain_of_three *chain, uint32_t rank)
{
    int status;
    assert_int_equal(kill(chain->ranks[rank], SIGKILL), 0);
    assert_int_equal(waitpid(chain->ranks[rank], &status, 0), chain->ranks[rank]);
    assert_true(WIFSIGNALED(status));
    chain->ranks[rank] = 0;
}

static void check_running(const struct chain_of_three *chain, uint32_t rank)
{
    assert_int_equal(waitpid(chain->ranks[rank], NULL, WNOHANG), 0);
}

/* SIGTERM ends a rank with status 0. */
static void end_rank(struct chain_of_three *chain, uint32_t rank)
{
    int status;
    assert_int_equal(kill(chain->ranks[rank], SIGTERM), 0);
    assert_int_equal(waitpid(chain->ranks[rank], &status, 0), chain->ranks[rank]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* --- the chain ---------------------------------------------------------------------------------
 */

/* Ports that were free a moment ago. */
static void choose_addresses(struct chain_of_three *chain)
{
    struct socket_listener *listeners[3];
    struct address address;
    struct err err;
    assert_true(address_parse(STR("127.0.0.1:0"), &address, &err));
    for (int i = 0; i < 3; i++) {
        listeners[i] = socket_listen(&address, &err);
        assert_non_null(listeners[i]);
        snprintf(chain->addresses[i], sizeof chain->addresses[i], "127.0.0.1:%u",
                 socket_listener_address(listeners[i])->port);
    }
    for (int i = 0; i < 3; i++)
        socket_listener_close(listeners[i]);
}

static void open_head(struct chain_of_three *chain)
{
    struct pipeline_options options = options_of(0, chain->addresses[0], chain->addresses[1]);
    struct err err;
    chain->head = pipeline_open(&options, &err);
    if (!chain->head)
        fail_msg("%s", err.text);
}

static void open_chain(struct chain_of_three *chain)
{
    *chain = (struct chain_of_three){ 0 };
    choose_addresses(chain);
    start_rank(chain, 1);
    start_rank(chain, 2);
    open_head(chain);
    assert_true(echo_wait_ready(chain->head, PATIENT_MS));
}

static void close_chain(struct chain_of_three *chain)
{
    pipeline_close(chain->head);
    end_rank(chain, 1);
    end_rank(chain, 2);
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
        kill_rank(blow->chain, blow->rank);
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
        kill_rank(chain, rank);
    check_running(chain, rank == 1 ? 2 : 1);
    start_rank(chain, rank);
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
        kill_rank(&chain, rank);
        while (pipeline_state(chain.head) == PIPELINE_READY) {
            assert_false(pipeline_poll(chain.head, 100, &result));
            assert_true(clock_ms() - started < SOON_MS);
        }
        check_running(&chain, 3 - rank);
        start_rank(&chain, rank);
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
    char program[] = "rank", kind[] = "head", number[] = "0", said;
    int pipe_ends[2];
    (void)state;
    open_chain(&chain);
    pipeline_close(chain.head);
    assert_int_equal(pipe(pipe_ends), 0);
    for (int i = 0; i < 3; i++) {
        char *words[] = { program, kind, number, chain.addresses[0], chain.addresses[1], NULL };
        chain.ranks[0] = start_process(words, pipe_ends[1]);
        assert_int_equal(read(pipe_ends[0], &said, 1), 1); // it has talked
        kill_rank(&chain, 0);
        check_running(&chain, 1);
        check_running(&chain, 2);
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
    log_setup(LOG_ERROR, false);
    if (argc == 5)
        alarm(CHILD_S);
    if (argc == 5 && strcmp(argv[1], "worker") == 0)
        return be_worker(argv + 2);
    if (argc == 5 && strcmp(argv[1], "head") == 0)
        return be_head(argv + 2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
