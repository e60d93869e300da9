/* Strings, objects, arrays and values are rules and not expressions, since they are used all over a
 * schema: called, they share one set of states and the masks computed for them. */
#include "sample/json_language.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/memory.h"

#define LITERAL_BYTES_CAP ((size_t)1 << 20)

void json_language_init(struct json_language *language, struct grammar_rules *rules)
{
    *language = (struct json_language){ .rules = rules };
}

static uint32_t sequence(struct json_language *language, const uint32_t *parts, size_t n_parts)
{
    return rules_sequence(language->rules, parts, n_parts);
}

static uint32_t text(struct json_language *language, const char *bytes)
{
    return rules_text(language->rules, str_from(bytes));
}

/* A rule of that body, as an expression. */
static uint32_t as_rule(struct json_language *language, const char *name, uint32_t body)
{
    const uint32_t rule = rules_declare(language->rules, str_from(name));
    rules_define(language->rules, rule, body);
    return rules_call(language->rules, rule);
}

uint32_t json_blank(struct json_language *language)
{
    static const struct code_range blanks[] = { { '\t', '\t' }, { ' ', ' ' } };
    if (language->blank == RULES_NOTHING) {
        struct grammar_rules *rules = language->rules;
        const uint32_t blank = rules_class(rules, blanks, 2);
        const uint32_t line[] = { text(language, "\n"),
                                  rules_repeat(rules, blank, 0, JSON_INDENT_CAP) };
        const uint32_t kinds[] = { RULES_EMPTY, text(language, " "), sequence(language, line, 2) };
        language->blank = as_rule(language, "blank", rules_choice(rules, kinds, 3));
    }
    return language->blank;
}

/* ---- strings ---- */

static const struct code_range plain[] = { { ' ', '!' },
                                           { '#', '[' },
                                           { ']', GRAMMAR_CODE_POINT_CAP } };
#define N_PLAIN (sizeof plain / sizeof plain[0])

static uint32_t plain_character(struct json_language *language)
{
    if (language->plain_character == RULES_NOTHING)
        language->plain_character = rules_class(language->rules, plain, N_PLAIN);
    return language->plain_character;
}

/* \u with four digits that are not half of a surrogate pair. */
static uint32_t unicode_escape(struct json_language *language)
{
    static const struct code_range hex[] = { { '0', '9' }, { 'A', 'F' }, { 'a', 'f' } };
    static const struct code_range not_d[] = {
        { '0', '9' }, { 'A', 'C' }, { 'E', 'F' }, { 'a', 'c' }, { 'e', 'f' }
    };
    static const struct code_range d[] = { { 'D', 'D' }, { 'd', 'd' } };
    static const struct code_range low[] = { { '0', '7' } };
    struct grammar_rules *rules = language->rules;
    const uint32_t digit = rules_class(rules, hex, 3);
    const uint32_t others[] = { rules_class(rules, not_d, 5), rules_repeat(rules, digit, 3, 3) };
    const uint32_t with_d[] = { rules_class(rules, d, 2), rules_class(rules, low, 1),
                                rules_repeat(rules, digit, 2, 2) };
    const uint32_t kinds[] = { sequence(language, others, 2), sequence(language, with_d, 3) };
    const uint32_t whole[] = { text(language, "\\u"), rules_choice(rules, kinds, 2) };
    return sequence(language, whole, 2);
}

static uint32_t character(struct json_language *language)
{
    static const struct code_range names[] = { { '"', '"' }, { '/', '/' }, { '\\', '\\' },
                                               { 'b', 'b' }, { 'f', 'f' }, { 'n', 'n' },
                                               { 'r', 'r' }, { 't', 't' } };
    if (language->character == RULES_NOTHING) {
        struct grammar_rules *rules = language->rules;
        const uint32_t escape[] = { text(language, "\\"), rules_class(rules, names, 8) };
        const uint32_t kinds[] = { plain_character(language), sequence(language, escape, 2),
                                   unicode_escape(language) };
        language->character = rules_choice(rules, kinds, 3);
    }
    return language->character;
}

static uint32_t quoted(struct json_language *language, uint32_t content)
{
    const uint32_t parts[] = { text(language, "\""), content, text(language, "\"") };
    return sequence(language, parts, 3);
}

uint32_t json_string_any(struct json_language *language)
{
    if (language->string == RULES_NOTHING)
        language->string = json_string_sized(language, 0, GRAMMAR_NO_MAX);
    return language->string;
}

uint32_t json_string_sized(struct json_language *language, uint32_t min, uint32_t max)
{
    const uint32_t content = rules_repeat(language->rules, character(language), min, max);
    if (content == RULES_NOTHING)
        return RULES_NOTHING;
    return as_rule(language, "string", quoted(language, content));
}

