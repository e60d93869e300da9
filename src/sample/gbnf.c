/* Recursive descent over characters. Rules may be used before they are defined: a name gets its
 * number when it is first seen, and grammar_rules_check finds those that never got a body. */
#include "sample/gbnf.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/memory.h"

struct gbnf_reader {
    struct str text;
    size_t at;
    struct grammar_rules *rules;
    uint32_t *slots; // [slot_mask + 1] rules by hash of the name, plus 1
    uint32_t slot_mask;
    uint32_t depth;
    struct err *err;
};

static bool fail(const struct gbnf_reader *reader, const char *what)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < reader->at && i < reader->text.size; i++) {
        column = reader->text.data[i] == '\n' ? 1 : column + 1;
        line += reader->text.data[i] == '\n';
    }
    return err_set(reader->err, ERR_ARGUMENT, "line %zu, column %zu: %s", line, column, what);
}

/* NUL at the end and for itself: neither begins anything. */
static char peek(const struct gbnf_reader *reader)
{
    return reader->at < reader->text.size ? reader->text.data[reader->at] : '\0';
}

static bool starts(const struct gbnf_reader *reader, const char *word)
{
    return str_starts(str_slice(reader->text, reader->at, reader->text.size), str_from(word));
}

/* Blanks and comments; ends of lines too if they do not count here, or if the rule goes on behind
 * them with a bar. */
static void skip_blanks(struct gbnf_reader *reader, bool skips_lines)
{
    size_t line_end = SIZE_MAX; // the first end of line that would count
    for (;;) {
        const char c = peek(reader);
        if (c == '#') {
            while (reader->at < reader->text.size && peek(reader) != '\n' && peek(reader) != '\r')
                reader->at++;
        } else if (c == ' ' || c == '\t') {
            reader->at++;
        } else if (c == '\n' || c == '\r') {
            if (!skips_lines && line_end == SIZE_MAX)
                line_end = reader->at;
            reader->at++;
        } else {
            break;
        }
    }
    if (line_end != SIZE_MAX && peek(reader) != '|')
        reader->at = line_end;
}

/* ---- characters ---- */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool read_hex(struct gbnf_reader *reader, int n_digits, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < n_digits; i++, reader->at++) {
        const int digit = hex_value(peek(reader));
        if (digit < 0)
            return fail(reader, "a hexadecimal digit is missing");
        value = value << 4 | (uint32_t)digit;
    }
    if (value > GRAMMAR_CODE_POINT_CAP || (value >= 0xd800 && value < 0xe000))
        return fail(reader, "this is no character");
    *out = value;
    return true;
}

static bool read_escape(struct gbnf_reader *reader, uint32_t *out)
{
    static const char names[] = "nrtxuU\\\"[]-^/'";
    static const char values[] = "\n\r\t\0\0\0\\\"[]-^/'";
    const char name = peek(reader);
    const size_t index = name ? str_find_char(STR(names), name) : SIZE_MAX;
    if (index == SIZE_MAX)
        return fail(reader, "this escape is not known");
    reader->at++;
    if (name == 'x' || name == 'u' || name == 'U')
        return read_hex(reader, name == 'x' ? 2 : name == 'u' ? 4 : 8, out);
    *out = (uint8_t)values[index];
    return true;
}

/* One character, written as it is or escaped. */
static bool read_character(struct gbnf_reader *reader, uint32_t *out)
{
    if (peek(reader) == '\\') {
        reader->at++;
        return read_escape(reader, out);
    }
    const size_t used = utf8_decode(str_slice(reader->text, reader->at, reader->text.size), out);
    if (used == 0)
        return fail(reader, reader->at < reader->text.size ? "this is not valid UTF-8"
                                                           : "the grammar ends here");
    reader->at += used;
    return true;
}

/* ---- expressions ---- */

static bool read_literal(struct gbnf_reader *reader, uint32_t *out)
{
    struct buf text;
    bool good = true;
    buf_init(&text, reader->text.size + 8);
    reader->at++;
    while (good && peek(reader) != '"') {
        uint32_t point;
        char bytes[4];
        good = read_character(reader, &point);
        if (good)
            buf_add(&text, bytes, utf8_write(point, bytes));
    }
    reader->at++;
    if (good)
        *out = rules_text(reader->rules, buf_view(&text));
    buf_release(&text);
    return good;
}

