/* Files. Reading is by mapping, writing goes to a temporary name that is renamed when it is whole,
 * so that no reader, and no crash, ever sees half a file. */
#include "base/file.h"

#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PAGE_BYTES 4096u

bool file_map_open(struct file_map *map, const char *path, struct err *err)
{
    struct stat facts;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(err, "%s", path);
    if (fstat(fd, &facts) != 0 || S_ISDIR(facts.st_mode)) {
        errno = S_ISDIR(facts.st_mode) ? EISDIR : errno;
        err_set_errno(err, "%s", path);
        close(fd);
        return false;
    }
    size_t size = (size_t)facts.st_size;
    void *data = size ? mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    if (data == MAP_FAILED)
        err_set_errno(err, "cannot map %s", path);
    close(fd);
    if (data == MAP_FAILED)
        return false;
    *map = (struct file_map){ .data = data, .size = size };
    return true;
}

void file_map_close(struct file_map *map)
{
    if (!map || !map->data)
        return;
    void *data = (void *)(uintptr_t)map->data;
    munmap(data, map->size);
    *map = (struct file_map){ 0 };
}

/* Advises on the whole pages inside (forget) or around (will need) a range. */
static void advise(const struct file_map *map, size_t first, size_t last, int advice)
{
    if (!map->data || first >= last)
        return;
    madvise((void *)(uintptr_t)(map->data + first), last - first, advice);
}

void file_map_forget(const struct file_map *map, size_t offset, size_t bytes)
{
    size_t end = offset + bytes == map->size ? size_round_up(map->size, PAGE_BYTES)
                                             : (offset + bytes) / PAGE_BYTES * PAGE_BYTES;
    advise(map, size_round_up(offset, PAGE_BYTES), end, MADV_DONTNEED);
}

void file_map_will_need(const struct file_map *map, size_t offset, size_t bytes)
{
    advise(map, offset / PAGE_BYTES * PAGE_BYTES, offset + bytes, MADV_WILLNEED);
}

void file_map_populate(const struct file_map *map, size_t offset, size_t bytes)
{
    const size_t first = offset / PAGE_BYTES * PAGE_BYTES, last = offset + bytes;
    if (!map->data || bytes == 0)
        return;
#ifdef MADV_POPULATE_READ // Linux 5.14; one call instead of a fault for each run of pages
    if (madvise((void *)(uintptr_t)(map->data + first), last - first, MADV_POPULATE_READ) == 0)
        return;
#endif
    const volatile uint8_t *data = map->data;
    for (size_t at = first; at < last; at += PAGE_BYTES)
        (void)data[at];
}

bool file_map_lock(const struct file_map *map, struct err *err)
{
    struct rlimit limit = { 0 };
    if (!map->data || mlock(map->data, map->size) == 0)
        return true;
    const int failure = errno;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (failure == ENOMEM && limit.rlim_cur == RLIM_INFINITY)
        return err_set(err, ERR_NO_MEMORY, "cannot keep %.1f MiB in memory: there is no room",
                       (double)map->size / (1 << 20));
    return err_set(
        err, ERR_SYSTEM,
        "cannot keep %.1f MiB in memory: this user may lock %.1f MiB in all "
        "(RLIMIT_MEMLOCK); raise it (ulimit -l, LimitMEMLOCK= of a systemd unit, memlock "
        "in limits.conf, --ulimit memlock=-1 of a container) or leave --mlock out",
        (double)map->size / (1 << 20), (double)limit.rlim_cur / (1 << 20));
}

