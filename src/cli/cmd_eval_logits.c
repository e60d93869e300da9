/* eval logits: the numbers themselves, as a NumPy file, for whoever debugs a model. */
#include "cli/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "cli/eval.h"

#define IDS_BYTES_CAP ((size_t)64 << 20) // which also bounds how many there can be

struct logits_options {
    const char *ids, *output;
    bool all;
};

static struct logits_options options;
static struct eval_options shared;

static const struct option_row rows[] = {
    OPTION_TEXT(struct logits_options, ids, "ids", "FILE.json", "a JSON array of token ids"),
    OPTION_TEXT(struct logits_options, output, "output", "OUT.npy", "where the logits go, float32"),
    OPTION_BOOL(struct logits_options, all, "all",
                "the logits of every position; else of the last one"),
    OPTION_END,
};

static size_t logits_tables(struct option_table *tables, size_t cap)
{
    must(cap >= 1 + EVAL_TABLES);
    options = (struct logits_options){ 0 };
    tables[0] = (struct option_table){ .rows = rows, .target = &options };
    eval_tables(tables + 1, &shared);
    return 1 + EVAL_TABLES;
}

/* Caller frees; NULL on failure. */
static int32_t *read_ids(const char *path, uint32_t *n_ids, struct err *err)
{
    struct json *json = json_parse_file(path, IDS_BYTES_CAP, err);
    int32_t *ids = NULL;
    const size_t size = json_size(json);
    if (json == NULL)
        return NULL;
    if (json_kind(json) != JSON_KIND_ARRAY || size == 0) {
        err_set(err, ERR_ARGUMENT, "%s is not an array of ids", path);
        goto done;
    }
    ids = xcalloc(size, sizeof(*ids));
    for (size_t i = 0; i < size; i++) {
        uint32_t id;
        if (!json_read_u32(json_at(json, i), &id) || id > INT32_MAX) {
            err_set(err, ERR_ARGUMENT, "%s: element %zu is not an id", path, i);
            free(ids);
            ids = NULL;
            goto done;
        }
        ids[i] = (int32_t)id;
    }
    *n_ids = (uint32_t)size;
done:
    json_free(json);
    return ids;
}

/* Version 1.0 of NumPy's format: a header padded to 64 bytes, then the rows. */
static bool write_header(struct file_writer *writer, uint32_t n_rows, uint32_t n_cols,
                         struct err *err)
{
    char header[128];
    memset(header, ' ', sizeof(header));
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10); // 118 bytes follow
    const int size =
        snprintf(header + 10, sizeof(header) - 10,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%u, %u), }", n_rows, n_cols);
    header[10 + size] = ' ';
    header[sizeof(header) - 1] = '\n';
    return file_writer_append(writer, header, sizeof(header), err);
}

struct writing {
    struct file_writer *writer;
    uint32_t vocab_size;
};

static bool write_rows(void *context, uint32_t position, uint32_t n_rows, const float *logits,
                       struct err *err)
{
    const struct writing *writing = context;
    (void)position;
    return file_writer_append(writing->writer, logits,
                              (size_t)n_rows * writing->vocab_size * sizeof(*logits), err);
}

static bool run_and_write(struct eval *eval, const int32_t *ids, uint32_t n_ids, struct err *err)
{
    struct file_writer writer;
    struct writing writing = { &writer, eval->vocab_size };
    if (!file_writer_open(&writer, options.output, err))
        return false;
    if (!write_header(&writer, options.all ? n_ids : 1, eval->vocab_size, err) ||
        !eval_run(eval, ids, n_ids, options.all ? 0 : n_ids - 1, write_rows, &writing, err)) {
        file_writer_abandon(&writer);
        return false;
    }
    return file_writer_close(&writer, false, err);
}

static bool evaluate(const char *model, struct err *err)
{
    uint32_t n_ids;
    int32_t *ids = read_ids(options.ids, &n_ids, err);
    if (ids == NULL)
        return false;
    struct eval *eval = xcalloc(1, sizeof(*eval));
    const bool ok =
        eval_open(eval, model, &shared, n_ids, err) && run_and_write(eval, ids, n_ids, err);
    eval_close(eval);
    free(eval);
    free(ids);
    return ok;
}

static int logits_run(const struct command *command, int argc, char **argv)
{
    const char *words[1];
    size_t n_words;
    struct err err;
    if (!command_parse(command, argc, argv, words, 1, 1, &n_words))
        return 2;
    if (options.ids == NULL || options.output == NULL) {
        err_set(&err, ERR_ARGUMENT, "--ids and --output are needed");
        return command_misused(command, &err);
    }
    return evaluate(words[0], &err) ? 0 : command_failed(command, &err);
}

const struct command command_eval_logits = {
    .name = "eval logits",
    .usage = "MODEL --ids FILE.json -o OUT.npy [options]",
    .summary = "write the logits that a model gives for token ids",
    .help = "MODEL is a GGUF file, a Hugging Face directory or a shard directory; tokenizer files\n"
            "are not needed. OUT.npy holds float32 [positions or 1, vocabulary].\n\n"
            "  cascadia eval logits model.gguf --ids ids.json -o logits.npy --all\n",
    .run = logits_run,
    .options = logits_tables,
};
