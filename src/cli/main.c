/* The program: finds the command, prints the help. The table below is the whole of it. */
#include "base/log.h"
#include "base/str.h"
#include "cli/command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define TABLES_CAP 8
#define HELP_CAP (1u << 20)

/* One row a command: extern in the block, then in the list. */
extern const struct command command_run, command_worker;
extern const struct command command_shard, command_shard_verify;
extern const struct command command_tokenize, command_detokenize, command_template;
extern const struct command command_eval_logits, command_eval_perplexity, command_eval_divergence;
extern const struct command command_eval_importance;
extern const struct command command_bench, command_bench_model;
extern const struct command command_bench_kernels, command_bench_machine;
extern const struct command command_engines, command_grammar, command_help;

const struct command *const commands[] = {
    &command_run,
    &command_worker,
    &command_shard,
    &command_shard_verify,
    &command_tokenize,
    &command_detokenize,
    &command_template,
    &command_grammar,
    &command_eval_logits,
    &command_eval_perplexity,
    &command_eval_divergence,
    &command_eval_importance,
    &command_bench,
    &command_bench_model,
    &command_bench_kernels,
    &command_bench_machine,
    &command_engines,
    &command_help,
    NULL,
};

/* Words of a command's name that argv starts with; 0 if it is another one. */
static int match_name(const struct command *command, int argc, char **argv)
{
    struct str rest = str_from(command->name), word;
    int n_words = 0;
    while (str_split(&rest, ' ', &word)) {
        if (n_words >= argc || !str_is(word, argv[n_words]))
            return 0;
        n_words++;
    }
    return n_words;
}

/* The longest name wins: "shard verify" before "shard". */
static const struct command *find_command(int argc, char **argv, int *n_words)
{
    const struct command *found = NULL;
    *n_words = 0;
    for (size_t i = 0; commands[i]; i++) {
        int n = match_name(commands[i], argc, argv);
        if (n > *n_words) {
            *n_words = n;
            found = commands[i];
        }
    }
    return found;
}

/* "eval" of "eval logits": the first word of a command of two words. */
static bool is_group(const char *word)
{
    for (size_t i = 0; commands[i]; i++) {
        struct str rest = str_from(commands[i]->name), first;
        if (str_split(&rest, ' ', &first) && rest.data && str_is(first, word))
            return true;
    }
    return false;
}

static void add_summaries(struct buf *out, struct str prefix)
{
    for (size_t i = 0; commands[i]; i++) {
        if (str_starts(str_from(commands[i]->name), prefix))
            buf_printf(out, "  %-16s %s\n", commands[i]->name, commands[i]->summary);
    }
}

static void add_overview(struct buf *out)
{
    buf_add_text(
        out,
        "Cascadia runs large language models on the PCs you already own: it cuts a model into\n"
        "stages, runs each on a machine, and serves an OpenAI-compatible API.\n\n"
        "usage: cascadia COMMAND [options]    (cascadia COMMAND --help)\n\n");
    add_summaries(out, STR(""));
    buf_add_text(out,
                 "\nfirst steps:\n"
                 "  cascadia run model.gguf   serve a model on this machine\n"
                 "  cascadia run mock-model   try the API without a model\n"
                 "\nexit status: 0 done, 1 failed, 2 usage. Results go to stdout, logs to stderr.\n"
                 "Every command takes --log-level error|warn|info|debug and --log-json.\n");
}

static void add_command_help(struct buf *out, const struct command *command)
{
    struct option_table tables[TABLES_CAP];
    buf_printf(out, "%s\n\nusage: cascadia %s%s%s\n", command->summary, command->name,
               command->usage[0] ? " " : "", command->usage);
    size_t n_tables = command->options ? command->options(tables, TABLES_CAP) : 0;
    if (n_tables)
        buf_add_char(out, '\n');
    option_help(tables, n_tables, out);
    if (command->help)
        buf_printf(out, "\n%s", command->help);
}

static int print(struct buf *out)
{
    fwrite(out->data, 1, out->size, stdout); // main sees whether it went well
    buf_release(out);
    return 0;
}

