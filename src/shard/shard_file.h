/* One weights file of a shard: which tensors it holds, and writing it with a team of threads. */
#ifndef CASCADIA_SHARD_SHARD_FILE_H
#define CASCADIA_SHARD_SHARD_FILE_H

#include "base/err.h"
#include "base/progress.h"
#include "base/team.h"
#include "shard/quantise.h"
#include "weights/manifest.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shard_file {
    char name[MANIFEST_FILE_NAME_BYTES];
    struct quantise_job jobs[TENSOR_ROLE_COUNT];
    uint32_t n_jobs;
    uint64_t bytes;
};

/* Adds a tensor behind the others, 64-byte aligned. */
bool shard_file_add(struct shard_file *file, const struct quantise_settings *settings,
                    enum tensor_role role, const struct source_tensor *first,
                    const struct source_tensor *second, struct err *err);

/* What the writing of all files of a shard shares. */
struct shard_writer {
    struct team *team;
    struct quantise_scratch *scratch; // one a thread
    uint32_t n_threads;
    struct progress *progress; // counts source bytes
    const atomic_bool *cancel; // or NULL
};

/* Threads and memory for any of the files. */
bool shard_writer_init(struct shard_writer *writer, uint32_t n_threads,
                       const struct shard_file *files, size_t n_files, struct err *err);
void shard_writer_release(struct shard_writer *writer); // zeroed values are fine

/* Writes the file into `directory`, reads it back for its hashes, and fills `out` (bytes, hashes,
 * tensors with their errors; `out->tensors` has room for n_jobs, names are borrowed or in `arena`).
 * squares[n_jobs]: the error sums of each tensor. */
bool shard_file_write(const struct shard_file *file, const char *directory,
                      struct shard_writer *writer, struct arena *arena, struct manifest_file *out,
                      struct quantise_error *squares, struct err *err);

#endif
