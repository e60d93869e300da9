/* The user's cache of shards: whatever a person calls a model becomes a shard directory.
 *
 * A shard directory is taken as it is. A GGUF file or a Hugging Face directory is quantised on
 * first use into <root>/shards/<hash>, where the hash covers the files (name, size, modification
 * time, inode) and the settings; another process that is doing the same is waited for.
 * Any thread; a thread that waits looks at `cancel`. */
#ifndef CASCADIA_SHARD_SHARD_CACHE_H
#define CASCADIA_SHARD_SHARD_CACHE_H

#include "base/err.h"
#include "shard/importance.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct shard_cache_options {
    const char *root;         // ~/.cache/cascadia, as the program was told
    const char *quantization; // "int4", ...; NULL: int4, or whatever a shard directory holds
    uint32_t group_size;      // 0: 32
    bool requantise;          // a quantised source too (quantise_settings)
    const struct importance *importance; // as of quantise_settings; NULL: none
    uint32_t threads;                    // 0: one a processor
    bool quiet;                          // no progress
    const char *tool_version;
    const atomic_bool *cancel; // or NULL
};

/* The path of a shard directory; caller frees. NULL on failure: what source_open and export_shard
 * give; ERR_ARGUMENT when `model` is a shard of another quantisation than the one asked for. */
char *shard_cache_open(const char *model, const struct shard_cache_options *options,
                       struct err *err);

/* Where weights_options.record_dir lies under a root; caller frees. */
char *shard_cache_record_dir(const char *root);

#endif
