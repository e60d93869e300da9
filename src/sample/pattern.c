/* Recursive descent. Every character goes through one function that turns a set into an expression,
 * so the same reader serves plain text and the inside of JSON strings.
 *
 * A class has two sets: what it contains in every dialect, and what it contains in some. The
 * opposite of a class is the opposite of the second. */
#include "sample/pattern.h"

#include <stdlib.h>

#include "base/memory.h"
#include "text/unicode_table.h"

struct pattern_reader {
    struct str text;
    size_t at;
    const struct pattern_options *options;
    struct grammar_rules *rules;
    uint32_t depth;
    struct err *err;
};

/* Sets of characters: surely in, perhaps in. Normalised when finished. */
struct char_set {
    struct code_range *sure, *wide; // [PATTERN_CLASS_RANGES_CAP] each
    size_t n_sure, n_wide;
    bool wants_wide; // it will be inverted; else only the sure set is kept in full
    bool overflowed;
};

static bool fail(const struct pattern_reader *reader, enum err_code code, const char *what)
{
    return err_set(reader->err, code, "at %zu of the pattern: %s", reader->at, what);
}

static char peek_at(const struct pattern_reader *reader, size_t ahead)
{
    return reader->at + ahead < reader->text.size ? reader->text.data[reader->at + ahead] : '\0';
}

static char peek(const struct pattern_reader *reader)
{
    return peek_at(reader, 0);
}

static bool is_done(const struct pattern_reader *reader)
{
    return reader->at >= reader->text.size;
}

static uint32_t write_class(const struct pattern_reader *reader, const struct code_range *ranges,
                            size_t n_ranges)
{
    return reader->options->write_class != NULL
               ? reader->options->write_class(reader->rules, ranges, n_ranges)
               : rules_class(reader->rules, ranges, n_ranges);
}

/* ---- sets ---- */

static void set_init(struct char_set *set, bool wants_wide)
{
    *set = (struct char_set){ .wants_wide = wants_wide };
    set->sure = xcalloc(2 * PATTERN_CLASS_RANGES_CAP, sizeof *set->sure);
    set->wide = set->sure + PATTERN_CLASS_RANGES_CAP;
}

static void set_release(struct char_set *set)
{
    free(set->sure);
}

static void add_range(struct code_range *ranges, size_t *n, uint32_t first, uint32_t last,
                      bool *overflowed)
{
    if (*n == PATTERN_CLASS_RANGES_CAP) {
        *n = code_ranges_normalise(ranges, *n);
        if (*n == PATTERN_CLASS_RANGES_CAP) {
            *overflowed = true;
            return;
        }
    }
    ranges[(*n)++] = (struct code_range){ first, last };
}

static void set_add(struct char_set *set, uint32_t first, uint32_t last)
{
    add_range(set->sure, &set->n_sure, first, last, &set->overflowed);
    add_range(set->wide, &set->n_wide, first, last, &set->overflowed);
}

/* Characters with one of the properties, to both or to the wide set alone. */
static void set_add_property(struct char_set *set, unsigned properties, bool is_sure)
{
    if (!is_sure && !set->wants_wide)
        return; // a look at a million characters
    for (uint32_t point = 0; point <= GRAMMAR_CODE_POINT_CAP;) {
        const uint32_t first = point;
        while (point <= GRAMMAR_CODE_POINT_CAP && (unicode_properties(point) & properties) != 0)
            point++;
        if (point > first) {
            add_range(set->wide, &set->n_wide, first, point - 1, &set->overflowed);
            if (is_sure)
                add_range(set->sure, &set->n_sure, first, point - 1, &set->overflowed);
        }
        point++;
    }
}

