/* The order of work: look at the target, plan the files, hash the source, write weights, texts and
 * the manifest into a directory beside the target, put that in its place. One cleanup path removes
 * the unfinished directory whatever went wrong. */
#include "shard/export.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "model/family.h"
#include "shard/shard_file.h"
#include "shard/tokenizer_source.h"
#include "text/template.h"
#include "text/tokenizer.h"
#include "text/tokenizer_bin.h"
#include "weights/weights.h"

#define HASH_STEP_BYTES ((size_t)8 << 20)
#define TEXT_FILES_CAP 4u
#define TOKENIZER_NAME "tokenizer.bin"

struct export
{
    const struct source *source;
    const struct export_options *options;
    struct arena arena; // texts of the manifest
    char *temporary;    // the directory while it is unfinished
    struct shard_file *files;
    size_t n_files;
    struct manifest manifest; // points into this struct and the arena
    struct export_report *report;
};

/* The target. */

static bool directory_is_empty(const char *path)
{
    struct err ignored;
    char **names;
    size_t n_names;
    if (!dir_list(path, &names, &n_names, &ignored))
        return false;
    dir_list_free(names, n_names);
    return n_names == 0;
}

static bool check_target(const char *directory, bool force, struct err *err)
{
    struct file_stat stat;
    struct err ignored;
    if (!file_stat(directory, &stat, &ignored))
        return true; // nothing there
    if (!stat.is_directory)
        return err_set(err, ERR_ARGUMENT, "%s is there and is no directory", directory);
    if (directory_is_empty(directory))
        return true;
    if (!force)
        return err_set(err, ERR_ARGUMENT, "%s is there already; --force replaces it", directory);
    if (!weights_is_shard(directory))
        return err_set(err, ERR_ARGUMENT,
                       "%s is not empty and is no shard; --force replaces shards only", directory);
    return true;
}

/* A rename within one directory: the old shard steps aside first, and comes back if that fails. */
static bool move_into_place(const char *temporary, const char *directory, struct err *err)
{
    if (!file_exists(directory))
        return file_rename(temporary, directory, err);
    char *old = xasprintf("%s.old-%llx", directory, (unsigned long long)clock_ns());
    bool good = file_rename(directory, old, err);
    if (good && !file_rename(temporary, directory, err)) {
        struct err ignored;
        file_rename(old, directory, &ignored);
        good = false;
    } else if (good) {
        good = dir_remove(old, err);
    }
    free(old);
    return good;
}

/* The plan. */

static bool layer_is_wanted(const struct export *export, uint32_t layer, enum tensor_role role)
{
    const struct export_options *options = export->options;
    const struct model_config *config = &export->source->config;
    if (options->stage == EXPORT_ALL_STAGES)
        return true;
    struct manifest_stage stage = options->split.stages[options->stage];
    bool has_last = stage.layer_end == config->n_layers;
    if (layer != TENSOR_NO_LAYER)
        return layer >= stage.layer_first && layer < stage.layer_end;
    if (role == TENSOR_EMBEDDING)
        return stage.layer_first == 0 || (has_last && config->is_tied);
    return has_last;
}

static struct shard_file *file_for(struct export *export, const struct source_tensor *tensor)
{
    char name[MANIFEST_FILE_NAME_BYTES];
    manifest_file_name(tensor->role, tensor->layer, name);
    for (size_t i = export->n_files; i-- > 0;)
        if (strcmp(export->files[i].name, name) == 0)
            return &export->files[i];
    struct shard_file *file = &export->files[export->n_files++];
    memcpy(file->name, name, sizeof name);
    return file;
}

/* The other half, when gate and up can be one tensor. */
static const struct source_tensor *find_twin(const struct export *export,
                                             const struct source_tensor *tensor,
                                             enum tensor_role twin_role)
{
    const struct quantise_settings *settings = &export->options->quantise;
    const struct source_tensor *twin = source_find(export->source, tensor->layer, twin_role);
    enum quant_format format, twin_format;
    uint32_t group, twin_group;
    if (!twin || twin->rows != tensor->rows || twin->cols != tensor->cols)
        return NULL;
    quantise_choose(settings, tensor, &format, &group);
    quantise_choose(settings, twin, &twin_format, &twin_group);
    return format == twin_format && group == twin_group ? twin : NULL;
}

