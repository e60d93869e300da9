/* Options from tables: one parser, one help, for every command. */
#include "base/option.h"

#include "base/str.h"

#include <inttypes.h>
#include <math.h>

#define HELP_COLUMN 30u // where the sentences begin
#define HELP_WIDTH 100u // and where they are broken
#define HELP_TEXT_CAP 1000u

static const struct option_row *find_row(const struct option_table *tables, size_t n_tables,
                                         struct str name, void **target)
{
    for (size_t t = 0; t < n_tables; t++) {
        for (const struct option_row *row = tables[t].rows; row->name; row++) {
            if (str_is(name, row->name)) {
                *target = tables[t].target;
                return row;
            }
        }
    }
    return NULL;
}

static bool unknown_option(const struct option_table *tables, size_t n_tables, struct str name,
                           struct err *err)
{
    const char *nearest = NULL;
    uint32_t least = 4; // farther than this is not a slip of the hand
    for (size_t t = 0; t < n_tables; t++) {
        for (const struct option_row *row = tables[t].rows; row->name; row++) {
            uint32_t far = str_distance(name, str_from(row->name));
            if (far < least) {
                least = far;
                nearest = row->name;
            }
        }
    }
    if (nearest)
        return err_set(err, ERR_ARGUMENT, "unknown option --%.*s; did you mean --%s?",
                       STR_ARG(name), nearest);
    return err_set(err, ERR_ARGUMENT, "unknown option --%.*s; --help lists them", STR_ARG(name));
}

static bool set_bool(const struct option_row *row, void *field, struct str value, struct err *err)
{
    static const char *const yes[] = { "on", "true", "1", "yes" };
    static const char *const no[] = { "off", "false", "0", "no" };
    for (size_t i = 0; i < 4; i++) {
        if (str_is(value, yes[i]) || str_is(value, no[i])) {
            *(bool *)field = str_is(value, yes[i]);
            return true;
        }
    }
    return err_set(err, ERR_ARGUMENT, "--%s takes on or off, not \"%.*s\"", row->name,
                   STR_ARG(value));
}

static bool out_of_range(const struct option_row *row, struct str value, struct err *err)
{
    return err_set(err, ERR_ARGUMENT, "--%s takes a number from %.15g to %.15g, not \"%.*s\"",
                   row->name, row->low, row->high, STR_ARG(value));
}

static bool set_number(const struct option_row *row, void *field, struct str value, struct err *err)
{
    double real;
    uint64_t whole;
    if (row->type == OPTION_TYPE_DOUBLE) {
        if (!str_to_double(value, &real) || real < row->low || real > row->high)
            return out_of_range(row, value, err);
        *(double *)field = real;
        return true;
    }
    if (!str_to_u64(value, &whole) || (double)whole < row->low || (double)whole > row->high)
        return out_of_range(row, value, err);
    if (row->type == OPTION_TYPE_U32 && whole > UINT32_MAX)
        return out_of_range(row, value, err);
    if (row->type == OPTION_TYPE_U32)
        *(uint32_t *)field = (uint32_t)whole;
    else
        *(uint64_t *)field = whole;
    return true;
}

static bool set_bytes(const struct option_row *row, void *field, struct str value, struct err *err)
{
    static const char units[] = "KMGT";
    size_t digits = 0;
    double number, factor = 1;
    while (digits < value.size &&
           (value.data[digits] == '.' || (value.data[digits] >= '0' && value.data[digits] <= '9')))
        digits++;
    struct str unit = str_slice(value, digits, value.size);
    if (unit.size && str_ends(unit, STR("B")))
        unit.size -= str_ends(unit, STR("iB")) ? 2 : 1;
    const char *at = unit.size == 1 ? strchr(units, unit.data[0] & ~0x20) : NULL;
    if (at)
        factor = pow(1024, (double)(at - units + 1));
    if (!str_to_double(str_slice(value, 0, digits), &number) || (unit.size && !at) ||
        number * factor > 9e18)
        return err_set(err, ERR_ARGUMENT, "--%s takes a size such as 512M or 2G, not \"%.*s\"",
                       row->name, STR_ARG(value));
    *(uint64_t *)field = (uint64_t)(number * factor);
    return true;
}

static bool set_choice(const struct option_row *row, void *field, const char *value,
                       struct err *err)
{
    struct str choices = str_from(row->value), choice;
    while (str_split(&choices, '|', &choice)) {
        if (str_is(choice, value)) {
            *(const char **)field = value;
            return true;
        }
    }
    return err_set(err, ERR_ARGUMENT, "--%s takes one of %s, not \"%s\"", row->name, row->value,
                   value);
}

static bool add_to_list(const struct option_row *row, void *field, const char *value,
                        struct err *err)
{
    struct option_list *list = field;
    if (list->n_items == OPTION_LIST_CAP)
        return err_set(err, ERR_ARGUMENT, "--%s given more than %d times", row->name,
                       OPTION_LIST_CAP);
    list->items[list->n_items++] = value;
    return true;
}

static bool set_value(const struct option_row *row, void *target, const char *value,
                      struct err *err)
{
    void *field = (char *)target + row->offset;
    switch (row->type) {
    case OPTION_TYPE_BOOL:
        return set_bool(row, field, str_from(value), err);
    case OPTION_TYPE_U32:
    case OPTION_TYPE_U64:
    case OPTION_TYPE_DOUBLE:
        return set_number(row, field, str_from(value), err);
    case OPTION_TYPE_BYTES:
        return set_bytes(row, field, str_from(value), err);
    case OPTION_TYPE_TEXT:
        *(const char **)field = value;
        return true;
    case OPTION_TYPE_CHOICE:
        return set_choice(row, field, value, err);
    case OPTION_TYPE_LIST:
        return add_to_list(row, field, value, err);
    }
    return false;
}

