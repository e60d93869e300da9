/* Operations on text that filters and methods share. Each keeps the origin of every byte. */
#include "text/jinja_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/unicode_case.h"

/* ---- case ---- */

/* A code point in its text. */
struct place {
    struct str text;
    size_t at, behind; // its offset, and the next one's
    uint32_t point;
    bool after_cased; // the one before has a case
};

/* A capital sigma at the end of a word has a small form of its own. */
static bool sigma_is_final(const struct place *place)
{
    bool before = false, after = false;
    for (size_t i = 0; i < place->at;) { // the last cased character in front
        uint32_t point = jinja_next_point(place->text, &i);
        if (!unicode_is_case_ignorable(point))
            before = unicode_is_cased(point);
    }
    for (size_t i = place->behind; i < place->text.size;) {
        uint32_t point = jinja_next_point(place->text, &i);
        if (unicode_is_case_ignorable(point))
            continue;
        after = unicode_is_cased(point);
        break;
    }
    return before && !after;
}

static size_t lower(const struct place *place, uint32_t out[UNICODE_CASE_POINTS_CAP])
{
    if (place->point != 0x3a3)
        return unicode_lower(place->point, out);
    out[0] = sigma_is_final(place) ? 0x3c2 : 0x3c3;
    return 1;
}

static size_t swap_case(const struct place *place, uint32_t out[UNICODE_CASE_POINTS_CAP])
{
    if (unicode_is_upper(place->point))
        return lower(place, out);
    if (unicode_is_lower(place->point))
        return unicode_upper(place->point, out);
    out[0] = place->point;
    return 1;
}

static size_t change_point(enum jinja_case how, const struct place *place,
                           uint32_t out[UNICODE_CASE_POINTS_CAP])
{
    switch (how) {
    case CASE_UPPER:
        return unicode_upper(place->point, out);
    case CASE_LOWER:
        return lower(place, out);
    case CASE_FOLD:
        return unicode_fold(place->point, out);
    case CASE_SWAP:
        return swap_case(place, out);
    case CASE_CAPITALIZE:
        return place->at == 0 ? unicode_title(place->point, out) : lower(place, out);
    default:
        return place->after_cased ? lower(place, out) : unicode_title(place->point, out);
    }
}

/* A long text of sigmas would be read through once for each: they are counted as work. */
bool jinja_change_case(struct jinja_eval *eval, struct value string, enum jinja_case how,
                       struct value *out)
{
    struct place place = { .text = traced_str(string.string) };
    struct traced_builder builder;
    if (!jinja_work(eval, place.text.size * 2))
        return false;
    jinja_text_begin(eval, &builder);
    for (size_t run_end = 0; place.at < place.text.size; place.at = place.behind) {
        uint32_t points[UNICODE_CASE_POINTS_CAP];
        bool from_template = traced_origin(string.string, place.at, &run_end);
        place.behind = place.at;
        place.point = jinja_next_point(place.text, &place.behind);
        if (place.point == 0x3a3 && !jinja_work(eval, place.text.size))
            return false;
        size_t n = change_point(how, &place, points);
        for (size_t i = 0; i < n; i++)
            traced_add_point(&builder, points[i], from_template);
        place.after_cased = unicode_is_cased(place.point);
    }
    if (!jinja_text_end(eval, &builder, out))
        return false;
    out->markup = string.markup;
    return true;
}

/* ---- stripping, replacing, padding, joining ---- */

static bool is_stripped(uint32_t point, struct value chars)
{
    if (chars.type != VALUE_STRING)
        return unicode_is_space(point);
    struct str set = traced_str(chars.string);
    for (size_t at = 0; at < set.size;)
        if (jinja_next_point(set, &at) == point)
            return true;
    return false;
}

/* Offset of the code point that ends at `end`. */
static size_t point_before(struct str text, size_t end)
{
    size_t at = end - 1;
    while (at > 0 && ((unsigned char)text.data[at] & 0xc0) == 0x80)
        at--;
    return at;
}

