/* grammar: what a grammar lets a model say, without a model: random texts of it. For whoever writes
 * schemas and grammars, and for tests, which read the texts with other people's programs. */
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "cli/command.h"
#include "sample/grammar_random.h"
#include "shard/tokenizer_source.h"
#include "text/tokenizer.h"
#include "text/tokenizer_mock.h"

#include <stdio.h>
#include <stdlib.h>

#define SOURCE_BYTES_CAP ((size_t)64 << 20)
#define TEXT_BYTES_CAP ((size_t)64 << 20)
#define TOKENS_CAP 100000u
#define VOCAB_CAP (1u << 24)

static struct grammar_options {
    const char *json_schema, *gbnf, *regex;
    uint32_t samples, random_tokens;
    uint64_t seed;
    bool lines, cost;
} options;

static const struct option_row rows[] = {
    OPTION_TEXT(struct grammar_options, json_schema, "json-schema", "FILE", "a JSON Schema"),
    OPTION_TEXT(struct grammar_options, gbnf, "gbnf", "FILE", "a grammar in llama.cpp's notation"),
    OPTION_TEXT(struct grammar_options, regex, "regex", "TEXT", "a regular expression"),
    OPTION_U32(struct grammar_options, samples, "samples", "N", 0, 1000000,
               "texts of each grammar"),
    OPTION_U64(struct grammar_options, seed, "seed", "N", 0, INT32_MAX, "of the first text"),
    OPTION_U32(struct grammar_options, random_tokens, "random-tokens", "N", 0, TOKENS_CAP / 2,
               "tokens drawn at random before the shortest way to an end is taken"),
    OPTION_BOOL(struct grammar_options, lines, "lines",
                "the file has a grammar a line; prints a JSON object a text: line, and text or "
                "error"),
    OPTION_BOOL(struct grammar_options, cost, "cost",
                "says on standard error what compiling and masks took, cold and when the same "
                "texts are written again"),
    OPTION_END
};

static size_t grammar_tables(struct option_table *tables, size_t cap)
{
    if (cap == 0)
        return 0;
    options = (struct grammar_options){ .samples = 1, .random_tokens = 100 };
    tables[0] = (struct option_table){ .rows = rows, .target = &options };
    return 1;
}

/* ---- costs ---- */

struct costs {
    uint64_t *ns;
    size_t n, room;
};

static void add_cost(struct costs *costs, const struct grammar_random_cost *more)
{
    for (uint32_t i = 0; i < more->n_masks; i++) {
        if (costs->n == costs->room) {
            costs->room = costs->room ? 2 * costs->room : 1024;
            costs->ns = xreallocarray(costs->ns, costs->room, sizeof *costs->ns);
        }
        costs->ns[costs->n++] = more->ns[i];
    }
}

