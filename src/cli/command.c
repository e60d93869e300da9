/* What every command needs: parsing its tables, and saying what went wrong in one form. */
#include "cli/command.h"

#include <stdio.h>

#include "base/str.h"

#define TABLES_CAP 8

int command_failed(const struct command *command, const struct err *err)
{
    fprintf(stderr, "cascadia %s: %s\n", command->name, err->text);
    return err_kind(err->code)->exit_status;
}

int command_misused(const struct command *command, const struct err *err)
{
    command_failed(command, err);
    fprintf(stderr, "usage: cascadia %s %s\n", command->name, command->usage);
    return err_kind(ERR_ARGUMENT)->exit_status;
}

/* The usage line begins with the words that are always needed. */
static bool word_missing(const struct command *command, size_t n_words, struct err *err)
{
    struct str usage = str_from(command->usage), word;
    for (size_t i = 0; str_split(&usage, ' ', &word) && i < n_words; i++)
        continue;
    return err_set(err, ERR_ARGUMENT, "%.*s is missing", STR_ARG(word));
}

bool command_parse(const struct command *command, int argc, char **argv, const char **words,
                   size_t words_low, size_t words_cap, size_t *n_words)
{
    struct option_table tables[TABLES_CAP];
    struct err err = { 0 };
    size_t n_tables = command->options ? command->options(tables, TABLES_CAP) : 0;
    if (option_parse(tables, n_tables, argc, argv, words, words_cap, n_words, &err)) {
        if (*n_words >= words_low)
            return true;
        word_missing(command, *n_words, &err);
    }
    command_misused(command, &err);
    return false;
}