/* Strings from where those names stand that begin with the `depth` characters read so far; names
 * are sorted, [first, last) of them begin so. */
static uint32_t except_from(struct json_language *language, const struct str *names, size_t first,
                            size_t last, size_t depth)
{
    struct grammar_rules *rules = language->rules;
    struct rules_list kinds = { 0 };
    struct code_range *taken = xcalloc(last - first + 1, sizeof *taken);
    size_t n_taken = 0;
    const uint32_t quote = text(language, "\"");
    if (names[first].size > depth)
        rules_list_add(&kinds, quote); // what was read is none of the names
    for (size_t i = first; i < last;) {
        uint32_t point;
        const size_t used = utf8_decode(
            str_slice(names[i].data ? names[i] : STR(""), depth, names[i].size), &point);
        size_t end = i + 1;
        if (used == 0) { // the name that ends here
            i++;
            continue;
        }
        while (end < last && names[end].size >= depth + used &&
               memcmp(names[end].data + depth, names[i].data + depth, used) == 0)
            end++;
        taken[n_taken++] = (struct code_range){ point, point };
        const uint32_t parts[] = { rules_class(rules, &taken[n_taken - 1], 1),
                                   except_from(language, names, i, end, depth + used) };
        rules_list_add(&kinds, sequence(language, parts, 2));
        i = end;
    }
    struct code_range *free_ones = xcalloc(2 * n_taken + N_PLAIN + 2, sizeof *free_ones);
    n_taken = code_ranges_normalise(taken, n_taken);
    struct code_range *inverse = free_ones + n_taken + N_PLAIN;
    const size_t n_inverse = code_ranges_invert(taken, n_taken, inverse);
    const size_t n_free = code_ranges_intersect(plain, N_PLAIN, inverse, n_inverse, free_ones);
    const uint32_t others[] = { rules_class(rules, free_ones, n_free),
                                rules_repeat(rules, plain_character(language), 0, GRAMMAR_NO_MAX),
                                quote };
    rules_list_add(&kinds, sequence(language, others, 3));
    const uint32_t node = rules_choice(rules, kinds.parts, kinds.n_parts);
    rules_list_release(&kinds);
    free(taken);
    free(free_ones);
    return node;
}

