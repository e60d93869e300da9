/* The options of an engine, in one place: every command that opens one joins these tables, so that
 * an option has one name, one range, one sentence and one exit status wherever it is taken. An
 * option that all of them understand is a row here and a field that engine_choice_take hands on.
 * Owned by the command that parses. */
#ifndef CASCADIA_CLI_ENGINE_CHOICE_H
#define CASCADIA_CLI_ENGINE_CHOICE_H

#include "base/option.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

struct engine_choice {
    const char *engine, *device;
    const char *isa, *kv_type, *activation;
    uint32_t ctx_size, threads, max_sequences;
    uint64_t kv_memory;
    bool prefault, mlock;
};

/* How it computes: for every command that runs a model. */
extern const struct option_row engine_choice_compute_rows[]; // of struct engine_choice
/* What runs it and for how many: for those that serve. */
extern const struct option_row engine_choice_serve_rows[]; // of struct engine_choice

/* Sets what was chosen in `options`, and leaves the rest: the model, layers, rows of a batch. */
void engine_choice_take(const struct engine_choice *choice, struct engine_options *options);

#endif
