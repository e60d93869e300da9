/* Resolves MODEL. The signal handlers stand only while a shard is written, which may take minutes.
 */
#include "cli/model_path.h"

#include "base/file.h"
#include "base/memory.h"
#include "shard/shard_cache.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

const struct option_row model_path_rows[] = {
    OPTION_TEXT(struct model_path_options, quantization, "quantization", "FORMAT",
                "of a float model, on first use: int4, int4-asym, int8, f16, bf16 or f32 (else "
                "int4); of a shard, what it must be"),
    OPTION_U32(struct model_path_options, group_size, "group-size", "N", 0, 128,
               "weights that share a scale, on first use: 32, 64 or 128; 0: 32"),
    OPTION_BOOL(struct model_path_options, requantise, "requantize",
                "what a GGUF file has quantised too, at a further loss"),
    OPTION_TEXT(struct model_path_options, importance, "importance", "FILE",
                "what `eval importance` measured: int4 weighs its errors by it, on first use"),
    OPTION_END,
};

/* Set by a signal, which is why it is not in an object. */
static atomic_bool cancelled;

static void cancel(int number)
{
    (void)number;
    atomic_store(&cancelled, true);
}

char *model_path_cache(struct err *err)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (base && base[0] == '/')
        return xasprintf("%s/cascadia", base);
    if (home && home[0])
        return xasprintf("%s/.cache/cascadia", home);
    err_set(err, ERR_NOT_FOUND, "neither HOME nor XDG_CACHE_HOME says where the cache is; set one");
    return NULL;
}

char *model_path_record(struct err *err)
{
    char *root = model_path_cache(err);
    char *directory = root ? shard_cache_record_dir(root) : NULL;
    free(root);
    return directory;
}

const char *model_path_engine(const char *model)
{
    return strcmp(model, "mock-model") == 0 && !file_exists(model) ? "mock" : "native";
}

/* Signals are caught while a shard is written. */
static char *open_shard(const char *model, const struct shard_cache_options *cache, struct err *err)
{
    struct sigaction action = { .sa_handler = cancel }, interrupt, terminate;
    sigaction(SIGINT, &action, &interrupt);
    sigaction(SIGTERM, &action, &terminate);
    char *shard = shard_cache_open(model, cache, err);
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGTERM, &terminate, NULL);
    return shard;
}

char *model_path_shard(const char *model, const struct model_path_options *options, struct err *err)
{
    static const struct model_path_options defaults;
    struct importance importance = { 0 };
    char *root = model_path_cache(err), *shard = NULL;
    if (!root)
        return NULL;
    if (!options)
        options = &defaults;
    if (!options->importance || importance_read(&importance, options->importance, err)) {
        const struct shard_cache_options cache = {
            .root = root,
            .quantization = options->quantization,
            .group_size = options->group_size,
            .requantise = options->requantise,
            .importance = options->importance ? &importance : NULL,
            .threads = options->threads,
            .tool_version = CASCADIA_VERSION,
            .cancel = &cancelled,
        };
        shard = open_shard(model, &cache, err);
    }
    importance_release(&importance);
    free(root);
    return shard;
}
