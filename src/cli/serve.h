/* Joins a model's text side, its pipeline, a scheduler and the API server into a serving process:
 * what `run` does, and what rank 0 of `worker` does. Runs on the main thread. */
#ifndef CASCADIA_CLI_SERVE_H
#define CASCADIA_CLI_SERVE_H

#include "base/err.h"
#include "base/option.h"
#include "pipeline/pipeline.h"

#include <stdbool.h>
#include <stdint.h>

/* Filled from the command line through serve_rows; serve_options_init gives the defaults. */
struct serve_options {
    const char *host;
    uint32_t port;
    const char *served_name;   // NULL: the model's base name
    const char *chat_template; // file, or the name of a built-in one; NULL: the model's own
    uint32_t queue_cap;        // requests that wait
    uint32_t drain_timeout_s;
    uint64_t body_bytes_cap;
};

extern const struct option_row serve_rows[]; // of struct serve_options

void serve_options_init(struct serve_options *options);

/* Opens everything for `pipeline->engine.model` (a shard directory, or "mock-model") and serves
 * until SIGINT or SIGTERM. A second signal ends the process at once with status 1. `name` is what
 * the model is called if options->served_name is NULL. */
bool serve(const struct serve_options *options, const struct pipeline_options *pipeline,
           const char *name, struct err *err);

#endif