/* One option at argv[*at]; moves *at past its value. */
static bool take_option(const struct option_table *tables, size_t n_tables, int argc, char **argv,
                        int *at, struct err *err)
{
    bool dash_o = strcmp(argv[*at], "-o") == 0; // the one short form: output
    struct str name = dash_o ? STR("output") : str_from(argv[*at] + 2);
    size_t equals = str_find_char(name, '=');
    const char *value = NULL;
    void *target = NULL;
    if (equals != SIZE_MAX) {
        value = name.data + equals + 1;
        name.size = equals;
    }
    const struct option_row *row = find_row(tables, n_tables, name, &target);
    if (!row)
        return unknown_option(tables, n_tables, name, err);
    if (!value && row->type == OPTION_TYPE_BOOL)
        value = "on";
    if (!value && *at + 1 < argc)
        value = argv[++*at];
    if (!value)
        return err_set(err, ERR_ARGUMENT, "--%s needs a value: %s", row->name, row->value);
    return set_value(row, target, value, err);
}

bool option_parse(const struct option_table *tables, size_t n_tables, int argc, char **argv,
                  const char **words, size_t words_cap, size_t *n_words, struct err *err)
{
    size_t count = 0;
    bool options_over = false;
    for (int at = 0; at < argc; at++) {
        bool is_option = strncmp(argv[at], "--", 2) == 0 || strcmp(argv[at], "-o") == 0;
        if (!options_over && strcmp(argv[at], "--") == 0) {
            options_over = true;
        } else if (!options_over && is_option) {
            if (!take_option(tables, n_tables, argc, argv, &at, err))
                return false;
        } else if (!options_over && argv[at][0] == '-' && argv[at][1] != '\0') {
            return err_set(err, ERR_ARGUMENT, "unknown option %s; --help lists them", argv[at]);
        } else if (count == words_cap) {
            return err_set(err, ERR_ARGUMENT, "one word too many: \"%s\"", argv[at]);
        } else {
            words[count++] = argv[at];
        }
    }
    *n_words = count;
    return true;
}

/* As it could be typed: 16M, or 1000 when it is no whole number of units. */
static void add_bytes(struct buf *out, uint64_t bytes)
{
    static const char units[] = "KMGT";
    size_t unit = 0;
    while (bytes && bytes % 1024 == 0 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    buf_printf(out, "%" PRIu64, bytes);
    if (unit)
        buf_add_char(out, units[unit - 1]);
}

static void add_default(struct buf *out, const struct option_row *row, const void *target)
{
    const void *field = (const char *)target + row->offset;
    switch (row->type) {
    case OPTION_TYPE_BOOL:
        if (*(const bool *)field)
            buf_add_text(out, " (default on)");
        break;
    case OPTION_TYPE_U32:
        if (*(const uint32_t *)field)
            buf_printf(out, " (default %" PRIu32 ")", *(const uint32_t *)field);
        break;
    case OPTION_TYPE_U64:
    case OPTION_TYPE_BYTES:
        if (*(const uint64_t *)field == 0)
            break;
        buf_add_text(out, " (default ");
        if (row->type == OPTION_TYPE_BYTES)
            add_bytes(out, *(const uint64_t *)field);
        else
            buf_printf(out, "%" PRIu64, *(const uint64_t *)field);
        buf_add_char(out, ')');
        break;
    case OPTION_TYPE_DOUBLE:
        buf_printf(out, " (default %g)", *(const double *)field);
        break;
    case OPTION_TYPE_TEXT:
    case OPTION_TYPE_CHOICE:
        if (*(const char *const *)field)
            buf_printf(out, " (default %s)", *(const char *const *)field);
        break;
    case OPTION_TYPE_LIST:
        buf_add_text(out, " (may be repeated)");
        break;
    }
}

/* Breaks `text` between words, every line from HELP_COLUMN on; the first is there already. */
static void add_wrapped(struct buf *out, struct str text)
{
    struct str word;
    size_t column = HELP_COLUMN;
    while (str_split(&text, ' ', &word)) {
        if (column > HELP_COLUMN && column + 1 + word.size > HELP_WIDTH) {
            buf_printf(out, "\n%*s", (int)HELP_COLUMN, "");
            column = HELP_COLUMN;
        } else if (column > HELP_COLUMN) {
            buf_add_char(out, ' ');
            column++;
        }
        buf_add_str(out, word);
        column += word.size;
    }
    buf_add_char(out, '\n');
}

static void add_row(struct buf *out, const struct option_row *row, const void *target)
{
    const size_t start = out->size;
    struct buf text;
    buf_printf(out, "  --%s%s", row->name, strcmp(row->name, "output") == 0 ? ", -o" : "");
    if (row->value)
        buf_printf(out, " %s", row->value);
    const size_t width = out->size - start;
    if (width + 1 < HELP_COLUMN)
        buf_printf(out, "%*s", (int)(HELP_COLUMN - width), "");
    else
        buf_printf(out, "\n%*s", (int)HELP_COLUMN, "");
    buf_init(&text, HELP_TEXT_CAP);
    buf_add_text(&text, row->help);
    add_default(&text, row, target);
    add_wrapped(out, buf_view(&text));
    buf_release(&text);
}

void option_help(const struct option_table *tables, size_t n_tables, struct buf *out)
{
    for (size_t t = 0; t < n_tables; t++) {
        buf_printf(out, "%s%s:\n", t ? "\n" : "", tables[t].title ? tables[t].title : "options");
        for (const struct option_row *row = tables[t].rows; row->name; row++)
            add_row(out, row, tables[t].target);
    }
}
