/* detokenize: ids to text, the reverse of tokenize, through the streaming detokenizer. */
#include "base/json.h"
#include "cli/command.h"
#include "shard/tokenizer_source.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

#include <stdio.h>

#define IDS_BYTES_CAP ((size_t)1 << 30)

static struct detokenize_options {
    const char *file;
    bool no_special;
} options;

static const struct option_row rows[] = {
    OPTION_TEXT(struct detokenize_options, file, "file", "FILE",
                "the JSON array of ids; else standard input"),
    OPTION_BOOL(struct detokenize_options, no_special, "no-special", "special tokens give no text"),
    OPTION_END
};

static size_t detokenize_tables(struct option_table *tables, size_t cap)
{
    if (cap == 0)
        return 0;
    tables[0] = (struct option_table){ .rows = rows, .target = &options };
    return 1;
}

static bool print_text(const struct tokenizer *tokenizer, const struct json *ids, struct err *err)
{
    struct detokenizer detokenizer;
    struct buf text;
    bool good =
        json_kind(ids) == JSON_KIND_ARRAY || err_set(err, ERR_FORMAT, "the ids are no JSON array");
    detokenizer_init(&detokenizer, tokenizer, options.no_special, NULL, 0);
    buf_init(&text, IDS_BYTES_CAP);
    for (size_t i = 0; good && i < json_size(ids); i++) {
        uint32_t id;
        if (!json_read_u32(json_at(ids, i), &id) || id >= tokenizer_n_tokens(tokenizer))
            good = err_set(err, ERR_ARGUMENT, "item %zu is no id of this vocabulary (0 to %zu)", i,
                           tokenizer_n_tokens(tokenizer) - 1);
        else
            detokenizer_push(&detokenizer, id, &text);
    }
    detokenizer_finish(&detokenizer, &text);
    if (good && !buf_ok(&text))
        good = err_set(err, ERR_ARGUMENT, "a text of more than %zu bytes", IDS_BYTES_CAP);
    if (good && (fwrite(buf_view(&text).data, 1, text.size, stdout) != text.size || fflush(stdout)))
        good = err_set_errno(err, "cannot write the text");
    buf_release(&text);
    return good;
}

static bool detokenize(const char *model, struct err *err)
{
    struct tokenizer *tokenizer = tokenizer_source_load(model, err);
    struct json *ids = NULL;
    bool good = false;
    if (tokenizer) {
        ids = json_parse_file(options.file ? options.file : "/dev/stdin", IDS_BYTES_CAP, err);
        good = ids && print_text(tokenizer, ids, err);
    }
    json_free(ids);
    tokenizer_free(tokenizer);
    return good;
}

static int detokenize_run(const struct command *command, int argc, char **argv)
{
    const char *words[1];
    size_t n_words;
    struct err err;
    if (!command_parse(command, argc, argv, words, 1, 1, &n_words))
        return 2;
    return detokenize(words[0], &err) ? 0 : command_failed(command, &err);
}

const struct command command_detokenize = {
    .name = "detokenize",
    .usage = "MODEL [--file FILE] [--no-special]",
    .summary = "turn token ids into text",
    .help = "The reverse of tokenize: a JSON array of ids in, the text out and nothing more.\n"
            "\n"
            "  echo '[19556, 28]' | cascadia detokenize model.gguf\n",
    .run = detokenize_run,
    .options = detokenize_tables,
};