static int compare_ns(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static void print_costs(const char *what, struct costs *costs)
{
    if (costs->n == 0)
        return;
    qsort(costs->ns, costs->n, sizeof *costs->ns, compare_ns);
    fprintf(stderr, "%s: %zu masks, median %.2f us, 99 of 100 %.2f us, worst %.1f us\n", what,
            costs->n, (double)costs->ns[costs->n / 2] / 1e3,
            (double)costs->ns[costs->n * 99 / 100] / 1e3, (double)costs->ns[costs->n - 1] / 1e3);
}

/* ---- texts ---- */

struct run {
    const struct token_trie *trie;
    uint32_t line;
    uint64_t compile_ns;
    uint32_t n_grammars;
    struct costs cold, warm;
};

static void print_line(const struct run *run, const char *key, struct str value)
{
    struct buf out;
    if (!options.lines) {
        printf("%.*s\n", STR_ARG(value));
        return;
    }
    buf_init(&out, 8 * TEXT_BYTES_CAP);
    buf_printf(&out, "{\"line\": %u, \"%s\": ", run->line, key);
    json_write_string(&out, value);
    printf("%.*s}\n", STR_ARG(buf_view(&out)));
    buf_release(&out);
}

/* All texts once; the costs of the masks go to `costs`. */
static bool write_texts(struct run *run, struct grammar *grammar, bool prints, struct costs *costs,
                        struct err *err)
{
    struct grammar_random_cost cost = { 0 };
    struct buf text;
    bool good = true;
    buf_init(&text, TEXT_BYTES_CAP);
    cost.ns = xcalloc(TOKENS_CAP, sizeof *cost.ns);
    for (uint32_t i = 0; i < options.samples && good; i++) {
        const struct grammar_random_options how = { .seed = options.seed + i,
                                                    .n_random = options.random_tokens,
                                                    .n_tokens_cap = TOKENS_CAP };
        cost.n_masks = 0;
        buf_clear(&text);
        good = grammar_random(grammar, run->trie, &how, &text, &cost, err);
        add_cost(costs, &cost);
        if (good && prints)
            print_line(run, "text", buf_view(&text));
    }
    free(cost.ns);
    buf_release(&text);
    return good;
}

static bool run_grammar(struct run *run, const struct sampling_grammar *source, struct err *err)
{
    const uint64_t start_ns = clock_ns();
    struct grammar *grammar = grammar_new(source, run->trie, err);
    run->compile_ns += clock_ns() - start_ns;
    run->n_grammars++;
    bool good = grammar != NULL && write_texts(run, grammar, true, &run->cold, err);
    if (good && options.cost)
        good = write_texts(run, grammar, false, &run->warm, err);
    grammar_free(grammar);
    if (good || !options.lines)
        return good;
    print_line(run, "error", str_from(err->text));
    return true;
}

static bool run_all(struct run *run, struct sampling_grammar source, struct err *err)
{
    struct str rest = source.text;
    if (!options.lines)
        return run_grammar(run, &source, err);
    while (str_split(&rest, '\n', &source.text)) {
        run->line++;
        if (str_trim(source.text).size > 0 && !run_grammar(run, &source, err))
            return false;
    }
    return true;
}

/* ---- the command ---- */

static bool read_source(struct buf *file, struct sampling_grammar *source, struct err *err)
{
    const int n_given =
        (options.json_schema != NULL) + (options.gbnf != NULL) + (options.regex != NULL);
    if (n_given != 1)
        return err_set(err, ERR_ARGUMENT, "one of --json-schema, --gbnf and --regex is needed");
    if (options.regex != NULL) {
        *source = (struct sampling_grammar){ SAMPLING_GRAMMAR_REGEX, str_from(options.regex) };
        return true;
    }
    if (!file_read(options.json_schema ? options.json_schema : options.gbnf, file, err))
        return false;
    source->language = options.json_schema ? SAMPLING_GRAMMAR_JSON_SCHEMA : SAMPLING_GRAMMAR_GBNF;
    source->text = buf_view(file);
    return true;
}

static bool grammar(const char *model, struct err *err)
{
    struct sampling_grammar source;
    struct buf file;
    struct run run = { 0 };
    buf_init(&file, SOURCE_BYTES_CAP);
    struct tokenizer *tokenizer = NULL;
    bool good = read_source(&file, &source, err);
    if (good) {
        tokenizer = strcmp(model, "mock-model") == 0 ? tokenizer_load_mock()
                                                     : tokenizer_source_load(model, err);
        good = tokenizer != NULL;
    }
    if (good) {
        struct token_trie *trie =
            token_trie_new(tokenizer, (uint32_t)tokenizer_n_tokens(tokenizer));
        run.trie = trie;
        good = run_all(&run, source, err);
        token_trie_free(trie);
    }
    if (good && options.cost) {
        fprintf(stderr, "compiled %u in %.2f ms\n", run.n_grammars, (double)run.compile_ns / 1e6);
        print_costs("cold", &run.cold);
        print_costs("warm", &run.warm);
    }
    free(run.cold.ns);
    free(run.warm.ns);
    tokenizer_free(tokenizer);
    buf_release(&file);
    return good;
}

static int grammar_run(const struct command *command, int argc, char **argv)
{
    const char *words[1];
    size_t n_words;
    struct err err = { 0 };
    if (!command_parse(command, argc, argv, words, 1, 1, &n_words))
        return 2;
    return grammar(words[0], &err) ? 0 : command_failed(command, &err);
}

const struct command command_grammar = {
    .name = "grammar",
    .usage = "MODEL --json-schema FILE|--gbnf FILE|--regex TEXT [options]",
    .summary = "check a grammar and print random texts of it",
    .help =
        "What response_format, grammar and regex let a model say, drawn from random logits over\n"
        "the vocabulary of MODEL (as for tokenize, or mock-model). A grammar that is not\n"
        "supported is an error that says what of it.\n"
        "\n"
        "  cascadia grammar model.gguf --json-schema person.json --samples 5\n",
    .run = grammar_run,
    .options = grammar_tables,
};
