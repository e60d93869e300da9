/* A command is one file with one exported row, and one line in commands[] (main.c). */
#ifndef CASCADIA_CLI_COMMAND_H
#define CASCADIA_CLI_COMMAND_H

#include "base/buf.h"
#include "base/option.h"

struct command {
    const char *name;    // "shard", or "eval logits" for a command of two words
    const char *usage;   // what follows the name: "MODEL -o DIR [options]"
    const char *summary; // one line
    const char *help;    // paragraphs and examples, printed after the options; may be NULL
    /* argv[0] is the first word after the name. Returns the exit status: 0 done, 1 failed, 2 usage.
     * Results go to stdout, everything else to stderr. */
    int (*run)(const struct command *command, int argc, char **argv);
    /* The tables, for --help and docs/cli.md: fills at most `cap` tables whose targets hold the
     * defaults; returns how many. NULL: no options. */
    size_t (*options)(struct option_table *tables, size_t cap);
};

extern const struct command *const commands[]; // NULL at the end

/* Prints "cascadia NAME: sentence" and returns the exit status of err's code. */
int command_failed(const struct command *command, const struct err *err);

/* The same for a command line that is not whole: the usage line follows. Returns 2. */
int command_misused(const struct command *command, const struct err *err);

/* Parses with command->options's tables; on a usage error says so (command_misused) and returns
 * false. n_words must end between words_low and words_cap; words that are always needed come first
 * in command->usage, whence the name of a missing one. */
bool command_parse(const struct command *command, int argc, char **argv, const char **words,
                   size_t words_low, size_t words_cap, size_t *n_words);

#endif