static bool read_range(struct gbnf_reader *reader, struct code_range *out)
{
    if (!read_character(reader, &out->first))
        return false;
    out->last = out->first;
    const bool is_range = peek(reader) == '-' && reader->at + 1 < reader->text.size &&
                          reader->text.data[reader->at + 1] != ']';
    if (!is_range)
        return true;
    reader->at++;
    if (!read_character(reader, &out->last))
        return false;
    return out->first <= out->last || fail(reader, "this range ends before it begins");
}

static bool read_class(struct gbnf_reader *reader, uint32_t *out)
{
    struct code_range *ranges = xcalloc(2 * GBNF_CLASS_RANGES_CAP + 2, sizeof *ranges);
    size_t n = 0;
    bool good = true;
    reader->at++;
    const bool inverts = peek(reader) == '^';
    reader->at += inverts;
    while (good && peek(reader) != ']') {
        if (n == GBNF_CLASS_RANGES_CAP)
            good = fail(reader, "this class has too many parts");
        else
            good = read_range(reader, &ranges[n++]);
    }
    reader->at++;
    if (good) {
        n = code_ranges_normalise(ranges, n);
        struct code_range *inverse = ranges + GBNF_CLASS_RANGES_CAP;
        *out = inverts ? rules_class(reader->rules, inverse, code_ranges_invert(ranges, n, inverse))
                       : rules_class(reader->rules, ranges, n);
    }
    free(ranges);
    return good;
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* The rule of that name, declared if it is new. */
static bool find_rule(struct gbnf_reader *reader, struct str name, uint32_t *out)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < name.size; i++)
        hash = (hash ^ (uint8_t)name.data[i]) * 16777619u;
    uint32_t slot = hash & reader->slot_mask;
    for (; reader->slots[slot] != 0; slot = (slot + 1) & reader->slot_mask) {
        if (str_equal(reader->rules->rules[reader->slots[slot] - 1].name, name)) {
            *out = reader->slots[slot] - 1;
            return true;
        }
    }
    *out = rules_declare(reader->rules, name);
    if (*out == GRAMMAR_NO_RULE)
        return fail(reader, "there are too many rules");
    reader->slots[slot] = *out + 1;
    return true;
}

static bool read_name(struct gbnf_reader *reader, uint32_t *out)
{
    const size_t first = reader->at;
    while (is_name_char(peek(reader)))
        reader->at++;
    if (reader->at == first || reader->at - first > GBNF_NAME_BYTES_CAP)
        return fail(reader, reader->at == first ? "a name, a literal, a class or a group is missing"
                                                : "this name is too long");
    return find_rule(reader, str_slice(reader->text, first, reader->at), out);
}

static bool read_choice(struct gbnf_reader *reader, bool is_nested, uint32_t *out);

static bool read_group(struct gbnf_reader *reader, uint32_t *out)
{
    if (reader->depth == GBNF_NESTING_CAP)
        return fail(reader, "groups are nested too deep");
    reader->at++;
    reader->depth++;
    if (!read_choice(reader, true, out))
        return false;
    reader->depth--;
    if (peek(reader) != ')')
        return fail(reader, "a ) is missing");
    reader->at++;
    return true;
}

static bool read_primary(struct gbnf_reader *reader, uint32_t *out)
{
    static const struct code_range any = { 0, GRAMMAR_CODE_POINT_CAP };
    uint32_t rule;
    switch (peek(reader)) {
    case '"':
        return read_literal(reader, out);
    case '[':
        return read_class(reader, out);
    case '(':
        return read_group(reader, out);
    case '.':
        reader->at++;
        *out = rules_class(reader->rules, &any, 1);
        return true;
    default:
        if (!read_name(reader, &rule))
            return false;
        *out = rules_call(reader->rules, rule);
        return true;
    }
}

static bool read_count(struct gbnf_reader *reader, uint32_t *out)
{
    uint32_t value = 0;
    const size_t first = reader->at;
    for (; peek(reader) >= '0' && peek(reader) <= '9'; reader->at++) {
        value = value * 10 + (uint32_t)(peek(reader) - '0');
        if (value > GBNF_REPEAT_CAP)
            return fail(reader, "this repetition is too long");
    }
    if (reader->at == first)
        return fail(reader, "a number is missing");
    *out = value;
    return true;
}