/* What surely is not in the set, and what perhaps is not. */
static void set_invert(struct char_set *set)
{
    struct char_set inverse;
    set->n_sure = code_ranges_normalise(set->sure, set->n_sure);
    set->n_wide = code_ranges_normalise(set->wide, set->n_wide);
    if (set->n_sure == PATTERN_CLASS_RANGES_CAP || set->n_wide == PATTERN_CLASS_RANGES_CAP) {
        set->overflowed = true;
        return;
    }
    set_init(&inverse, set->wants_wide);
    inverse.n_sure = code_ranges_invert(set->wide, set->n_wide, inverse.sure);
    inverse.n_wide = code_ranges_invert(set->sure, set->n_sure, inverse.wide);
    inverse.overflowed = set->overflowed;
    set_release(set);
    *set = inverse;
}

static void set_join(struct char_set *set, const struct char_set *more)
{
    for (size_t i = 0; i < more->n_sure; i++)
        add_range(set->sure, &set->n_sure, more->sure[i].first, more->sure[i].last,
                  &set->overflowed);
    for (size_t i = 0; i < more->n_wide; i++)
        add_range(set->wide, &set->n_wide, more->wide[i].first, more->wide[i].last,
                  &set->overflowed);
    set->overflowed |= more->overflowed;
}

/* \d \w \s, lower or upper case. */
static void set_add_shorthand(struct char_set *set, char name)
{
    struct char_set shorthand;
    set_init(&shorthand, set->wants_wide || name < 'a');
    switch (name | 0x20) {
    case 'd':
        set_add(&shorthand, '0', '9');
        set_add_property(&shorthand, UNICODE_NUMBER, false);
        break;
    case 'w':
        set_add(&shorthand, '0', '9');
        set_add(&shorthand, 'A', 'Z');
        set_add(&shorthand, '_', '_');
        set_add(&shorthand, 'a', 'z');
        set_add_property(&shorthand, UNICODE_WORD | UNICODE_NUMBER, false);
        break;
    default:
        set_add(&shorthand, '\t', '\r');
        set_add(&shorthand, ' ', ' ');
        set_add_property(&shorthand, UNICODE_SPACE, false);
        add_range(shorthand.wide, &shorthand.n_wide, 0x1c, 0x1f, &shorthand.overflowed); // Python
        add_range(shorthand.wide, &shorthand.n_wide, 0xfeff, 0xfeff,
                  &shorthand.overflowed); // JavaScript
        break;
    }
    if (name < 'a')
        set_invert(&shorthand);
    set_join(set, &shorthand);
    set_release(&shorthand);
}

