/* First use of a model. The lock file outlives the work on purpose: removing it would let a third
 * process lock a new file of that name while a second still waits on the old one. What a killed
 * process left behind is removed by the next one that holds the lock. */
#include "shard/shard_cache.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "shard/export.h"
#include "weights/weights.h"

#define QUANTIZATION_DEFAULT "int4"
#define GROUP_SIZE_DEFAULT 32u
#define LOCK_STEP_MS 250u
#define KEY_BYTES_CAP ((size_t)4 << 20)
/* Rises when shards of older programs should not be used any more. */
#define CACHE_REVISION 2u

char *shard_cache_record_dir(const char *root)
{
    return path_join(root, "checked");
}

static bool add_file(struct buf *key, const char *path, const char *name, struct err *err)
{
    struct file_stat stat;
    if (!file_stat(path, &stat, err))
        return false;
    buf_printf(key, "\n%s %llu %llu %llu", name, (unsigned long long)stat.bytes,
               (unsigned long long)stat.modified_ns, (unsigned long long)stat.inode);
    return true;
}

/* Files of a model directory that decide what a shard holds. */
static bool file_counts(struct str name)
{
    return str_ends(name, STR(".json")) || str_ends(name, STR(".safetensors")) ||
           str_ends(name, STR(".jinja"));
}

static bool add_directory(struct buf *key, const char *directory, struct err *err)
{
    char **names;
    size_t n_names;
    bool good = true;
    if (!dir_list(directory, &names, &n_names, err))
        return false;
    for (size_t i = 0; good && i < n_names; i++) {
        if (!file_counts(str_from(names[i])))
            continue;
        char *path = path_join(directory, names[i]);
        good = add_file(key, path, names[i], err);
        free(path);
    }
    dir_list_free(names, n_names);
    return good;
}

/* The name of the cached shard. */
static bool make_key(const char *model, const struct quantise_settings *settings, char hex[17],
                     struct err *err)
{
    struct file_stat stat;
    struct buf key;
    if (!file_stat(model, &stat, err))
        return false;
    buf_init(&key, KEY_BYTES_CAP);
    buf_printf(&key, "%s %u %u %s %u%s", MANIFEST_FORMAT, MANIFEST_VERSION, CACHE_REVISION,
               quant_formats[settings->format]->name, settings->group_size,
               settings->requantise ? " requantised" : "");
    if (settings->importance)
        buf_printf(&key, " %llx", (unsigned long long)settings->importance->hash);
    bool good = stat.is_directory ? add_directory(&key, model, err)
                                  : add_file(&key, model, path_base(model), err);
    if (good && !buf_ok(&key))
        good = err_set(err, ERR_UNSUPPORTED, "%s holds too many files", model);
    hash_hex(hash_xxh3(key.data, key.size), hex);
    buf_release(&key);
    return good;
}

static bool wait_for_lock(struct file_lock *lock, const char *path,
                          const struct shard_cache_options *options, struct err *err)
{
    for (bool told = false; !file_lock_take(lock, path, LOCK_STEP_MS, err); told = true) {
        if (err->code != ERR_BUSY)
            return false;
        if (options->cancel && atomic_load(options->cancel))
            return err_set(err, ERR_CANCELLED, "interrupted");
        if (!told)
            log_info("another process is quantising this model; waiting for it");
    }
    return true;
}

static void remove_left_over(const char *shards, const char *hex)
{
    struct err ignored;
    char **names, prefix[32];
    size_t n_names;
    snprintf(prefix, sizeof prefix, "%s.tmp-", hex);
    if (!dir_list(shards, &names, &n_names, &ignored))
        return;
    for (size_t i = 0; i < n_names; i++) {
        if (!str_starts(str_from(names[i]), str_from(prefix)))
            continue;
        char *path = path_join(shards, names[i]);
        dir_remove(path, &ignored);
        free(path);
    }
    dir_list_free(names, n_names);
}

static bool make_shard(const char *model, const char *directory,
                       const struct quantise_settings *settings,
                       const struct shard_cache_options *options, struct err *err)
{
    struct source source;
    struct export_report report;
    if (!source_open(&source, model, err))
        return false;
    struct export_options export = {
        .quantise = *settings,
        .stage = EXPORT_ALL_STAGES,
        .threads = options->threads,
        .quiet = options->quiet,
        .tool_version = options->tool_version,
        .cancel = options->cancel,
    };
    log_info("first use of %s: writing it as a shard into %s", model, directory);
    bool good = split_even(source.config.n_layers, 1, &export.split, err) &&
                export_shard(&source, directory, &export, &report, err);
    source_close(&source);
    return good;
}

static bool find_or_make(const char *model, const char *shards, const char *hex,
                         const char *directory, const struct quantise_settings *settings,
                         const struct shard_cache_options *options, struct err *err)
{
    struct file_lock lock;
    if (weights_is_shard(directory))
        return true;
    if (!dir_make(shards, err))
        return false;
    char *lock_path = xasprintf("%s.lock", directory);
    bool good = wait_for_lock(&lock, lock_path, options, err);
    if (good) {
        if (!weights_is_shard(directory)) {
            remove_left_over(shards, hex);
            good = make_shard(model, directory, settings, options, err);
        }
        file_lock_release(&lock);
    }
    free(lock_path);
    return good;
}

/* A shard directory fits when nothing was asked for, or what it holds. */
static bool check_shard(const char *directory, const struct shard_cache_options *options,
                        struct err *err)
{
    struct manifest manifest;
    struct quantise_settings settings;
    if (!options->quantization)
        return true;
    uint32_t group_size = options->group_size ? options->group_size : GROUP_SIZE_DEFAULT;
    if (!quantise_settings_parse(str_from(options->quantization), group_size, &settings, err) ||
        !manifest_read(&manifest, directory, err))
        return false;
    bool fits = str_is(manifest.quantization, quant_formats[settings.format]->name) &&
                manifest.is_requantised == options->requantise;
    if (!fits)
        err_set(err, ERR_ARGUMENT,
                "%s is a shard with %.*s weights%s; for %s%s give the model that it was made of",
                directory, STR_ARG(manifest.quantization),
                manifest.is_requantised ? ", requantised" : "", options->quantization,
                options->requantise ? ", requantised" : "");
    manifest_release(&manifest);
    return fits;
}

char *shard_cache_open(const char *model, const struct shard_cache_options *options,
                       struct err *err)
{
    struct quantise_settings settings;
    const char *quantization = options->quantization ? options->quantization : QUANTIZATION_DEFAULT;
    char hex[17];
    if (weights_is_shard(model))
        return check_shard(model, options, err) ? xstrdup(model) : NULL;
    if (!quantise_settings_parse(str_from(quantization),
                                 options->group_size ? options->group_size : GROUP_SIZE_DEFAULT,
                                 &settings, err))
        return NULL;
    settings.requantise = options->requantise;
    settings.importance = options->importance;
    if (!make_key(model, &settings, hex, err))
        return NULL;
    char *shards = path_join(options->root, "shards");
    char *directory = path_join(shards, hex);
    if (!find_or_make(model, shards, hex, directory, &settings, options, err)) {
        free(directory);
        directory = NULL;
    }
    free(shards);
    return directory;
}