/* {m} {m,} {m,n} {,n} */
static bool read_braces(struct gbnf_reader *reader, uint32_t *min, uint32_t *max)
{
    reader->at++;
    skip_blanks(reader, true);
    *min = 0;
    if (peek(reader) != ',' && !read_count(reader, min))
        return false;
    *max = *min;
    skip_blanks(reader, true);
    if (peek(reader) == ',') {
        reader->at++;
        skip_blanks(reader, true);
        *max = GRAMMAR_NO_MAX;
        if (peek(reader) != '}' && !read_count(reader, max))
            return false;
        skip_blanks(reader, true);
    }
    if (peek(reader) != '}')
        return fail(reader, "a } is missing");
    reader->at++;
    return *min <= *max || fail(reader, "this repetition ends before it begins");
}

static bool read_repeats(struct gbnf_reader *reader, uint32_t *node, bool is_nested)
{
    for (;;) {
        uint32_t min = 0, max = GRAMMAR_NO_MAX;
        skip_blanks(reader, is_nested);
        switch (peek(reader)) {
        case '*':
            reader->at++;
            break;
        case '+':
            reader->at++;
            min = 1;
            break;
        case '?':
            reader->at++;
            max = 1;
            break;
        case '{':
            if (!read_braces(reader, &min, &max))
                return false;
            break;
        default:
            return true;
        }
        *node = rules_repeat(reader->rules, *node, min, max);
    }
}

static bool read_sequence(struct gbnf_reader *reader, bool is_nested, uint32_t *out)
{
    struct rules_list parts = { 0 };
    bool good = true;
    for (;;) {
        const char c = peek(reader);
        uint32_t part;
        if (!(c == '"' || c == '[' || c == '(' || c == '.' || is_name_char(c)))
            break;
        good = read_primary(reader, &part) && read_repeats(reader, &part, is_nested);
        if (!good)
            break;
        rules_list_add(&parts, part);
    }
    if (good)
        *out = rules_sequence(reader->rules, parts.parts, parts.n_parts);
    rules_list_release(&parts);
    return good;
}

static bool read_choice(struct gbnf_reader *reader, bool is_nested, uint32_t *out)
{
    struct rules_list parts = { 0 };
    bool good;
    for (;;) {
        uint32_t part;
        skip_blanks(reader, true);
        good = read_sequence(reader, is_nested, &part);
        if (!good)
            break;
        rules_list_add(&parts, part);
        if (peek(reader) != '|')
            break;
        reader->at++;
    }
    if (good)
        *out = rules_choice(reader->rules, parts.parts, parts.n_parts);
    rules_list_release(&parts);
    return good;
}

static bool read_rule(struct gbnf_reader *reader)
{
    uint32_t rule, body;
    if (!read_name(reader, &rule))
        return false;
    skip_blanks(reader, false);
    if (!starts(reader, "::="))
        return fail(reader, "::= is missing");
    if (reader->rules->rules[rule].is_defined)
        return fail(reader, "this rule has been defined before");
    reader->at += 3;
    if (!read_choice(reader, false, &body))
        return false;
    rules_define(reader->rules, rule, body);
    if (reader->at < reader->text.size && peek(reader) != '\n' && peek(reader) != '\r')
        return fail(reader, "this does not belong to a rule");
    return true;
}

bool gbnf_read(struct str text, struct grammar_rules *rules, struct err *err)
{
    struct gbnf_reader reader = { .text = text, .rules = rules, .err = err };
    reader.slot_mask = 4 * GRAMMAR_RULES_CAP - 1;
    reader.slots = xcalloc(reader.slot_mask + 1u, sizeof *reader.slots);
    bool good = find_rule(&reader, STR("root"), &rules->root);
    skip_blanks(&reader, true);
    while (good && reader.at < text.size) {
        good = read_rule(&reader);
        skip_blanks(&reader, true);
    }
    if (good && !rules->rules[rules->root].is_defined)
        good = err_set(err, ERR_ARGUMENT, "there is no rule \"root\"");
    free(reader.slots);
    return good;
}
