#include "helpers/shard_files.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/file.h"
#include "helpers/cm.h"

#define FILE_CAP ((size_t)64 << 20)

bool shard_files_make(const char *model, const char *directory, const char *quantization,
                      uint32_t group_size, uint32_t n_stages, uint32_t stage,
                      struct export_report *report, struct err *err)
{
    struct source source;
    struct export_options options = {
        .stage = stage,
        .threads = 2,
        .quiet = true,
        .tool_version = "test",
    };
    if (!quantise_settings_parse(str_from(quantization), group_size, &options.quantise, err) ||
        !source_open(&source, model, err))
        return false;
    bool good = split_even(source.config.n_layers, n_stages, &options.split, err) &&
                export_shard(&source, directory, &options, report, err);
    source_close(&source);
    return good;
}

void shard_files_make_default(const char *model, const char *directory, const char *quantization)
{
    struct export_report report;
    struct err err = { 0 };
    if (!shard_files_make(model, directory, quantization, 32, 1, EXPORT_ALL_STAGES, &report, &err))
        fail_msg("%s", err.text);
}

static void read_file(const char *path, struct buf *out)
{
    struct err err = { 0 };
    buf_init(out, FILE_CAP);
    if (!file_read(path, out, &err))
        fail_msg("%s", err.text);
}

static void write_file(const char *path, struct buf *content)
{
    struct err err = { 0 };
    if (!file_write_atomic(path, buf_view(content), &err))
        fail_msg("%s", err.text);
    buf_release(content);
}

void shard_files_flip(const char *directory, const char *name, uint64_t byte, unsigned bit)
{
    struct buf content;
    char *path = path_join(directory, name);
    read_file(path, &content);
    assert_true(byte < content.size);
    content.data[byte] = (char)(content.data[byte] ^ 1 << bit);
    write_file(path, &content);
    free(path);
}

void shard_files_resize(const char *directory, const char *name, int64_t by)
{
    struct buf content;
    char *path = path_join(directory, name);
    read_file(path, &content);
    if (by < 0)
        content.size -= (size_t)-by;
    for (; by > 0; by--)
        buf_add_char(&content, 0);
    write_file(path, &content);
    free(path);
}