static int print_markdown(struct buf *out)
{
    buf_add_text(
        out,
        "# Command line\n\nPrinted by `cascadia help --markdown`; `make docs` writes it.\n\n```\n");
    add_overview(out);
    buf_add_text(out, "```\n");
    for (size_t i = 0; commands[i]; i++) {
        buf_printf(out, "\n## %s\n\n```\n", commands[i]->name);
        add_command_help(out, commands[i]);
        buf_add_text(out, "```\n");
    }
    return print(out);
}

static int no_command(const char *word)
{
    const char *nearest = NULL;
    uint32_t least = 3; // farther than this is not a slip of the hand
    for (size_t i = 0; commands[i]; i++) {
        const uint32_t far = str_distance(str_from(word), str_from(commands[i]->name));
        if (far < least) {
            least = far;
            nearest = commands[i]->name;
        }
    }
    if (is_group(word))
        fprintf(stderr, "cascadia: %s needs a second word; cascadia help %s lists them\n", word,
                word);
    else if (nearest)
        fprintf(stderr, "cascadia: there is no command \"%s\"; did you mean %s?\n", word, nearest);
    else
        fprintf(stderr, "cascadia: there is no command \"%s\"; cascadia help lists them\n", word);
    return 2;
}

static int run_help(const struct command *command, int argc, char **argv)
{
    (void)command;
    struct buf out;
    int n_words;
    buf_init(&out, HELP_CAP);
    if (argc == 1 && strcmp(argv[0], "--markdown") == 0)
        return print_markdown(&out);
    const struct command *about = find_command(argc, argv, &n_words);
    if (argc && !about && !is_group(argv[0]))
        return no_command(argv[0]);
    if (about)
        add_command_help(&out, about);
    else if (argc)
        add_summaries(&out, str_from(argv[0]));
    else
        add_overview(&out);
    return print(&out);
}

const struct command command_help = {
    .name = "help",
    .usage = "[COMMAND | --markdown]",
    .summary = "show this page, or that of a command",
    .run = run_help,
};

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    }
    return false;
}

/* Takes --log-level L and --log-json out of argv: every command has them. Returns the new argc, or
 * -1 on a bad level. */
static int take_log_options(int argc, char **argv)
{
    static const char *const levels[] = { "error", "warn", "info", "debug" };
    int kept = 0, level = LOG_INFO;
    bool as_json = false;
    for (int i = 0; i < argc; i++) {
        const char *value = NULL;
        if (strcmp(argv[i], "--log-json") == 0) {
            as_json = true;
            continue;
        }
        if (strncmp(argv[i], "--log-level=", 12) == 0)
            value = argv[i] + 12;
        else if (strcmp(argv[i], "--log-level") == 0)
            value = i + 1 < argc ? argv[++i] : "";
        if (!value) {
            argv[kept++] = argv[i];
            continue;
        }
        for (level = 3; level >= 0 && strcmp(levels[level], value) != 0; level--)
            continue;
        if (level < 0)
            return -1;
    }
    log_setup((enum log_level)level, as_json);
    return kept;
}

/* Runs what the words ask for and returns the exit status. */
static int run_words(int argc, char **argv)
{
    int n_words;
    if (argc == 1 && strcmp(argv[0], "--version") == 0)
        return printf("cascadia %s\n", CASCADIA_VERSION) < 0;
    const struct command *command = find_command(argc, argv, &n_words);
    if (!command && (argc == 0 || asks_for_help(argc, argv)))
        return run_help(&command_help, argc && is_group(argv[0]) ? 1 : 0, argv);
    if (!command)
        return no_command(argv[0]);
    if (asks_for_help(argc - n_words, argv + n_words))
        return run_help(&command_help, n_words, argv);
    return command->run(command, argc - n_words, argv + n_words);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    argc = take_log_options(argc - 1, argv + 1);
    if (argc < 0) {
        fprintf(stderr, "cascadia: --log-level takes error, warn, info or debug\n");
        return 2;
    }
    int status = run_words(argc, argv + 1);
    /* What was printed may wait in the buffer still: a full disk is found out here, if a command
     * did not do so itself. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0) {
        fprintf(stderr, "cascadia: cannot write to standard output: %s\n", strerror(errno));
        status = 1;
    }
    return status;
}
