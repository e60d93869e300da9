/* Conversations with the mock engine over a pipeline: what a head does, as small as it can be. */
#ifndef CASCADIA_TESTS_HELPERS_ECHO_H
#define CASCADIA_TESTS_HELPERS_ECHO_H

#include "base/err.h"
#include "pipeline/pipeline.h"

#include <stdbool.h>
#include <stdint.h>

#define ECHO_STREAMS_CAP 8u

struct echo_options {
    const char *text;   // what each stream says, with its number in front
    uint32_t n_streams; // sequences 0 .. n_streams - 1
    /* Called when a batch has been submitted and not yet been answered; step 0 is the prompts. */
    void (*in_flight)(void *context, uint32_t step);
    void *context;
};

/* Polls until the chain is ready; false when it is not within timeout_ms. */
bool echo_wait_ready(struct pipeline *pipeline, uint64_t timeout_ms);

/* Runs the streams side by side until each has heard its text and the end: true. False with the
 * reason when a batch fails; then nothing is in flight, and a new talk may begin. Fails the test on
 * any token that is not the right one, and when an answer takes longer than 20 s. */
bool echo_talk(struct pipeline *pipeline, const struct echo_options *options, struct err *err);

#endif