static bool plan_tensor(struct export *export, const struct source_tensor *tensor, struct err *err)
{
    const struct source_tensor *twin = NULL;
    enum tensor_role role = tensor->role;
    if (role == TENSOR_UP && find_twin(export, tensor, TENSOR_GATE))
        return true; // written with its gate
    if (role == TENSOR_GATE && (twin = find_twin(export, tensor, TENSOR_UP)))
        role = TENSOR_GATE_UP;
    return shard_file_add(file_for(export, tensor), &export->options->quantise, role, tensor, twin,
                          err);
}

static bool plan_files(struct export *export, struct err *err)
{
    const struct source *source = export->source;
    export->files = xcalloc((size_t)source->config.n_layers + 2, sizeof *export->files);
    for (uint32_t i = 0; i < source->n_tensors; i++) {
        const struct source_tensor *tensor = &source->tensors[i];
        if (layer_is_wanted(export, tensor->layer, tensor->role) &&
            !plan_tensor(export, tensor, err))
            return false;
    }
    uint64_t bytes = 0, free_bytes;
    for (size_t i = 0; i < export->n_files; i++)
        bytes += export->files[i].bytes;
    if (!file_free_bytes(export->temporary, &free_bytes, err))
        return false;
    if (bytes > free_bytes)
        return err_set(err, ERR_SYSTEM, "%s: the shard needs %llu MiB, %llu MiB are free",
                       export->temporary, (unsigned long long)(bytes >> 20),
                       (unsigned long long)(free_bytes >> 20));
    return true;
}

/* A demand for it may also come from an option that was left in a script. */
static void warn_of_requantising(const struct export *export)
{
    uint32_t n_matrices = 0;
    for (size_t i = 0; i < export->n_files; i++) {
        for (uint32_t j = 0; j < export->files[i].n_jobs; j++) {
            const struct quantise_job *job = &export->files[i].jobs[j];
            n_matrices += quantise_is_again(job);
        }
    }
    if (n_matrices > 0)
        log_warn("%s has %u matrices quantised already, and they are quantised again: the loss "
                 "comes on top of theirs; a float model gives better weights",
                 export->source->path, n_matrices);
}

/* The source's identity. */

static bool hash_file(const struct export *export, const struct file_map *map,
                      struct progress *progress, uint64_t *hash, struct err *err)
{
    struct hash_stream *stream = hash_stream_new();
    bool is_cancelled = false;
    for (size_t at = 0; at < map->size && !is_cancelled; at += HASH_STEP_BYTES) {
        size_t n = map->size - at < HASH_STEP_BYTES ? map->size - at : HASH_STEP_BYTES;
        hash_stream_add(stream, map->data + at, n);
        file_map_forget(map, at, n);
        progress_add(progress, n);
        is_cancelled = export->options->cancel && atomic_load(export->options->cancel);
    }
    *hash = hash_stream_value(stream);
    hash_stream_free(stream);
    return !is_cancelled || err_set(err, ERR_CANCELLED, "interrupted");
}

static struct str keep_text(struct export *export, struct buf *text)
{
    struct str kept = arena_str(&export->arena, buf_view(text));
    buf_release(text);
    return kept;
}

/* The manifest's "source" object, and the hash of content and settings: what decides the weights.
 */
static bool identify_source(struct export *export, struct err *err)
{
    const struct source *source = export->source;
    const struct quantise_settings *settings = &export->options->quantise;
    struct buf text, identity;
    struct progress progress;
    uint64_t total = 0;
    bool good = true;
    for (size_t i = 0; i < source->n_files; i++)
        total += source->files[i].map->size;
    buf_init(&text, MANIFEST_BYTES_CAP);
    buf_init(&identity, MANIFEST_BYTES_CAP);
    buf_printf(&identity, "%s %u %s %u%s", MANIFEST_FORMAT, MANIFEST_VERSION,
               quant_formats[settings->format]->name, settings->group_size,
               settings->requantise ? " requantised" : "");
    if (settings->importance)
        buf_printf(&identity, " %llx", (unsigned long long)settings->importance->hash);
    buf_add_text(&text, "{\"path\":");
    json_write_string(&text, str_from(source->path));
    buf_add_text(&text, ",\"files\":[");
    progress_start(&progress, "reading", "B", total, export->options->quiet);
    for (size_t i = 0; good && i < source->n_files; i++) {
        uint64_t hash;
        char hex[17];
        good = hash_file(export, source->files[i].map, &progress, &hash, err);
        if (!good)
            break;
        hash_hex(hash, hex);
        buf_add_text(&text, i ? ",{\"name\":" : "{\"name\":");
        json_write_string(&text, str_from(source->files[i].name));
        buf_printf(&text, ",\"bytes\":%zu,\"xxh3\":\"%s\"}", source->files[i].map->size, hex);
        buf_printf(&identity, " %s", hex);
    }
    if (good)
        progress_finish(&progress);
    buf_add_text(&text, "]}");
    buf_add_str(&identity, buf_view(&source->config_json));
    export->manifest.settings_hash = hash_xxh3(identity.data, identity.size);
    buf_release(&identity);
    export->manifest.source = keep_text(export, &text);
    return good;
}

