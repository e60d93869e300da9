/* What a person calls MODEL, as a shard directory: every command that runs a model goes through
 * here. The only place that asks the environment where the user's cache is. The main thread: signal
 * handlers stand while a shard is written. */
#ifndef CASCADIA_CLI_MODEL_PATH_H
#define CASCADIA_CLI_MODEL_PATH_H

#include "base/err.h"
#include "base/option.h"

#include <stdbool.h>
#include <stdint.h>

struct model_path_options {
    const char *quantization; // of a float source; NULL: int4, or what a shard directory holds
    uint32_t group_size;      // 0: 32
    bool requantise;          // a quantised source too
    const char *importance;   // a file of `eval importance`; NULL: none
    uint32_t threads;         // of the quantiser; 0: one a processor
};

/* What a command line says of it, but the threads. */
extern const struct option_row model_path_rows[]; // of struct model_path_options

/* $XDG_CACHE_HOME/cascadia, or ~/.cache/cascadia; caller frees. ERR_NOT_FOUND: neither is set. */
char *model_path_cache(struct err *err);

/* Where it is remembered which shard content was checked (engine_options.record_dir); caller frees.
 * NULL and ERR_NOT_FOUND like model_path_cache. */
char *model_path_record(struct err *err);

/* The engine for MODEL when none is named: "mock" for the name mock-model, unless a file has it,
 * else "native". */
const char *model_path_engine(const char *model);

/* A shard directory is itself; a GGUF file or a Hugging Face directory is quantised into the cache
 * on first use, with progress on stderr, and can be stopped with SIGINT. `options` NULL: the
 * defaults. Caller frees; NULL on failure. */
char *model_path_shard(const char *model, const struct model_path_options *options,
                       struct err *err);

#endif
