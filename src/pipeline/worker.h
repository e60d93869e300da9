/* A stage that is not the head: waits for the neighbour before it, dials the one after it (the last
 * stage: the head), and works for as many epochs and heads as come.
 *
 * The thread that calls worker_run owns the worker's connections. */
#ifndef CASCADIA_PIPELINE_WORKER_H
#define CASCADIA_PIPELINE_WORKER_H

#include "base/err.h"
#include "pipeline/pipeline.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Runs until *stop is set, by a signal handler or another thread: says BYE and returns true. False
 * only for what no other machine can mend: options, engine, address in use. The loss of neighbours
 * and of the head is survived. */
bool worker_run(const struct pipeline_options *options, const atomic_int *stop, struct err *err);

#endif
