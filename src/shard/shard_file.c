/* Items (panels, vectors) of all tensors of a file are one loop for the team. Each item goes from
 * source rows through a thread's scratch straight to its place in the file, so nothing large is
 * ever held. Errors are kept per item and summed in item order: the manifest does not depend on
 * which thread did what. Hashes are taken from the file as it was written, not from what was meant.
 */
#include "shard/shard_file.h"

#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/thread.h"

#define TENSOR_ALIGNMENT 64u
#define HASH_STEP_BYTES ((size_t)4 << 20)

bool shard_file_add(struct shard_file *file, const struct quantise_settings *settings,
                    enum tensor_role role, const struct source_tensor *first,
                    const struct source_tensor *second, struct err *err)
{
    must(file->n_jobs < TENSOR_ROLE_COUNT);
    struct quantise_job *job = &file->jobs[file->n_jobs];
    if (!quantise_job_init(job, settings, role, first, second, err))
        return false;
    job->offset = (file->bytes + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT;
    file->bytes = job->offset + job->bytes;
    file->n_jobs++;
    return true;
}

bool shard_writer_init(struct shard_writer *writer, uint32_t n_threads,
                       const struct shard_file *files, size_t n_files, struct err *err)
{
    size_t cols_cap = 1, item_bytes_cap = 1;
    *writer = (struct shard_writer){ 0 };
    for (size_t f = 0; f < n_files; f++) {
        for (uint32_t j = 0; j < files[f].n_jobs; j++) {
            const struct quantise_job *job = &files[f].jobs[j];
            cols_cap = job->cols > cols_cap ? job->cols : cols_cap;
            item_bytes_cap = job->item_bytes > item_bytes_cap ? job->item_bytes : item_bytes_cap;
        }
    }
    writer->team = team_new(n_threads, err);
    if (!writer->team)
        return false;
    writer->n_threads = team_threads(writer->team);
    writer->scratch = xcalloc(writer->n_threads, sizeof *writer->scratch);
    for (uint32_t i = 0; i < writer->n_threads; i++) {
        if (!quantise_scratch_init(&writer->scratch[i], cols_cap, item_bytes_cap, err)) {
            shard_writer_release(writer);
            return false;
        }
    }
    return true;
}

void shard_writer_release(struct shard_writer *writer)
{
    for (uint32_t i = 0; writer->scratch && i < writer->n_threads; i++)
        quantise_scratch_release(&writer->scratch[i]);
    free(writer->scratch);
    team_free(writer->team);
    *writer = (struct shard_writer){ 0 };
}

/* The loop over items that the team runs. The mutex guards the first error alone. */
struct write_loop {
    const struct shard_file *file;
    struct shard_writer *writer;
    struct file_writer output;
    uint32_t first_item[TENSOR_ROLE_COUNT + 1]; // of each job; the total behind the last
    struct quantise_error *errors;              // [items]
    atomic_bool has_failed;
    struct mutex mutex;
    struct err *err;
};

static void loop_fail(struct write_loop *loop, const struct err *err)
{
    mutex_lock(&loop->mutex);
    if (!atomic_load(&loop->has_failed)) {
        *loop->err = *err;
        atomic_store(&loop->has_failed, true);
    }
    mutex_unlock(&loop->mutex);
}

static bool write_item(struct write_loop *loop, uint32_t item, struct quantise_scratch *scratch,
                       struct err *err)
{
    uint32_t j = 0;
    while (item >= loop->first_item[j + 1])
        j++;
    const struct quantise_job *job = &loop->file->jobs[j];
    uint32_t number = item - loop->first_item[j];
    if (loop->writer->cancel && atomic_load(loop->writer->cancel))
        return err_set(err, ERR_CANCELLED, "interrupted");
    if (!quantise_item(job, number, scratch, &loop->errors[item], err))
        return false;
    uint64_t offset = job->offset + (uint64_t)number * job->item_bytes;
    if (!file_writer_write_at(&loop->output, offset, scratch->panel, job->item_bytes, err))
        return false;
    quantise_forget_item(job, number);
    progress_add(loop->writer->progress, quantise_source_bytes(job) / job->n_items);
    return true;
}

static void write_items(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
    struct write_loop *loop = context;
    for (uint32_t item = first; item < last && !atomic_load(&loop->has_failed); item++) {
        struct err err;
        if (!write_item(loop, item, &loop->writer->scratch[thread], &err))
            loop_fail(loop, &err);
    }
}

/* Fills the gaps between tensors so that every byte of the file is written. */
static bool write_gaps(struct write_loop *loop, struct err *err)
{
    static const uint8_t zeros[TENSOR_ALIGNMENT];
    uint64_t end = 0;
    for (uint32_t j = 0; j < loop->file->n_jobs; j++) {
        const struct quantise_job *job = &loop->file->jobs[j];
        if (job->offset > end &&
            !file_writer_write_at(&loop->output, end, zeros, (size_t)(job->offset - end), err))
            return false;
        end = job->offset + job->bytes;
    }
    return true;
}

static bool write_content(const struct shard_file *file, const char *path,
                          struct shard_writer *writer, struct quantise_error *squares,
                          struct err *err)
{
    struct write_loop loop = { .file = file, .writer = writer, .err = err };
    if (!file_writer_open(&loop.output, path, err))
        return false;
    for (uint32_t j = 0; j < file->n_jobs; j++)
        loop.first_item[j + 1] = loop.first_item[j] + file->jobs[j].n_items;
    uint32_t n_items = loop.first_item[file->n_jobs];
    loop.errors = xcalloc(n_items + 1, sizeof *loop.errors);
    mutex_init(&loop.mutex);
    team_for(writer->team, n_items, 4, write_items, &loop);
    mutex_release(&loop.mutex);
    for (uint32_t j = 0; j < file->n_jobs; j++) {
        quantise_forget(&file->jobs[j]);
        squares[j] = (struct quantise_error){ 0 };
        for (uint32_t i = loop.first_item[j]; i < loop.first_item[j + 1]; i++) {
            squares[j].squared_error += loop.errors[i].squared_error;
            squares[j].squared_source += loop.errors[i].squared_source;
        }
    }
    free(loop.errors);
    if (atomic_load(&loop.has_failed) || !write_gaps(&loop, err)) {
        file_writer_abandon(&loop.output);
        return false;
    }
    return file_writer_close(&loop.output, true, err);
}

/* Adds [from, end) to the file's hash and, when there is one, to a tensor's. */
static void hash_range(const struct file_map *map, uint64_t from, uint64_t end,
                       struct hash_stream *whole, struct hash_stream *part)
{
    while (from < end) {
        size_t n = end - from < HASH_STEP_BYTES ? (size_t)(end - from) : HASH_STEP_BYTES;
        hash_stream_add(whole, map->data + from, n);
        if (part)
            hash_stream_add(part, map->data + from, n);
        file_map_forget(map, (size_t)from, n);
        from += n;
    }
}

static bool hash_content(const struct shard_file *file, const char *path, struct manifest_file *out,
                         struct err *err)
{
    struct file_map map;
    uint64_t end = 0;
    if (!file_map_open(&map, path, err))
        return false;
    if (map.size != file->bytes) {
        file_map_close(&map);
        return err_set(err, ERR_SYSTEM, "%s: %zu bytes instead of %llu were written", path,
                       map.size, (unsigned long long)file->bytes);
    }
    struct hash_stream *whole = hash_stream_new();
    for (uint32_t j = 0; j < file->n_jobs; j++) {
        const struct quantise_job *job = &file->jobs[j];
        struct hash_stream *part = hash_stream_new();
        hash_range(&map, end, job->offset, whole, NULL);
        end = job->offset + job->bytes;
        hash_range(&map, job->offset, end, whole, part);
        out->tensors[j].xxh3 = hash_stream_value(part);
        hash_stream_free(part);
    }
    out->xxh3 = hash_stream_value(whole);
    hash_stream_free(whole);
    file_map_close(&map);
    return true;
}

static struct str source_names(const struct quantise_job *job, struct arena *arena)
{
    struct str first = job->parts[0]->name;
    if (job->n_parts == 1)
        return first;
    const char *both =
        arena_printf(arena, "%.*s + %.*s", STR_ARG(first), STR_ARG(job->parts[1]->name));
    return both ? str_from(both) : first;
}

bool shard_file_write(const struct shard_file *file, const char *directory,
                      struct shard_writer *writer, struct arena *arena, struct manifest_file *out,
                      struct quantise_error *squares, struct err *err)
{
    char *path = path_join(directory, file->name);
    bool good =
        write_content(file, path, writer, squares, err) && hash_content(file, path, out, err);
    free(path);
    if (!good)
        return false;
    out->name = str_from(file->name);
    out->bytes = file->bytes;
    out->n_tensors = file->n_jobs;
    for (uint32_t j = 0; j < file->n_jobs; j++) {
        const struct quantise_job *job = &file->jobs[j];
        struct manifest_tensor *tensor = &out->tensors[j];
        tensor->source_name = source_names(job, arena);
        tensor->role = job->role;
        tensor->layer = job->layer;
        tensor->format = job->format;
        tensor->rows = job->rows;
        tensor->cols = job->cols;
        tensor->group = job->group;
        tensor->offset = job->offset;
        tensor->bytes = job->bytes;
        tensor->relative_error = squares[j].squared_source > 0
                                     ? sqrt(squares[j].squared_error / squares[j].squared_source)
                                     : 0;
    }
    return true;
}
