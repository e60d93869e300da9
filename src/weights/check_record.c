/* A text file of whole lines: a line is there or it is not, so a damaged record can only cause
 * another hash run. The manifest's hash is part of the file's name: a shard that was written again
 * in the same place begins with an empty record. */
#include "weights/check_record.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

#define RECORD_BYTES_CAP ((size_t)4 << 20)
#define LINE_BYTES_CAP 512u

void check_record_open(struct check_record *record, const char *record_dir, const char *shard_dir,
                       uint64_t manifest_hash)
{
    *record = (struct check_record){ 0 };
    buf_init(&record->text, RECORD_BYTES_CAP);
    buf_add_char(&record->text, '\n');
    if (!record_dir)
        return;
    struct err ignored;
    char hex[17];
    hash_hex(hash_xxh3(shard_dir, strlen(shard_dir)) ^ manifest_hash, hex);
    record->path = path_join(record_dir, hex);
    struct buf text;
    buf_init(&text, RECORD_BYTES_CAP);
    if (file_exists(record->path) && file_read(record->path, &text, &ignored))
        buf_add_str(&record->text, buf_view(&text));
    buf_release(&text);
}

/* A line as it stands in the record, between line ends. */
static void write_line(struct buf *out, struct str name, const struct file_stat *stat,
                       uint64_t content_hash)
{
    char hex[17];
    hash_hex(content_hash, hex);
    buf_printf(out, "%.*s %llu %llu %llu %s\n", STR_ARG(name), (unsigned long long)stat->bytes,
               (unsigned long long)stat->modified_ns, (unsigned long long)stat->inode, hex);
}

bool check_record_has(const struct check_record *record, struct str name,
                      const struct file_stat *stat, uint64_t content_hash)
{
    struct buf line;
    buf_init(&line, LINE_BYTES_CAP);
    buf_add_char(&line, '\n');
    write_line(&line, name, stat, content_hash);
    bool is_there = buf_ok(&line) && str_find(buf_view(&record->text), buf_view(&line)) != SIZE_MAX;
    buf_release(&line);
    return is_there;
}

void check_record_add(struct check_record *record, struct str name, const struct file_stat *stat,
                      uint64_t content_hash)
{
    if (!record->path)
        return;
    write_line(&record->text, name, stat, content_hash);
    record->is_changed = true;
}

void check_record_close(struct check_record *record)
{
    struct err ignored;
    if (record->is_changed && buf_ok(&record->text)) {
        struct str text = buf_view(&record->text);
        char *directory =
            xstrndup(record->path, (size_t)(path_base(record->path) - record->path) - 1);
        if (dir_make(directory, &ignored))
            file_write_atomic(record->path, str_slice(text, 1, text.size), &ignored);
        free(directory);
    }
    buf_release(&record->text);
    free(record->path);
    *record = (struct check_record){ 0 };
}
