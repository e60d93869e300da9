/* Remembers which files of a shard were hashed and found good, so that opening a large model again
 * does not read all of it. A file counts as unchanged while its size, modification time and inode
 * are the same. Kept in the user's cache, one small file a shard; losing it costs a hash run,
 * nothing else. One owner. */
#ifndef CASCADIA_WEIGHTS_CHECK_RECORD_H
#define CASCADIA_WEIGHTS_CHECK_RECORD_H

#include "base/buf.h"
#include "base/file.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct check_record {
    char *path;      // NULL: nothing is remembered
    struct buf text; // a line a file
    bool is_changed;
};

/* Reads what is there; `record_dir` NULL gives a record that knows and keeps nothing. */
void check_record_open(struct check_record *record, const char *record_dir, const char *shard_dir,
                       uint64_t manifest_hash);
bool check_record_has(const struct check_record *record, struct str name,
                      const struct file_stat *stat, uint64_t content_hash);
void check_record_add(struct check_record *record, struct str name, const struct file_stat *stat,
                      uint64_t content_hash);
/* Writes it back when something was added; a failure is not worth an error. */
void check_record_close(struct check_record *record);

#endif