/* \p{X} and \P{X}; `at` is behind the p. */
static bool read_property(struct pattern_reader *reader, bool inverts, struct char_set *set)
{
    static const struct {
        char name;
        unsigned properties;
    } categories[] = { { 'L', UNICODE_LETTER },
                       { 'M', UNICODE_MARK },
                       { 'N', UNICODE_NUMBER },
                       { 'P', UNICODE_PUNCTUATION },
                       { 'S', UNICODE_SYMBOL } };
    for (size_t i = 0; i < sizeof categories / sizeof categories[0]; i++) {
        struct char_set property;
        if (peek(reader) != '{' || peek_at(reader, 1) != categories[i].name ||
            peek_at(reader, 2) != '}')
            continue;
        reader->at += 3;
        set_init(&property, true);
        set_add_property(&property, categories[i].properties, true);
        if (inverts)
            set_invert(&property);
        set_join(set, &property);
        set_release(&property);
        return true;
    }
    return fail(reader, ERR_UNSUPPORTED,
                "of Unicode's properties only \\p{L}, M, N, P and S are known");
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

static bool read_hex(struct pattern_reader *reader, size_t digits_min, size_t digits_max,
                     uint32_t *out)
{
    uint32_t value = 0;
    size_t n = 0;
    for (; n < digits_max && hex_value(peek(reader)) >= 0; n++, reader->at++)
        value = value << 4 | (uint32_t)hex_value(peek(reader));
    if (n < digits_min)
        return fail(reader, ERR_ARGUMENT, "a hexadecimal digit is missing");
    *out = value;
    return true;
}

/* \u, which may be half of a surrogate pair, or \u{...}. */
static bool read_unicode(struct pattern_reader *reader, uint32_t *out)
{
    uint32_t low;
    if (peek(reader) == '{') {
        reader->at++;
        if (!read_hex(reader, 1, 6, out))
            return false;
        if (peek(reader) != '}')
            return fail(reader, ERR_ARGUMENT, "a } is missing");
        reader->at++;
    } else if (!read_hex(reader, 4, 4, out)) {
        return false;
    }
    if (*out >= 0xd800 && *out < 0xdc00 && peek(reader) == '\\' && peek_at(reader, 1) == 'u') {
        reader->at += 2;
        if (!read_hex(reader, 4, 4, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(reader, ERR_ARGUMENT, "half a surrogate pair");
        *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    }
    if (*out > GRAMMAR_CODE_POINT_CAP)
        return fail(reader, ERR_ARGUMENT, "this is no character");
    return true;
}

/* Behind a backslash: one character. */
static bool read_escaped_character(struct pattern_reader *reader, bool in_class, uint32_t *out)
{
    static const char names[] = "nrtfv", values[] = "\n\r\t\f\v";
    const char c = peek(reader);
    const size_t index = c ? str_find_char(STR(names), c) : SIZE_MAX;
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_done(reader))
        return fail(reader, ERR_ARGUMENT, "a character is missing behind \\");
    reader->at++;
    if (index != SIZE_MAX) {
        *out = (uint8_t)values[index];
    } else if (c == 'x') {
        return read_hex(reader, 2, 2, out);
    } else if (c == 'u') {
        return read_unicode(reader, out);
    } else if (c == '0' && !(peek(reader) >= '0' && peek(reader) <= '9')) {
        *out = 0;
    } else if (c == 'b' && in_class) {
        *out = '\b';
    } else if (c == 'c' && ((peek(reader) | 0x20) >= 'a' && (peek(reader) | 0x20) <= 'z')) {
        *out = (uint32_t)(peek(reader) & 0x1f);
        reader->at++;
    } else if (c >= '1' && c <= '9') {
        return fail(reader, ERR_UNSUPPORTED, "back references are not supported");
    } else if (c == 'b' || c == 'B') {
        return fail(reader, ERR_UNSUPPORTED, "\\b and \\B are not supported");
    } else if (is_word) {
        return fail(reader, ERR_UNSUPPORTED, "this escape is not supported");
    } else {
        reader->at--; // punctuation, or a character of several bytes
        const size_t used =
            utf8_decode(str_slice(reader->text, reader->at, reader->text.size), out);
        reader->at += used;
        return used > 0 || fail(reader, ERR_ARGUMENT, "this is not valid UTF-8");
    }
    return true;
}

static bool is_shorthand(char c)
{
    return c != '\0' && strchr("dDwWsS", c) != NULL;
}

static bool read_plain(struct pattern_reader *reader, uint32_t *out)
{
    const size_t used = utf8_decode(str_slice(reader->text, reader->at, reader->text.size), out);
    reader->at += used;
    return used > 0 || fail(reader, ERR_ARGUMENT, "this is not valid UTF-8");
}

/* One part of a class: a shorthand, a character or a range. */
static bool read_class_part(struct pattern_reader *reader, struct char_set *set)
{
    uint32_t first, last;
    const char next = peek_at(reader, 1);
    if (peek(reader) == '\\' && is_shorthand(next)) {
        reader->at += 2;
        set_add_shorthand(set, next);
        return true;
    }
    if (peek(reader) == '\\' && (next | 0x20) == 'p') {
        reader->at += 2;
        return read_property(reader, next == 'P', set);
    }
    if (peek(reader) == '[' && (next == ':' || next == '.' || next == '='))
        return fail(reader, ERR_UNSUPPORTED, "POSIX classes are not supported");
    const bool escaped = peek(reader) == '\\';
    reader->at += escaped;
    if (!(escaped ? read_escaped_character(reader, true, &first) : read_plain(reader, &first)))
        return false;
    last = first;
    if (peek(reader) == '-' && peek_at(reader, 1) != ']' && reader->at + 1 < reader->text.size) {
        reader->at++;
        const bool is_escaped = peek(reader) == '\\';
        reader->at += is_escaped;
        if (is_escaped && is_shorthand(peek(reader)))
            return fail(reader, ERR_ARGUMENT, "a class is no end of a range");
        if (!(is_escaped ? read_escaped_character(reader, true, &last) : read_plain(reader, &last)))
            return false;
    }
    if (first > last)
        return fail(reader, ERR_ARGUMENT, "this range ends before it begins");
    set_add(set, first, last);
    return true;
}

static bool read_class(struct pattern_reader *reader, struct char_set *set)
{
    bool good = true;
    reader->at++;
    const bool inverts = peek(reader) == '^';
    reader->at += inverts;
    set->wants_wide = inverts;
    while (good && peek(reader) != ']') {
        if (is_done(reader))
            return fail(reader, ERR_ARGUMENT, "a ] is missing");
        good = read_class_part(reader, set);
    }
    reader->at++;
    if (good && inverts)
        set_invert(set);
    return good;
}

/* ---- expressions ---- */

static struct pattern_piece piece_of_set(struct pattern_reader *reader, struct char_set *set)
{
    set->n_sure = code_ranges_normalise(set->sure, set->n_sure);
    return (struct pattern_piece){ .node = write_class(reader, set->sure, set->n_sure),
                                   .min_chars = 1,
                                   .max_chars = 1 };
}

static struct pattern_piece piece_of_character(struct pattern_reader *reader, uint32_t point)
{
    const struct code_range range = { point, point };
    return (struct pattern_piece){ .node = write_class(reader, &range, 1),
                                   .min_chars = 1,
                                   .max_chars = 1 };
}

/* A set of characters: a class, a dot, or a shorthand. */
static bool read_set(struct pattern_reader *reader, struct pattern_piece *out)
{
    struct char_set set;
    bool good = true;
    const char c = peek(reader), next = peek_at(reader, 1);
    set_init(&set, false);
    if (c == '[') {
        good = read_class(reader, &set);
    } else if (c == '.') {
        reader->at++;
        set_add(&set, '\n', '\n');
        set_add(&set, '\r', '\r');
        set_add(&set, 0x2028, 0x2029);
        set_invert(&set);
    } else if ((next | 0x20) == 'p') {
        reader->at += 2;
        good = read_property(reader, next == 'P', &set);
    } else {
        reader->at += 2;
        set_add_shorthand(&set, next);
    }
    if (good && set.overflowed)
        good = fail(reader, ERR_UNSUPPORTED, "this class has too many parts");
    if (good)
        *out = piece_of_set(reader, &set);
    set_release(&set);
    return good;
}

static bool read_choice(struct pattern_reader *reader, struct pattern_piece *out);

/* Behind an opening parenthesis: what kind of group it is. */
static bool read_group_kind(struct pattern_reader *reader)
{
    if (peek(reader) != '?')
        return true;
    reader->at++;
    if (peek(reader) == ':') {
        reader->at++;
        return true;
    }
    if (peek(reader) == 'P' && peek_at(reader, 1) == '<')
        reader->at++;
    if (peek(reader) != '<' || peek_at(reader, 1) == '=' || peek_at(reader, 1) == '!')
        return fail(reader, ERR_UNSUPPORTED, "look-around and flags are not supported");
    while (!is_done(reader) && peek(reader) != '>')
        reader->at++;
    reader->at++;
    return !is_done(reader) || fail(reader, ERR_ARGUMENT, "a ) is missing");
}

static bool read_group(struct pattern_reader *reader, struct pattern_piece *out)
{
    if (reader->depth == PATTERN_NESTING_CAP)
        return fail(reader, ERR_UNSUPPORTED, "groups are nested too deep");
    reader->at++;
    reader->depth++;
    if (!read_group_kind(reader) || !read_choice(reader, out))
        return false;
    reader->depth--;
    if (peek(reader) != ')')
        return fail(reader, ERR_ARGUMENT, "a ) is missing");
    reader->at++;
    return true;
}

static bool read_atom(struct pattern_reader *reader, struct pattern_piece *out)
{
    const char c = peek(reader), next = peek_at(reader, 1);
    uint32_t point;
    if (c == '(')
        return read_group(reader, out);
    if (c == '[' || c == '.' || (c == '\\' && (is_shorthand(next) || (next | 0x20) == 'p')))
        return read_set(reader, out);
    if (c == '*' || c == '+' || c == '?')
        return fail(reader, ERR_ARGUMENT, "there is nothing to repeat");
    if (c == '^' || c == '$')
        return fail(reader, ERR_UNSUPPORTED,
                    "^ is supported at the beginning of the pattern and $ at its end");
    if (c == '\\') {
        reader->at++;
        if (!read_escaped_character(reader, false, &point))
            return false;
    } else if (!read_plain(reader, &point)) {
        return false;
    }
    *out = piece_of_character(reader, point);
    return true;
}

static bool read_number(struct pattern_reader *reader, uint32_t *out)
{
    uint32_t value = 0;
    const size_t first = reader->at;
    for (; peek(reader) >= '0' && peek(reader) <= '9'; reader->at++) {
        value = value * 10 + (uint32_t)(peek(reader) - '0');
        if (value > PATTERN_REPEAT_CAP)
            return fail(reader, ERR_UNSUPPORTED, "this repetition is too long");
    }
    *out = value;
    return reader->at > first || fail(reader, ERR_ARGUMENT, "a number is missing");
}

static bool read_braces(struct pattern_reader *reader, uint32_t *min, uint32_t *max)
{
    reader->at++;
    if (!read_number(reader, min))
        return false;
    *max = *min;
    if (peek(reader) == ',') {
        reader->at++;
        *max = GRAMMAR_NO_MAX;
        if (peek(reader) != '}' && !read_number(reader, max))
            return false;
    }
    if (peek(reader) != '}')
        return fail(reader, ERR_ARGUMENT, "a } is missing");
    reader->at++;
    return *min <= *max || fail(reader, ERR_ARGUMENT, "this repetition ends before it begins");
}

static uint32_t times(uint32_t chars, uint32_t count)
{
    if (chars == 0 || count == 0)
        return 0;
    const uint64_t product = (uint64_t)chars * count;
    return chars == GRAMMAR_NO_MAX || count == GRAMMAR_NO_MAX || product >= GRAMMAR_NO_MAX
               ? GRAMMAR_NO_MAX
               : (uint32_t)product;
}

static uint32_t plus(uint32_t a, uint32_t b)
{
    return a == GRAMMAR_NO_MAX || b == GRAMMAR_NO_MAX || a > GRAMMAR_NO_MAX - b ? GRAMMAR_NO_MAX
                                                                                : a + b;
}

static bool read_repeat(struct pattern_reader *reader, struct pattern_piece *piece)
{
    uint32_t min = 0, max = GRAMMAR_NO_MAX;
    const char c = peek(reader);
    if (c != '*' && c != '+' && c != '?' && c != '{')
        return true;
    if (c == '{') {
        if (!read_braces(reader, &min, &max))
            return false;
    } else {
        reader->at++;
        min = c == '+';
        max = c == '?' ? 1 : GRAMMAR_NO_MAX;
    }
    if (peek(reader) == '+')
        return fail(reader, ERR_UNSUPPORTED, "possessive repetitions are not supported");
    if (peek(reader) == '?') // lazy: the same texts
        reader->at++;
    if (peek(reader) == '*' || peek(reader) == '{')
        return fail(reader, ERR_ARGUMENT, "there is nothing to repeat");
    *piece = (struct pattern_piece){ .node = rules_repeat(reader->rules, piece->node, min, max),
                                     .min_chars = times(piece->min_chars, min),
                                     .max_chars = times(piece->max_chars, max) };
    return true;
}

/* Any text, where a pattern that is searched for leaves the text open. */
static struct pattern_piece any_text(struct pattern_reader *reader)
{
    const struct code_range all = { 0, GRAMMAR_CODE_POINT_CAP };
    const uint32_t any = write_class(reader, &all, 1);
    return (struct pattern_piece){ .node = rules_repeat(reader->rules, any, 0, GRAMMAR_NO_MAX),
                                   .max_chars = GRAMMAR_NO_MAX };
}

static void add_piece(struct rules_list *parts, struct pattern_piece *sum,
                      struct pattern_piece piece)
{
    rules_list_add(parts, piece.node);
    sum->min_chars = plus(sum->min_chars, piece.min_chars);
    sum->max_chars = plus(sum->max_chars, piece.max_chars);
}

static bool read_sequence(struct pattern_reader *reader, struct pattern_piece *out)
{
    struct rules_list parts = { 0 };
    struct pattern_piece sum = { 0 }, piece;
    bool good = true, is_closed = false;
    const bool is_open = reader->depth == 0 && reader->options->searches;
    if (reader->depth == 0 && peek(reader) == '^')
        reader->at++;
    else if (is_open)
        add_piece(&parts, &sum, any_text(reader));
    while (good && !is_done(reader) && peek(reader) != '|' && peek(reader) != ')') {
        const char next = peek_at(reader, 1);
        if (reader->depth == 0 && peek(reader) == '$' &&
            (reader->at + 1 == reader->text.size || next == '|')) {
            reader->at++;
            is_closed = true;
            break;
        }
        good = read_atom(reader, &piece) && read_repeat(reader, &piece);
        if (good)
            add_piece(&parts, &sum, piece);
    }
    if (good && is_open && !is_closed)
        add_piece(&parts, &sum, any_text(reader));
    sum.node = good ? rules_sequence(reader->rules, parts.parts, parts.n_parts) : RULES_NOTHING;
    *out = sum;
    rules_list_release(&parts);
    return good;
}

static bool read_choice(struct pattern_reader *reader, struct pattern_piece *out)
{
    struct rules_list parts = { 0 };
    struct pattern_piece sum = { .min_chars = GRAMMAR_NO_MAX }, piece;
    bool good;
    for (;;) {
        good = read_sequence(reader, &piece);
        if (!good)
            break;
        rules_list_add(&parts, piece.node);
        sum.min_chars = piece.min_chars < sum.min_chars ? piece.min_chars : sum.min_chars;
        sum.max_chars = piece.max_chars > sum.max_chars ? piece.max_chars : sum.max_chars;
        if (peek(reader) != '|')
            break;
        reader->at++;
    }
    sum.node = good ? rules_choice(reader->rules, parts.parts, parts.n_parts) : RULES_NOTHING;
    *out = sum;
    rules_list_release(&parts);
    return good;
}

bool pattern_read_piece(struct str text, const struct pattern_options *options,
                        struct grammar_rules *rules, struct pattern_piece *out, struct err *err)
{
    struct pattern_reader reader = { .text = text, .options = options, .rules = rules, .err = err };
    if (!read_choice(&reader, out))
        return false;
    return is_done(&reader) || fail(&reader, ERR_ARGUMENT, "this ) closes nothing");
}

bool pattern_read(struct str text, struct grammar_rules *rules, struct err *err)
{
    const struct pattern_options options = { 0 };
    struct pattern_piece piece;
    rules->root = rules_declare(rules, STR("pattern"));
    if (!pattern_read_piece(text, &options, rules, &piece, err))
        return false;
    rules_define(rules, rules->root, piece.node);
    return true;
}
