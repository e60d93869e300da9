/* Opening a shard: which files the layers need, that they are there and whole, and a table from
 * (layer, role) to the mapped bytes.
 *
 * The manifest has been checked by its reader; here files are held against it. One hash run over a
 * file proves it; only when that fails are the tensors hashed one by one to say which is damaged.
 */
#include "weights/weights.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/progress.h"
#include "weights/check_record.h"

#define PREFAULT_STEP_BYTES ((size_t)64 << 20) // between progress
#define HASH_STEP_BYTES ((size_t)8 << 20)

struct weights {
    char *directory;
    struct manifest manifest;
    struct file_map *maps; // of the manifest's files; empty ones were not opened
    struct tensor *tensors;
    size_t n_tensors;
    uint32_t *table; // [n_layers + 1][roles]: number of the tensor plus one; none is the last layer
};

bool weights_is_shard(const char *directory)
{
    char *path = path_join(directory, MANIFEST_NAME);
    bool is_shard = file_exists(path);
    free(path);
    return is_shard;
}

/* Whether a file belongs to what `options` want to open. Files without tensors always do. */
static bool file_is_wanted(const struct manifest *manifest, const struct manifest_file *file,
                           const struct weights_options *options)
{
    if (options->any_layers || file->n_tensors == 0)
        return true;
    uint32_t layer = file->tensors[0].layer;
    bool has_last = options->layer_end == manifest->n_layers;
    if (layer != TENSOR_NO_LAYER)
        return layer >= options->layer_first && layer < options->layer_end;
    if (file->tensors[0].role == TENSOR_EMBEDDING)
        return options->layer_first == 0 || (has_last && manifest->is_tied);
    return has_last;
}

static bool need_file(const struct weights *weights, enum tensor_role role, uint32_t layer,
                      struct err *err)
{
    char name[MANIFEST_FILE_NAME_BYTES];
    manifest_file_name(role, layer, name);
    const struct manifest_file *file = manifest_find_file(&weights->manifest, name);
    if (file && file->n_tensors)
        return true;
    return err_set(err, ERR_NOT_FOUND,
                   "%s was written without %s: write the whole model, or the stage that needs it "
                   "(cascadia shard --stage K)",
                   weights->directory, name);
}

/* The manifest lists every file that the range needs. */
static bool check_range(const struct weights *weights, const struct weights_options *options,
                        struct err *err)
{
    const struct manifest *manifest = &weights->manifest;
    if (options->any_layers)
        return true;
    if (options->layer_first >= options->layer_end || options->layer_end > manifest->n_layers)
        return err_set(err, ERR_ARGUMENT, "layers %u to %u: the model has layers 0 to %u",
                       options->layer_first, options->layer_end, manifest->n_layers);
    bool has_last = options->layer_end == manifest->n_layers;
    if (options->layer_first == 0 || (has_last && manifest->is_tied))
        if (!need_file(weights, TENSOR_EMBEDDING, TENSOR_NO_LAYER, err))
            return false;
    for (uint32_t layer = options->layer_first; layer < options->layer_end; layer++)
        if (!need_file(weights, TENSOR_ATTN_NORM, layer, err))
            return false;
    return !has_last || need_file(weights, TENSOR_FINAL_NORM, TENSOR_NO_LAYER, err);
}

static uint64_t hash_in_steps(const struct file_map *map)
{
    struct hash_stream *stream = hash_stream_new();
    for (size_t at = 0; at < map->size; at += HASH_STEP_BYTES) {
        size_t n = map->size - at < HASH_STEP_BYTES ? map->size - at : HASH_STEP_BYTES;
        hash_stream_add(stream, map->data + at, n);
    }
    uint64_t hash = hash_stream_value(stream);
    hash_stream_free(stream);
    return hash;
}

/* A file whose hash differs: says which tensor it is. */
static bool name_damage(const struct manifest_file *file, const struct file_map *map,
                        struct err *err)
{
    char what[64];
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct manifest_tensor *tensor = &file->tensors[i];
        if (hash_xxh3(map->data + tensor->offset, (size_t)tensor->bytes) == tensor->xxh3)
            continue;
        tensor_describe(tensor->role, tensor->layer, what, sizeof what);
        return err_set(err, ERR_CORRUPT,
                       "%s is damaged: its checksum differs; copy or make the shard again", what);
    }
    return err_set(err, ERR_CORRUPT,
                   "damaged%s: its checksum differs; copy or make the shard again",
                   file->n_tensors ? " between its tensors" : "");
}

static bool check_file(const struct manifest_file *file, const char *path,
                       const struct weights_options *options, struct file_map *map,
                       struct check_record *record, struct err *err)
{
    struct file_stat stat;
    if (!file_stat(path, &stat, err) || !file_map_open(map, path, err))
        return false;
    if (map->size != file->bytes)
        return err_set(err, ERR_FORMAT, "%s has %zu bytes, the manifest says %llu: %s", path,
                       map->size, (unsigned long long)file->bytes,
                       map->size < file->bytes ? "it is cut short" : "it is another file");
    if (!options->check_always && check_record_has(record, file->name, &stat, file->xxh3))
        return true;
    if (hash_in_steps(map) != file->xxh3) {
        name_damage(file, map, err);
        return err_wrap(err, "%s", path);
    }
    if (options->check_always)
        file_map_forget(map, 0, map->size);
    check_record_add(record, file->name, &stat, file->xxh3);
    return true;
}