static int compare_names(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

static bool is_plain(struct str name)
{
    for (size_t i = 0; i < name.size; i++) {
        const unsigned char c = (unsigned char)name.data[i];
        if (c < ' ' || c == '"' || c == '\\')
            return false;
    }
    return true;
}

uint32_t json_string_except(struct json_language *language, const struct str *names, size_t n_names)
{
    struct str *sorted = xcalloc(n_names + 1, sizeof *sorted);
    size_t n = 0;
    for (size_t i = 0; i < n_names; i++) {
        if (is_plain(names[i])) // the others need escapes, which are not generated here
            sorted[n++] = names[i];
    }
    qsort(sorted, n, sizeof *sorted, compare_names);
    uint32_t node = json_string_any(language);
    if (n > 0) {
        const uint32_t parts[] = { text(language, "\""), except_from(language, sorted, 0, n, 0) };
        node = as_rule(language, "other key", sequence(language, parts, 2));
    }
    free(sorted);
    return node;
}

uint32_t json_write_class(struct grammar_rules *rules, const struct code_range *ranges,
                          size_t n_ranges)
{
    struct rules_list kinds = { 0 };
    struct code_range *as_they_are = xcalloc(n_ranges + N_PLAIN + 1, sizeof *as_they_are);
    const size_t n = code_ranges_intersect(ranges, n_ranges, plain, N_PLAIN, as_they_are);
    rules_list_add(&kinds, rules_class(rules, as_they_are, n));
    for (size_t i = 0; i < n_ranges; i++) {
        for (uint32_t point = ranges[i].first; point <= ranges[i].last && point <= '\\'; point++) {
            struct buf written;
            const char byte = (char)point;
            if (point >= ' ' && point != '"' && point != '\\')
                continue;
            buf_init(&written, 32);
            json_write_string(&written, (struct str){ &byte, 1 });
            const struct str quoted_text = buf_view(&written);
            rules_list_add(&kinds,
                           rules_text(rules, str_slice(quoted_text, 1, quoted_text.size - 1)));
            buf_release(&written);
        }
    }
    const uint32_t node = rules_choice(rules, kinds.parts, kinds.n_parts);
    rules_list_release(&kinds);
    free(as_they_are);
    return node;
}

uint32_t json_literal(struct json_language *language, const struct json *value)
{
    struct buf written;
    buf_init(&written, LITERAL_BYTES_CAP);
    json_write_value(&written, value);
    if (!buf_ok(&written))
        language->rules->overflowed = true;
    const uint32_t node = rules_text(language->rules, buf_view(&written));
    buf_release(&written);
    return node;
}

uint32_t json_key(struct json_language *language, struct str name)
{
    struct buf written;
    buf_init(&written, LITERAL_BYTES_CAP);
    json_write_string(&written, name);
    buf_add_char(&written, ':');
    if (!buf_ok(&written))
        language->rules->overflowed = true;
    const uint32_t node = rules_text(language->rules, buf_view(&written));
    buf_release(&written);
    return node;
}

/* ---- numbers and values ---- */

uint32_t json_number_any(struct json_language *language)
{
    static const struct code_range digits[] = { { '0', '9' } }, from_one[] = { { '1', '9' } },
                                   e[] = { { 'E', 'E' }, { 'e', 'e' } },
                                   sign[] = { { '+', '+' }, { '-', '-' } };
    if (language->number != RULES_NOTHING)
        return language->number;
    struct grammar_rules *rules = language->rules;
    const uint32_t digit = rules_class(rules, digits, 1);
    const uint32_t large[] = { rules_class(rules, from_one, 1),
                               rules_repeat(rules, digit, 0, JSON_DIGITS_CAP - 1) };
    const uint32_t whole[] = { text(language, "0"), sequence(language, large, 2) };
    const uint32_t fraction[] = { text(language, "."),
                                  rules_repeat(rules, digit, 1, JSON_DIGITS_CAP) };
    const uint32_t exponent[] = { rules_class(rules, e, 2),
                                  rules_repeat(rules, rules_class(rules, sign, 2), 0, 1),
                                  rules_repeat(rules, digit, 1, JSON_EXPONENT_DIGITS_CAP) };
    const uint32_t parts[] = { rules_repeat(rules, text(language, "-"), 0, 1),
                               rules_choice(rules, whole, 2),
                               rules_repeat(rules, sequence(language, fraction, 2), 0, 1),
                               rules_repeat(rules, sequence(language, exponent, 3), 0, 1) };
    language->number = as_rule(language, "number", sequence(language, parts, 4));
    return language->number;
}

uint32_t json_enclose(struct json_language *language, const char *open, uint32_t items,
                      const char *close)
{
    if (items == RULES_NOTHING)
        return RULES_NOTHING;
    const uint32_t blank = json_blank(language);
    const uint32_t parts[] = { text(language, open), blank, items,
                               items == RULES_EMPTY ? RULES_EMPTY : blank, text(language, close) };
    return sequence(language, parts, 5);
}

/* item, item, ... or nothing, enclosed. */
static uint32_t list_of(struct json_language *language, const char *open, uint32_t item,
                        const char *close)
{
    struct grammar_rules *rules = language->rules;
    const uint32_t blank = json_blank(language);
    const uint32_t more[] = { text(language, ","), blank, item };
    const uint32_t items[] = { item, rules_repeat(rules, sequence(language, more, 3), 0,
                                                  GRAMMAR_NO_MAX) };
    const uint32_t kinds[] = { json_enclose(language, open, RULES_EMPTY, close),
                               json_enclose(language, open, sequence(language, items, 2), close) };
    return rules_choice(rules, kinds, 2);
}

uint32_t json_value_any(struct json_language *language)
{
    struct grammar_rules *rules = language->rules;
    if (language->value == RULES_NOTHING) {
        const uint32_t rule = rules_declare(rules, STR("value"));
        language->value = rules_call(rules, rule); // before its parts, which refer to it
        const uint32_t kinds[] = { json_object_any(language), json_array_any(language),
                                   json_string_any(language), json_number_any(language),
                                   text(language, "true"),    text(language, "false"),
                                   text(language, "null") };
        rules_define(rules, rule, rules_choice(rules, kinds, 7));
    }
    return language->value;
}

uint32_t json_object_any(struct json_language *language)
{
    struct grammar_rules *rules = language->rules;
    if (language->object == RULES_NOTHING) {
        const uint32_t rule = rules_declare(rules, STR("object"));
        language->object = rules_call(rules, rule);
        const uint32_t member[] = { json_string_any(language), text(language, ":"),
                                    json_blank(language), json_value_any(language) };
        rules_define(rules, rule, list_of(language, "{", sequence(language, member, 4), "}"));
    }
    return language->object;
}

uint32_t json_array_any(struct json_language *language)
{
    struct grammar_rules *rules = language->rules;
    if (language->array == RULES_NOTHING) {
        const uint32_t rule = rules_declare(rules, STR("array"));
        language->array = rules_call(rules, rule);
        rules_define(rules, rule, list_of(language, "[", json_value_any(language), "]"));
    }
    return language->array;
}
