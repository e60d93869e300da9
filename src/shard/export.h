/* Writes a shard directory from a source (docs/shard-format.md).
 *
 * Everything goes into a directory beside the target; its manifest is written last, and only then
 * is the whole renamed into place. What is interrupted leaves the target as it was and nothing that
 * loads. Memory use does not depend on the model: panels go through a few MiB a thread, and pages
 * of the source are let go as soon as they were read. */
#ifndef CASCADIA_SHARD_EXPORT_H
#define CASCADIA_SHARD_EXPORT_H

#include "base/err.h"
#include "shard/quantise.h"
#include "shard/source.h"
#include "shard/split.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define EXPORT_ALL_STAGES UINT32_MAX

struct export_options {
    struct quantise_settings quantise;
    struct split split; // the manifest's default stages
    uint32_t stage;     // write only the files of this stage; EXPORT_ALL_STAGES
    uint32_t threads;   // 0: one a processor
    bool force;         // an existing shard is replaced; other directories never are
    bool quiet;         // no progress
    const char *tool_version;
    const atomic_bool *cancel; // becomes true when the user has had enough; may be NULL
};

/* What was written, for people. */
struct export_report {
    uint64_t bytes;            // of all files
    uint64_t source_bytes;     // of the tensors read
    double relative_error;     // over all matrices together
    double relative_error_max; // of the worst one
    char worst[64];            // which that is
};

/* ERR_ARGUMENT: the target exists and is not to be replaced; ERR_CANCELLED; source and system
 * errors. */
bool export_shard(const struct source *source, const char *directory,
                  const struct export_options *options, struct export_report *report,
                  struct err *err);

#endif
