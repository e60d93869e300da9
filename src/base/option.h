/* Command-line options as data: a table of rows beside the struct that they fill.
 *
 *     static const struct option_row rows[] = {
 *         OPTION_U32(struct shard_options, group_size, "group-size", "N", 32, 128, "weights that
 * share a scale"),
 *         ...
 *         OPTION_END
 *     };
 *
 * Defaults are what the struct holds before parsing; help prints them. A command may join several
 * tables, each with its own target struct. Boolean options take no value, or --x=on|off|true|
 * false|1|0|yes|no; anything else is a usage error. `--name value` and `--name=value` both work.
 * Nothing reads the environment. The thread that owns the targets. */
#ifndef CASCADIA_BASE_OPTION_H
#define CASCADIA_BASE_OPTION_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_type {
    OPTION_TYPE_BOOL,   // bool
    OPTION_TYPE_U32,    // uint32_t, within [low, high]
    OPTION_TYPE_U64,    // uint64_t, within [low, high]
    OPTION_TYPE_BYTES,  // uint64_t; takes 512M, 2G, 1.5GiB
    OPTION_TYPE_DOUBLE, // double, within [low, high]
    OPTION_TYPE_TEXT,   // const char *, into argv
    OPTION_TYPE_CHOICE, // const char *, one of choices "a|b|c"
    OPTION_TYPE_LIST,   // struct option_list: may be given several times
};

#define OPTION_LIST_CAP 64
struct option_list {
    const char *items[OPTION_LIST_CAP];
    size_t n_items;
};

struct option_row {
    const char *name; // without dashes
    enum option_type type;
    size_t offset;     // in the target struct
    double low, high;  // numbers
    const char *value; // what help calls it: "N", "FILE", "a|b|c"
    const char *help;  // a sentence
};

#define OPTION_BOOL(S, field, name, help)                                                          \
    {                                                                                              \
        name, OPTION_TYPE_BOOL, offsetof(S, field), 0, 0, NULL, help                               \
    }
#define OPTION_U32(S, field, name, value, low, high, help)                                         \
    {                                                                                              \
        name, OPTION_TYPE_U32, offsetof(S, field), low, high, value, help                          \
    }
#define OPTION_U64(S, field, name, value, low, high, help)                                         \
    {                                                                                              \
        name, OPTION_TYPE_U64, offsetof(S, field), low, high, value, help                          \
    }
#define OPTION_BYTES(S, field, name, help)                                                         \
    {                                                                                              \
        name, OPTION_TYPE_BYTES, offsetof(S, field), 0, 1.8e19, "BYTES", help                      \
    }
#define OPTION_DOUBLE(S, field, name, value, low, high, help)                                      \
    {                                                                                              \
        name, OPTION_TYPE_DOUBLE, offsetof(S, field), low, high, value, help                       \
    }
#define OPTION_TEXT(S, field, name, value, help)                                                   \
    {                                                                                              \
        name, OPTION_TYPE_TEXT, offsetof(S, field), 0, 0, value, help                              \
    }
#define OPTION_CHOICE(S, field, name, choices, help)                                               \
    {                                                                                              \
        name, OPTION_TYPE_CHOICE, offsetof(S, field), 0, 0, choices, help                          \
    }
#define OPTION_LIST(S, field, name, value, help)                                                   \
    {                                                                                              \
        name, OPTION_TYPE_LIST, offsetof(S, field), 0, 0, value, help                              \
    }
#define OPTION_END                                                                                 \
    {                                                                                              \
        NULL, OPTION_TYPE_BOOL, 0, 0, 0, NULL, NULL                                                \
    }

/* One table with the struct that it fills. */
struct option_table {
    const char *title; // heading in the help, or NULL
    const struct option_row *rows;
    void *target;
};

/* Parses argv[0..argc): options into their targets, the rest into `words` (at most words_cap;
 * one more is a usage error, as is an unknown option: ERR_ARGUMENT with the nearest name).
 * "--" ends the options. --help is not handled here. */
bool option_parse(const struct option_table *tables, size_t n_tables, int argc, char **argv,
                  const char **words, size_t words_cap, size_t *n_words, struct err *err);

/* The help text of the tables, with the defaults that the targets hold now. */
void option_help(const struct option_table *tables, size_t n_tables, struct buf *out);

#endif