static void add_tensors(struct weights *weights, const struct manifest_file *file,
                        const struct file_map *map)
{
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct manifest_tensor *from = &file->tensors[i];
        weights->tensors[weights->n_tensors++] = (struct tensor){
            .role = from->role,
            .layer = from->layer,
            .format = from->format,
            .rows = from->rows,
            .cols = from->cols,
            .group = from->group,
            .data = map->data + from->offset,
            .bytes = (size_t)from->bytes,
        };
        uint32_t slot = from->layer == TENSOR_NO_LAYER ? weights->manifest.n_layers : from->layer;
        weights->table[(size_t)slot * TENSOR_ROLE_COUNT + from->role] =
            (uint32_t)weights->n_tensors;
    }
}

static bool open_files(struct weights *weights, const struct weights_options *options,
                       struct err *err)
{
    const struct manifest *manifest = &weights->manifest;
    struct check_record record;
    size_t n_tensors = 0;
    for (size_t i = 0; i < manifest->n_files; i++)
        n_tensors += manifest->files[i].n_tensors;
    weights->maps = xcalloc(manifest->n_files + 1, sizeof *weights->maps);
    weights->tensors = xcalloc(n_tensors + 1, sizeof *weights->tensors);
    weights->table =
        xcalloc(((size_t)manifest->n_layers + 1) * TENSOR_ROLE_COUNT, sizeof *weights->table);
    check_record_open(&record, options->record_dir, weights->directory, manifest->xxh3);
    bool good = true;
    for (size_t i = 0; good && i < manifest->n_files; i++) {
        const struct manifest_file *file = &manifest->files[i];
        if (!file_is_wanted(manifest, file, options))
            continue;
        char *name = xstrndup(file->name.data, file->name.size);
        char *path = path_join(weights->directory, name);
        good = check_file(file, path, options, &weights->maps[i], &record, err);
        if (good)
            add_tensors(weights, file, &weights->maps[i]);
        free(path);
        free(name);
    }
    check_record_close(&record);
    return good;
}

struct weights *weights_open(const char *directory, const struct weights_options *options,
                             struct err *err)
{
    struct weights_options wanted = options ? *options : (struct weights_options){ 0 };
    struct weights *weights = xcalloc(1, sizeof *weights);
    weights->directory = xstrdup(directory);
    if (!manifest_read(&weights->manifest, directory, err))
        goto fail;
    if (wanted.layer_first == 0 && wanted.layer_end == 0)
        wanted.layer_end = weights->manifest.n_layers;
    if (!check_range(weights, &wanted, err) || !open_files(weights, &wanted, err))
        goto fail;
    return weights;
fail:
    weights_close(weights);
    return NULL;
}

void weights_close(struct weights *weights)
{
    if (!weights)
        return;
    for (size_t i = 0; weights->maps && i < weights->manifest.n_files; i++)
        file_map_close(&weights->maps[i]);
    free(weights->maps);
    free(weights->tensors);
    free(weights->table);
    free(weights->directory);
    manifest_release(&weights->manifest);
    free(weights);
}

const struct tensor *weights_find(const struct weights *weights, uint32_t layer,
                                  enum tensor_role role)
{
    uint32_t n_layers = weights->manifest.n_layers;
    if (layer == TENSOR_NO_LAYER)
        layer = n_layers;
    else if (layer >= n_layers)
        return NULL;
    uint32_t number = weights->table[(size_t)layer * TENSOR_ROLE_COUNT + role];
    return number ? &weights->tensors[number - 1] : NULL;
}

const struct tensor *weights_get(const struct weights *weights, uint32_t layer,
                                 enum tensor_role role, struct err *err)
{
    const struct tensor *tensor = weights_find(weights, layer, role);
    char what[64];
    if (!tensor) {
        tensor_describe(role, layer, what, sizeof what);
        err_set(err, ERR_FORMAT, "%s holds no tensor %s", weights->directory, what);
    }
    return tensor;
}

size_t weights_count(const struct weights *weights)
{
    return weights->n_tensors;
}

const struct tensor *weights_at(const struct weights *weights, size_t index)
{
    must(index < weights->n_tensors);
    return &weights->tensors[index];
}

const struct manifest *weights_manifest(const struct weights *weights)
{
    return &weights->manifest;
}

const char *weights_directory(const struct weights *weights)
{
    return weights->directory;
}

void weights_will_need(const struct weights *weights)
{
    for (size_t i = 0; i < weights->manifest.n_files; i++)
        if (weights->maps[i].size)
            file_map_will_need(&weights->maps[i], 0, weights->maps[i].size);
}

void weights_prefault(const struct weights *weights)
{
    struct progress progress;
    size_t bytes = 0;
    for (size_t i = 0; i < weights->manifest.n_files; i++)
        bytes += weights->maps[i].size;
    progress_start(&progress, "reading weights", "B", bytes, false);
    for (size_t i = 0; i < weights->manifest.n_files; i++) {
        const struct file_map *map = &weights->maps[i];
        for (size_t at = 0; at < map->size; at += PREFAULT_STEP_BYTES) {
            const size_t left = map->size - at;
            const size_t n = left < PREFAULT_STEP_BYTES ? left : PREFAULT_STEP_BYTES;
            file_map_populate(map, at, n);
            progress_add(&progress, n);
        }
    }
    progress_finish(&progress);
}

bool weights_lock(const struct weights *weights, struct err *err)
{
    for (size_t i = 0; i < weights->manifest.n_files; i++) {
        if (!file_map_lock(&weights->maps[i], err))
            return err_wrap(err, "weights of %s", weights->directory);
    }
    return true;
}