bool jinja_strip(struct jinja_eval *eval, struct value string, struct value chars,
                 enum jinja_side side, struct value *out)
{
    struct str text = traced_str(string.string);
    size_t first = 0, last = text.size;
    if (chars.type != VALUE_STRING && chars.type != VALUE_NONE && chars.type != VALUE_UNDEFINED)
        return jinja_raise(eval, "strip arg must be None or str, not %s", jinja_type_name(chars));
    while (side & SIDE_LEFT && first < last) {
        size_t next = first;
        if (!is_stripped(jinja_next_point(text, &next), chars))
            break;
        first = next;
    }
    while (side & SIDE_RIGHT && last > first) {
        size_t before = point_before(text, last), next = before;
        if (!is_stripped(jinja_next_point(text, &next), chars))
            break;
        last = before;
    }
    *out = value_text(jinja_piece(string, first, last));
    out->markup = string.markup;
    return jinja_work(eval, text.size - (last - first));
}

/* Replacing nothing puts the replacement between all characters. */
static bool replace_empty(struct value string, struct value replacement, int64_t count,
                          struct traced_builder *builder)
{
    struct str text = traced_str(string.string);
    size_t at = 0;
    for (; count != 0; count--) {
        traced_add_text(builder, replacement.string);
        if (at == text.size || builder->overflowed || builder->exhausted)
            return true;
        size_t next = at;
        jinja_next_point(text, &next);
        traced_add_text(builder, jinja_piece(string, at, next));
        at = next;
    }
    traced_add_text(builder, jinja_piece(string, at, text.size));
    return true;
}

bool jinja_replace(struct jinja_eval *eval, struct value string, struct value old,
                   struct value replacement, int64_t count, struct value *out)
{
    struct str text = traced_str(string.string), needle = traced_str(old.string);
    struct traced_builder builder;
    if (!jinja_work(eval, text.size))
        return false;
    jinja_text_begin(eval, &builder);
    if (needle.size == 0) {
        replace_empty(string, replacement, count, &builder);
    } else {
        size_t at = 0;
        for (; count != 0 && !builder.overflowed && !builder.exhausted; count--) {
            size_t found = str_find(str_slice(text, at, text.size), needle);
            if (found == SIZE_MAX)
                break;
            traced_add_text(&builder, jinja_piece(string, at, at + found));
            traced_add_text(&builder, replacement.string);
            at += found + needle.size;
        }
        traced_add_text(&builder, jinja_piece(string, at, text.size));
    }
    if (!jinja_text_end(eval, &builder, out))
        return false;
    out->markup = string.markup;
    return true;
}

bool jinja_pad(struct jinja_eval *eval, struct value string, size_t before, size_t behind,
               struct value fill, struct value *out)
{
    struct value blank, front, back;
    if (!jinja_text(eval, STR(" "), &blank))
        return false;
    if (fill.type == VALUE_STRING && jinja_length_points(traced_str(fill.string)) == 1)
        blank = fill;
    else if (fill.type != VALUE_NONE)
        return jinja_raise(eval, "The fill character must be exactly one character long");
    bool markup = string.markup;
    blank.markup = string.markup = false;
    if (!jinja_arithmetic(eval, TOKEN_MUL, blank, value_integer((int64_t)before), &front) ||
        !jinja_arithmetic(eval, TOKEN_MUL, blank, value_integer((int64_t)behind), &back) ||
        !jinja_arithmetic(eval, TOKEN_ADD, front, string, &front) ||
        !jinja_arithmetic(eval, TOKEN_ADD, front, back, out))
        return false;
    out->markup = markup;
    return true;
}

bool jinja_join(struct jinja_eval *eval, struct value items, struct value separator,
                struct value *out)
{
    struct jinja_cursor cursor;
    struct traced_builder builder;
    struct value item;
    bool more;
    if (!jinja_iterate(eval, items, &cursor))
        return false;
    jinja_text_begin(eval, &builder);
    for (size_t n = 0;; n++) {
        if (!jinja_next(eval, &cursor, &item, &more))
            return false;
        if (!more)
            break;
        if (item.type != VALUE_STRING)
            return jinja_raise(eval, "sequence item %zu: expected str instance, %s found", n,
                               jinja_type_name(item));
        if (n > 0)
            traced_add_text(&builder, separator.string);
        traced_add_text(&builder, item.string);
        if (!jinja_step(eval) || !jinja_work(eval, traced_size(item.string)))
            return false;
    }
    return jinja_text_end(eval, &builder, out);
}

