/* Options travel as words: a child is "PROGRAM rank WORD...", in the order of the list below. */
#include "helpers/ranks.h"
#include "helpers/cm.h"

#include "net/socket.h"
#include "pipeline/worker.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_S 250
#define N_TEXTS 4
#define N_NUMBERS 10
#define WORD_CAP 32

extern char **environ;

static atomic_int stop;

static void on_signal(int number)
{
    (void)number;
    atomic_store(&stop, 1);
}

static bool read_words(char **words, struct pipeline_options *options)
{
    uint64_t numbers[N_NUMBERS];
    const char *texts[N_TEXTS];
    for (int i = 0; i < N_TEXTS; i++)
        texts[i] = words[i][0] ? words[i] : NULL;
    for (int i = 0; i < N_NUMBERS; i++) {
        if (!str_to_u64(str_from(words[N_TEXTS + i]), &numbers[i]))
            return false;
    }
    *options = (struct pipeline_options){
        .engine = { .model = texts[0],
                    .engine = texts[1],
                    .ctx_size = (uint32_t)numbers[4],
                    .max_rows = (uint32_t)numbers[5],
                    .max_sequences = (uint32_t)numbers[6],
                    .threads = (uint32_t)numbers[7],
                    .layer_first = (uint32_t)numbers[2],
                    .layer_end = (uint32_t)numbers[3] },
        .rank = (uint32_t)numbers[0],
        .total = (uint32_t)numbers[1],
        .listen = texts[2],
        .next = texts[3],
        .ping_ms = numbers[8],
        .frame_ms = numbers[9],
    };
    return true;
}

bool ranks_main(int argc, char **argv, ranks_head *head, int *status)
{
    const struct sigaction action = { .sa_handler = on_signal };
    struct pipeline_options options;
    struct err err;
    if (argc != 2 + N_TEXTS + N_NUMBERS || strcmp(argv[1], "rank") != 0)
        return false;
    *status = 1;
    alarm(CHILD_S);
    sigaction(SIGTERM, &action, NULL);
    if (!read_words(argv + 2, &options))
        return true;
    if (options.rank == 0)
        *status = head ? head(&options) : 1;
    else if (worker_run(&options, &stop, &err))
        *status = 0;
    else
        fprintf(stderr, "rank %u: %s\n", options.rank, err.text);
    return true;
}

static pid_t spawn(char **words, int out)
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

pid_t ranks_start(const struct pipeline_options *options, int out)
{
    const struct engine_options *engine = &options->engine;
    const uint64_t numbers[N_NUMBERS] = {
        options->rank,    options->total,    engine->layer_first,   engine->layer_end,
        engine->ctx_size, engine->max_rows,  engine->max_sequences, engine->threads,
        options->ping_ms, options->frame_ms,
    };
    const char *texts[2 + N_TEXTS] = { "ranks",        "rank",          engine->model,
                                       engine->engine, options->listen, options->next };
    char *words[2 + N_TEXTS + N_NUMBERS + 1] = { NULL };
    char digits[N_NUMBERS][WORD_CAP];
    for (int i = 0; i < 2 + N_TEXTS; i++) // the system's type has no const; it only reads
        words[i] = (char *)(uintptr_t)(texts[i] ? texts[i] : "");
    for (int i = 0; i < N_NUMBERS; i++) {
        snprintf(digits[i], sizeof digits[i], "%llu", (unsigned long long)numbers[i]);
        words[2 + N_TEXTS + i] = digits[i];
    }
    return spawn(words, out);
}

void ranks_kill(pid_t rank)
{
    int status;
    assert_int_equal(kill(rank, SIGKILL), 0);
    assert_int_equal(waitpid(rank, &status, 0), rank);
    assert_true(WIFSIGNALED(status));
}

void ranks_end(pid_t rank)
{
    int status;
    assert_int_equal(kill(rank, SIGTERM), 0);
    assert_int_equal(waitpid(rank, &status, 0), rank);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

void ranks_check_running(pid_t rank)
{
    assert_int_equal(waitpid(rank, NULL, WNOHANG), 0);
}

void ranks_choose_addresses(char addresses[][RANKS_ADDRESS_CAP], uint32_t n)
{
    struct socket_listener *listeners[RANKS_CAP];
    struct address address;
    struct err err;
    assert_true(n <= RANKS_CAP && address_parse(STR("127.0.0.1:0"), &address, &err));
    for (uint32_t i = 0; i < n; i++) {
        listeners[i] = socket_listen(&address, &err);
        assert_non_null(listeners[i]);
        snprintf(addresses[i], RANKS_ADDRESS_CAP, "127.0.0.1:%u",
                 socket_listener_address(listeners[i])->port);
    }
    for (uint32_t i = 0; i < n; i++)
        socket_listener_close(listeners[i]);
}
