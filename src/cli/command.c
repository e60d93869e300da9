/* What every command needs: parsing its tables, and saying what went wrong in one form. */
#include "cli/command.h"

#include <stdio.h>

#define TABLES_CAP 8

int command_failed(const struct command *command, const struct err *err)
{
    fprintf(stderr, "cascadia %s: %s\n", command->name, err->text);
    return err_kind(err->code)->exit_status;
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
        err_set(&err, ERR_ARGUMENT, "something is missing");
    }
    command_failed(command, &err);
    fprintf(stderr, "usage: cascadia %s %s\n", command->name, command->usage);
    return false;
}