static bool ends_line(uint32_t point)
{
    return (point >= '\n' && point <= '\r') || (point >= 0x1c && point <= 0x1e) || point == 0x85 ||
           point == 0x2028 || point == 0x2029;
}

size_t jinja_line_size(struct str text, size_t at, size_t *end_size)
{
    *end_size = 0;
    for (size_t next = at; next < text.size;) {
        size_t end = next;
        uint32_t point = jinja_next_point(text, &next);
        if (!ends_line(point))
            continue;
        if (point == '\r' && next < text.size && text.data[next] == '\n')
            next++;
        *end_size = next - end;
        return end - at;
    }
    return text.size - at;
}

/* ---- numbers ---- */

/* Copies text without blanks around it and underscores between digits; digits become ASCII. */
static bool tidy_number(struct str text, char *out, size_t out_bytes)
{
    size_t n = 0, at = 0, last = text.size;
    while (at < last) {
        size_t next = at;
        if (!unicode_is_space(jinja_next_point(text, &next)))
            break;
        at = next;
    }
    while (last > at) {
        size_t before = point_before(text, last), next = before;
        if (!unicode_is_space(jinja_next_point(text, &next)))
            break;
        last = before;
    }
    for (size_t next = at; at < last; at = next) {
        uint32_t point = jinja_next_point(text, &next);
        bool between = n > 0 && next < last && text.data[at - 1] != '_' && text.data[next] != '_';
        if (point == '_' && between)
            continue;
        if (point >= 0x80 && unicode_is_decimal(point))
            point = '0' + unicode_decimal_value(point);
        if (n + 1 >= out_bytes || point == '\0' || point == '_' || point >= 0x80)
            return false;
        out[n++] = (char)point;
    }
    out[n] = '\0';
    return n > 0;
}

bool jinja_read_integer(struct str text, int base, int64_t *out)
{
    char tidy[128];
    if (!tidy_number(text, tidy, sizeof tidy) || base < 0 || base == 1 || base > 36)
        return false;
    const char *digits = tidy + (tidy[0] == '-' || tidy[0] == '+');
    int64_t number = 0;
    int prefix = digits[0] != '0'            ? 0
                 : (digits[1] | 0x20) == 'x' ? 16
                 : (digits[1] | 0x20) == 'o' ? 8
                 : (digits[1] | 0x20) == 'b' ? 2
                                             : 0;
    if (prefix && (base == prefix || base == 0)) {
        digits += 2;
        base = prefix;
    }
    base = base == 0 ? 10 : base;
    if (!*digits)
        return false;
    for (; *digits; digits++) {
        int c = (unsigned char)*digits | 0x20;
        int digit = *digits >= '0' && *digits <= '9' ? *digits - '0'
                    : c >= 'a' && c <= 'z'           ? c - 'a' + 10
                                                     : 99;
        if (digit >= base || __builtin_mul_overflow(number, base, &number) ||
            __builtin_add_overflow(number, tidy[0] == '-' ? -digit : digit, &number))
            return false;
    }
    *out = number;
    return true;
}

bool jinja_read_float(struct str text, double *out)
{
    static const char *const words[] = { "inf", "infinity", "nan" };
    char tidy[512], *end;
    if (!tidy_number(text, tidy, sizeof tidy))
        return false;
    bool negative = tidy[0] == '-';
    const char *number = tidy + (negative || tidy[0] == '+');
    for (size_t i = 0; i < 3; i++)
        if (str_equal_nocase(str_from(number), str_from(words[i]))) {
            double word = i == 2 ? NAN : INFINITY;
            *out = negative ? -word : word;
            return true;
        }
    if ((number[0] < '0' || number[0] > '9') && number[0] != '.')
        return false;
    if (number[0] == '0' && (number[1] | 0x20) == 'x') // C reads hexadecimal, Python does not
        return false;
    double real = strtod(tidy, &end);
    if (*end != '\0')
        return false;
    *out = real;
    return true;
}