static void describe_model(struct export *export)
{
    const struct model_config *config = &export->source->config;
    struct buf text;
    buf_init(&text, 4096);
    buf_add_text(&text, "{\"model_type\":");
    json_write_string(&text, str_from(config->model_type));
    buf_printf(&text,
               ",\"layers\":%u,\"hidden\":%u,\"intermediate\":%u,\"heads\":%u,\"kv_heads\":%u,"
               "\"head_dim\":%u,\"vocabulary\":%u,\"max_positions\":%u}",
               config->n_layers, config->hidden, config->intermediate, config->n_heads,
               config->n_kv_heads, config->head_dim, config->vocab_size, config->max_positions);
    export->manifest.model = keep_text(export, &text);
}

/* The content. */

static void report_tensors(struct export_report *report, const struct manifest_file *file,
                           const struct quantise_error *squares, struct quantise_error *sum)
{
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct manifest_tensor *tensor = &file->tensors[i];
        if (!tensor_role_info(tensor->role)->is_matrix)
            continue;
        sum->squared_error += squares[i].squared_error;
        sum->squared_source += squares[i].squared_source;
        if (tensor->relative_error > report->relative_error_max) {
            report->relative_error_max = tensor->relative_error;
            tensor_describe(tensor->role, tensor->layer, report->worst, sizeof report->worst);
        }
    }
}

static bool write_weights(struct export *export, struct err *err)
{
    struct shard_writer writer;
    struct progress progress;
    struct quantise_error sum = { 0 };
    struct export_report *report = export->report;
    for (size_t i = 0; i < export->n_files; i++)
        for (uint32_t j = 0; j < export->files[i].n_jobs; j++)
            report->source_bytes += quantise_source_bytes(&export->files[i].jobs[j]);
    if (!shard_writer_init(&writer, export->options->threads, export->files, export->n_files, err))
        return false;
    writer.progress = &progress;
    writer.cancel = export->options->cancel;
    progress_start(&progress, "writing", "B", report->source_bytes, export->options->quiet);
    bool good = true;
    for (size_t i = 0; good && i < export->n_files; i++) {
        const struct shard_file *file = &export->files[i];
        struct manifest_file *out = &export->manifest.files[export->manifest.n_files];
        struct quantise_error squares[TENSOR_ROLE_COUNT];
        out->tensors = arena_array(&export->arena, file->n_jobs, sizeof *out->tensors);
        must(out->tensors);
        good =
            shard_file_write(file, export->temporary, &writer, &export->arena, out, squares, err);
        if (!good)
            break;
        export->manifest.n_files++;
        report->bytes += out->bytes;
        report_tensors(report, out, squares, &sum);
    }
    if (good)
        progress_finish(&progress);
    shard_writer_release(&writer);
    if (sum.squared_source > 0)
        report->relative_error = sqrt(sum.squared_error / sum.squared_source);
    return good;
}

/* Enters a file that is in the directory already. */
static bool enter_file(struct export *export, const char *name, struct err *err)
{
    struct manifest_file *out = &export->manifest.files[export->manifest.n_files];
    char *path = path_join(export->temporary, name);
    struct file_map map;
    bool good = file_map_open(&map, path, err);
    if (good) {
        *out = (struct manifest_file){ .name = str_from(name), .bytes = map.size };
        out->xxh3 = hash_xxh3(map.data, map.size);
        export->manifest.n_files++;
        export->report->bytes += map.size;
        file_map_close(&map);
    }
    free(path);
    return good;
}

static bool write_text(struct export *export, const char *name, struct str text, struct err *err)
{
    char *path = path_join(export->temporary, name);
    bool good = file_write_atomic(path, text, err) && enter_file(export, name, err);
    free(path);
    return good;
}

