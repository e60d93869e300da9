/* Stages in processes of their own, started from the test program itself: what a test needs that
 * kills them, or that wants to be sure that nothing is shared.
 *
 * main() asks ranks_main first. Children end by themselves after a few minutes, so that none
 * outlives a test that failed. */
#ifndef CASCADIA_TESTS_HELPERS_RANKS_H
#define CASCADIA_TESTS_HELPERS_RANKS_H

#include "pipeline/pipeline.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RANKS_CAP 8
#define RANKS_ADDRESS_CAP 32

/* A head for child processes, or NULL: runs as long as it likes, returns the exit status. */
typedef int ranks_head(const struct pipeline_options *options);

/* True in a child process, whose exit status is then in *status. */
bool ranks_main(int argc, char **argv, ranks_head *head, int *status);

/* Starts rank options->rank as a process. `out`: what becomes its stdout, or -1. */
pid_t ranks_start(const struct pipeline_options *options, int out);
void ranks_kill(pid_t rank);          // SIGKILL, and waits
void ranks_end(pid_t rank);           // SIGTERM; fails the test unless it ends with status 0
void ranks_check_running(pid_t rank); // fails the test if it has ended

/* "127.0.0.1:port" of ports that were free a moment ago. */
void ranks_choose_addresses(char addresses[][RANKS_ADDRESS_CAP], uint32_t n);

#endif