bool file_stat(const char *path, struct file_stat *out, struct err *err)
{
    struct stat facts;
    if (stat(path, &facts) != 0)
        return err_set_errno(err, "%s", path);
    *out = (struct file_stat){
        .bytes = (uint64_t)facts.st_size,
        .modified_ns =
            (uint64_t)facts.st_mtim.tv_sec * 1000000000u + (uint64_t)facts.st_mtim.tv_nsec,
        .inode = (uint64_t)facts.st_ino,
        .is_directory = S_ISDIR(facts.st_mode),
    };
    return true;
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static bool read_all(int fd, const char *path, struct buf *out, struct err *err)
{
    for (;;) {
        char chunk[1 << 14];
        ssize_t got = read(fd, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_errno(err, "cannot read %s", path);
        if (got == 0)
            return true;
        buf_add(out, chunk, (size_t)got);
        if (!buf_ok(out))
            return err_set(err, ERR_FORMAT, "%s: larger than the limit of %zu bytes", path,
                           out->size_cap);
    }
}

bool file_free_bytes(const char *path, uint64_t *out, struct err *err)
{
    struct statvfs facts;
    if (statvfs(path, &facts) != 0)
        return err_set_errno(err, "%s", path);
    *out = (uint64_t)facts.f_bavail * facts.f_frsize;
    return true;
}

bool file_read(const char *path, struct buf *out, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(err, "%s", path);
    bool done = read_all(fd, path, out, err);
    close(fd);
    return done;
}

static bool write_all(int fd, const char *path, const void *bytes, size_t size, off_t offset,
                      struct err *err)
{
    const char *from = bytes;
    while (size) {
        ssize_t put = pwrite(fd, from, size, offset);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return err_set_errno(err, "cannot write %s", path);
        from += put;
        size -= (size_t)put;
        offset += put;
    }
    return true;
}

bool file_writer_open(struct file_writer *writer, const char *path, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_set_errno(err, "cannot create %s", path);
    *writer = (struct file_writer){ .fd = fd, .path = xstrdup(path) };
    return true;
}

bool file_writer_append(struct file_writer *writer, const void *bytes, size_t size, struct err *err)
{
    if (!write_all(writer->fd, writer->path, bytes, size, (off_t)writer->size, err))
        return false;
    writer->size += size;
    return true;
}

bool file_writer_write_at(struct file_writer *writer, uint64_t offset, const void *bytes,
                          size_t size, struct err *err)
{
    return write_all(writer->fd, writer->path, bytes, size, (off_t)offset, err);
}

bool file_writer_close(struct file_writer *writer, bool sync, struct err *err)
{
    bool done = !sync || fsync(writer->fd) == 0;
    done = close(writer->fd) == 0 && done;
    if (!done)
        err_set_errno(err, "cannot write %s", writer->path);
    free(writer->path);
    *writer = (struct file_writer){ .fd = -1 };
    return done;
}

void file_writer_abandon(struct file_writer *writer)
{
    if (!writer->path)
        return;
    close(writer->fd);
    unlink(writer->path);
    free(writer->path);
    *writer = (struct file_writer){ .fd = -1 };
}

bool file_write_atomic(const char *path, struct str bytes, struct err *err)
{
    char *temporary = xasprintf("%s.tmp-%ld", path, (long)getpid());
    struct file_writer writer = { .fd = -1 };
    bool done = file_writer_open(&writer, temporary, err);
    if (done && !file_writer_append(&writer, bytes.data, bytes.size, err)) {
        file_writer_abandon(&writer);
        done = false;
    }
    done = done && file_writer_close(&writer, true, err);
    done = done && file_rename(temporary, path, err);
    free(temporary);
    return done;
}

bool file_rename(const char *from, const char *to, struct err *err)
{
    if (rename(from, to) == 0)
        return true;
    return err_set_errno(err, "cannot rename %s to %s", from, to);
}

bool file_remove(const char *path, struct err *err)
{
    if (unlink(path) == 0)
        return true;
    return err_set_errno(err, "cannot remove %s", path);
}

char *path_join(const char *directory, const char *name)
{
    size_t size = strlen(directory);
    bool slash = size && directory[size - 1] == '/';
    return xasprintf("%s%s%s", directory, slash || !size ? "" : "/", name);
}

const char *path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool file_lock_take(struct file_lock *lock, const char *path, uint64_t timeout_ms, struct err *err)
{
    uint64_t until = clock_ms() + timeout_ms;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_set_errno(err, "cannot create %s", path);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (clock_ms() >= until) {
            close(fd);
            return err_set(err, ERR_BUSY, "%s is held by another process", path);
        }
        clock_sleep_ms(50);
    }
    lock->fd = fd;
    return true;
}

void file_lock_release(struct file_lock *lock)
{
    if (lock->fd > 0)
        close(lock->fd);
    lock->fd = -1;
}
