/* Files: mapped, read whole, written atomically. The only place that calls the operating system
 * about them; also the only user of mmap on files. Any thread; a struct file has one owner. */
#ifndef CASCADIA_BASE_FILE_H
#define CASCADIA_BASE_FILE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A whole file, mapped read-only. An empty file has data NULL and size 0. */
struct file_map {
    const uint8_t *data;
    size_t size;
};

bool file_map_open(struct file_map *map, const char *path, struct err *err);
void file_map_close(struct file_map *map); // zeroed values are fine
/* Gives the pages of [offset, offset + bytes) back to the page cache's judgement (they are clean):
 * how a long sequential pass keeps its resident size small. */
void file_map_forget(const struct file_map *map, size_t offset, size_t bytes);
/* Asks for read-ahead of the range. */
void file_map_will_need(const struct file_map *map, size_t offset, size_t bytes);
/* Reads the range and maps its pages, so that no later access waits for a disk or a page fault. */
void file_map_populate(const struct file_map *map, size_t offset, size_t bytes);
/* Keeps the whole file in memory until it is closed. ERR_SYSTEM: the limit of locked memory is too
 * low, with what to do about it; ERR_NO_MEMORY. */
bool file_map_lock(const struct file_map *map, struct err *err);

struct file_stat {
    uint64_t bytes;
    uint64_t modified_ns; // since the epoch
    uint64_t inode;
    bool is_directory;
};
bool file_stat(const char *path, struct file_stat *out, struct err *err);
bool file_exists(const char *path);
/* Room for new files where `path` (which is there) lies. */
bool file_free_bytes(const char *path, uint64_t *out, struct err *err);

/* Reads a whole file into buf (appending); a file that would pass buf's ceiling is ERR_FORMAT. */
bool file_read(const char *path, struct buf *out, struct err *err);

/* Writes path.tmp-<pid>, syncs, renames: readers see the old file or the new one. */
bool file_write_atomic(const char *path, struct str bytes, struct err *err);
bool file_rename(const char *from, const char *to, struct err *err);
bool file_remove(const char *path, struct err *err);

/* A file being written front to back, or at offsets. Errors are sticky and told by close. */
struct file_writer {
    int fd;
    uint64_t size;
    char *path;
};
bool file_writer_open(struct file_writer *writer, const char *path, struct err *err);
bool file_writer_append(struct file_writer *writer, const void *bytes, size_t size,
                        struct err *err);
bool file_writer_write_at(struct file_writer *writer, uint64_t offset, const void *bytes,
                          size_t size, struct err *err); // any thread, disjoint ranges
bool file_writer_close(struct file_writer *writer, bool sync, struct err *err);
void file_writer_abandon(struct file_writer *writer); // closes and removes the file

bool dir_make(const char *path, struct err *err);   // with its parents; existing is fine
bool dir_remove(const char *path, struct err *err); // with what is in it; for directories we made
/* Sorted names in a directory, without "." and "..". Caller frees with dir_list_free. */
bool dir_list(const char *path, char ***names, size_t *n_names, struct err *err);
void dir_list_free(char **names, size_t n_names);

/* "a/b"; caller frees. */
char *path_join(const char *directory, const char *name);
const char *path_base(const char *path); // the part after the last slash

/* An advisory lock file, so that two processes do not do one long job twice. Waits up to
 * timeout_ms (0: does not wait). ERR_BUSY when another process holds it. */
struct file_lock {
    int fd;
};
bool file_lock_take(struct file_lock *lock, const char *path, uint64_t timeout_ms, struct err *err);
void file_lock_release(struct file_lock *lock);

#endif