static bool write_template(struct export *export, struct err *err)
{
    struct buf text;
    const char *from;
    buf_init(&text, TEMPLATE_SOURCE_BYTES_CAP);
    bool good = source_read_template(export->source, &text, &from, err);
    if (good && !buf_ok(&text))
        good = err_set(err, ERR_FORMAT, "the chat template is larger than %zu bytes",
                       TEMPLATE_SOURCE_BYTES_CAP);
    if (good && text.size)
        good = write_text(export, "chat_template.jinja", buf_view(&text), err);
    export->manifest.template_from = str_from(from);
    buf_release(&text);
    return good;
}

/* A model without tokenizer files can still be evaluated by ids. */
static bool write_tokenizer(struct export *export, struct err *err)
{
    const struct source *source = export->source;
    struct tokenizer *tokenizer = source->is_gguf ? tokenizer_source_load_gguf(&source->gguf, err)
                                                  : tokenizer_source_load(source->path, err);
    if (!tokenizer && err->code == ERR_NOT_FOUND)
        return true;
    if (!tokenizer)
        return err_wrap(err, "the tokenizer of %s", source->path);
    char *path = path_join(export->temporary, TOKENIZER_NAME);
    bool good =
        tokenizer_write_bin(tokenizer, path, err) && enter_file(export, TOKENIZER_NAME, err);
    free(path);
    tokenizer_free(tokenizer);
    return good;
}

static bool write_texts(struct export *export, struct err *err)
{
    const struct source *source = export->source;
    if (!write_text(export, "config.json", buf_view(&source->config_json), err) ||
        !write_template(export, err) || !write_tokenizer(export, err))
        return false;
    return !source->generation_json.size ||
           write_text(export, "generation_config.json", buf_view(&source->generation_json), err);
}

static bool write_manifest(struct export *export, struct err *err)
{
    const struct source *source = export->source;
    const struct export_options *options = export->options;
    struct manifest *manifest = &export->manifest;
    struct manifest_stage *stages =
        arena_array(&export->arena, options->split.n_stages, sizeof *stages);
    must(stages);
    memcpy(stages, options->split.stages, options->split.n_stages * sizeof *stages);
    manifest->family = str_from(source->config.family->name);
    manifest->quantization = str_from(quant_formats[options->quantise.format]->name);
    manifest->group_size = options->quantise.group_size;
    manifest->is_requantised = options->quantise.requantise;
    manifest->tool_version = str_from(options->tool_version);
    manifest->n_layers = source->config.n_layers;
    manifest->is_tied = source->config.is_tied;
    manifest->stages = stages;
    manifest->n_stages = options->split.n_stages;
    struct buf text;
    buf_init(&text, MANIFEST_BYTES_CAP);
    manifest_write(manifest, &text);
    char *path = path_join(export->temporary, MANIFEST_NAME);
    bool good = buf_ok(&text) ? file_write_atomic(path, buf_view(&text), err)
                              : err_set(err, ERR_NO_MEMORY, "the manifest is too large");
    free(path);
    buf_release(&text);
    return good;
}

static bool write_all(struct export *export, struct err *err)
{
    export->manifest.files = xcalloc((size_t) export->source->config.n_layers + 2 + TEXT_FILES_CAP,
                                     sizeof *export->manifest.files);
    if (!dir_make(export->temporary, err) || !plan_files(export, err) ||
        !identify_source(export, err))
        return false;
    describe_model(export);
    warn_of_requantising(export);
    return write_texts(export, err) && write_weights(export, err) && write_manifest(export, err);
}

bool export_shard(const struct source *source, const char *directory,
                  const struct export_options *options, struct export_report *report,
                  struct err *err)
{
    struct str target = str_from(directory);
    while (target.size > 1 && target.data[target.size - 1] == '/')
        target.size--;
    char *name = xstrndup(target.data, target.size);
    struct export export = { .source = source, .options = options, .report = report };
    *report = (struct export_report){ 0 };
    arena_init(&export.arena, MANIFEST_BYTES_CAP);
    bool good = check_target(name, options->force, err);
    if (good) {
        export.temporary = xasprintf("%s.tmp-%llx", name, (unsigned long long)clock_ns());
        good = write_all(&export, err) && move_into_place(export.temporary, name, err);
        struct err ignored;
        if (!good)
            dir_remove(export.temporary, &ignored);
    }
    free(export.temporary);
    free(export.files);
    free(export.manifest.files);
    arena_release(&export.arena);
    free(name);
    return good;
}
