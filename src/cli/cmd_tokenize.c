/* tokenize: text to ids, for people and scripts. The text is read as a model's own: what is written
 * as a control token is one, unless --plain reads it as a user's. */
#include "base/file.h"
#include "cli/command.h"
#include "shard/tokenizer_source.h"
#include "text/tokenizer.h"

#include <stdio.h>

static struct tokenize_options {
    const char *file;
    bool no_special;
    bool plain;
} options;

static const struct option_row rows[] = {
    OPTION_TEXT(struct tokenize_options, file, "file", "FILE", "the text; else standard input"),
    OPTION_BOOL(struct tokenize_options, no_special, "no-special",
                "adds nothing around the text (BOS, EOS)"),
    OPTION_BOOL(struct tokenize_options, plain, "plain",
                "control tokens written in the text are read as ordinary text"),
    OPTION_END
};

static size_t tokenize_tables(struct option_table *tables, size_t cap)
{
    if (cap == 0)
        return 0;
    tables[0] = (struct option_table){ .rows = rows, .target = &options };
    return 1;
}

/* "[1, 2, 3]" and a line end. */
static bool print_ids(const struct token_list *ids)
{
    fputc('[', stdout);
    for (size_t i = 0; i < ids->n_ids; i++)
        printf(i ? ", %u" : "%u", ids->ids[i]);
    fputs("]\n", stdout);
    return fflush(stdout) == 0 && !ferror(stdout);
}

static bool tokenize(const char *model, struct err *err)
{
    struct tokenizer *tokenizer = tokenizer_source_load(model, err);
    if (!tokenizer)
        return false;
    struct buf text;
    struct token_list ids;
    buf_init(&text, TOKENIZER_TEXT_BYTES_CAP);
    token_list_init(&ids, TOKENIZER_TEXT_BYTES_CAP + 64);
    const struct tokenizer_encode_options how = { .add_special = !options.no_special };
    bool good = file_read(options.file ? options.file : "/dev/stdin", &text, err);
    if (good) {
        const struct tokenizer_segment segment = { .text = buf_view(&text),
                                                   .allow_control = !options.plain };
        good = tokenizer_encode(tokenizer, &segment, 1, &how, &ids, err);
    }
    if (good && !print_ids(&ids))
        good = err_set_errno(err, "cannot write the ids");
    token_list_release(&ids);
    buf_release(&text);
    tokenizer_free(tokenizer);
    return good;
}

static int tokenize_run(const struct command *command, int argc, char **argv)
{
    const char *words[1];
    size_t n_words;
    struct err err;
    if (!command_parse(command, argc, argv, words, 1, 1, &n_words))
        return 2;
    return tokenize(words[0], &err) ? 0 : command_failed(command, &err);
}

const struct command command_tokenize = {
    .name = "tokenize",
    .usage = "MODEL [--file FILE] [--no-special] [--plain]",
    .summary = "turn text into token ids, as a JSON array",
    .help = "MODEL is a shard directory, a Hugging Face directory, a tokenizer.json or a GGUF\n"
            "file (one that holds a vocabulary alone will do). Bytes that are not UTF-8 are read\n"
            "as U+FFFD.\n"
            "\n"
            "  echo -n 'Hello' | cascadia tokenize model.gguf --no-special\n",
    .run = tokenize_run,
    .options = tokenize_tables,
};
