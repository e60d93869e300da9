/* Python's two ways to fill a text: 'x %s' % y and 'x {}'.format(y). The first is done but for what
 * no template would write (* as a width); of the second, fields by order, number or name with !s
 * and !r, and no format after a colon. */
#include "text/jinja_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct spec {
    bool left, zero, plus, blank, alternate;
    int64_t width;
    int64_t precision; // -1: none
    char kind;
};

#define NUMBER_CAP 1000 // of width and precision

struct percent {
    struct jinja_eval *eval;
    struct value values; // a tuple, a dictionary, or one value
    size_t used;
    bool markup;
    struct traced_builder out;
};

static int64_t read_number(struct str format, size_t *at)
{
    int64_t number = 0;
    for (; *at < format.size && format.data[*at] >= '0' && format.data[*at] <= '9'; (*at)++)
        number = number > NUMBER_CAP ? number : number * 10 + (format.data[*at] - '0');
    return number;
}

/* Behind the "%" and the "(name)". */
static bool read_spec(struct percent *percent, struct str format, size_t *at, struct spec *out)
{
    *out = (struct spec){ .precision = -1 };
    for (; *at < format.size && memchr("-0+ #", format.data[*at], 5); (*at)++) {
        out->left |= format.data[*at] == '-';
        out->zero |= format.data[*at] == '0';
        out->plus |= format.data[*at] == '+';
        out->blank |= format.data[*at] == ' ';
        out->alternate |= format.data[*at] == '#';
    }
    out->width = read_number(format, at);
    if (*at < format.size && format.data[*at] == '.') {
        (*at)++;
        out->precision = read_number(format, at);
    }
    while (*at < format.size && memchr("hlL", format.data[*at], 3))
        (*at)++;
    if (*at >= format.size)
        return jinja_raise(percent->eval, "incomplete format");
    if (out->width > NUMBER_CAP || out->precision > NUMBER_CAP)
        return jinja_raise(percent->eval, "width or precision of a format is too large");
    out->kind = format.data[(*at)++];
    return true;
}

static bool next_value(struct percent *percent, struct value *out)
{
    bool is_tuple = percent->values.type == VALUE_TUPLE;
    size_t n = is_tuple ? percent->values.list->size : 1;
    if (percent->used >= n)
        return jinja_raise(percent->eval, "not enough arguments for format string");
    *out = is_tuple ? percent->values.list->items[percent->used] : percent->values;
    percent->used++;
    return true;
}

/* %(name)s */
static bool named_value(struct percent *percent, struct value format, size_t *at, struct value *out)
{
    struct str text = traced_str(format.string);
    size_t end = str_find(str_slice(text, *at, text.size), STR(")"));
    if (percent->values.type != VALUE_DICT)
        return jinja_raise(percent->eval, "format requires a mapping");
    if (end == SIZE_MAX)
        return jinja_raise(percent->eval, "incomplete format key");
    struct str name = str_slice(text, *at, *at + end);
    const struct value *found = value_dict_get(&percent->values, name);
    if (!found)
        return jinja_raise(percent->eval, "KeyError: '%.*s'", STR_ARG(name));
    *at += end + 1;
    *out = *found;
    percent->used = 1;
    return true;
}

static bool add_padded(struct percent *percent, const struct spec *spec, struct value text)
{
    int64_t length = (int64_t)jinja_length_points(traced_str(text.string));
    size_t room = spec->width > length ? (size_t)(spec->width - length) : 0;
    for (size_t i = 0; i < room && !spec->left; i++)
        traced_add(&percent->out, STR(" "), true);
    traced_add_text(&percent->out, text.string);
    for (size_t i = 0; i < room && spec->left; i++)
        traced_add(&percent->out, STR(" "), true);
    return true;
}

static bool add_text(struct percent *percent, const struct spec *spec, struct value value)
{
    struct jinja_eval *eval = percent->eval;
    struct traced_builder builder;
    struct value text;
    if (spec->kind == 's') {
        if (!jinja_soft_text(eval, value, &text))
            return false;
    } else {
        jinja_text_begin(eval, &builder);
        if (!jinja_print_repr(eval, value, &builder) || !jinja_text_end(eval, &builder, &text))
            return false;
    }
    if (percent->markup && !jinja_escape(eval, text, &text))
        return false;
    if (spec->precision >= 0) {
        struct value_slice cut = { value_none(), value_integer(spec->precision), value_none() };
        if (!jinja_slice(eval, text, &cut, &text))
            return false;
    }
    return add_padded(percent, spec, text);
}

/* The C format for the flags of a spec: "%-+08.3" and the kind. */
static void c_format(const struct spec *spec, const char *kind, char out[48])
{
    char precision[16] = "";
    if (spec->precision >= 0)
        snprintf(precision, sizeof precision, ".%d", (int)spec->precision);
    snprintf(out, 48, "%%%s%s%s%s%s%d%s%s", spec->left ? "-" : "", spec->zero ? "0" : "",
             spec->plus ? "+" : "", spec->blank ? " " : "", spec->alternate ? "#" : "",
             (int)spec->width, precision, kind);
    if (spec->width == 0) { // a width of 0 would be read as the flag
        char *zero = strstr(out, precision[0] ? "0." : "0");
        if (zero)
            memmove(zero, zero + 1, strlen(zero));
        if (spec->zero)
            snprintf(out, 48, "%%%s%s%s%s%s", spec->plus ? "+" : "", spec->blank ? " " : "",
                     spec->alternate ? "#" : "", precision, kind);
    }
}

static bool add_integer(struct percent *percent, const struct spec *spec, struct value value)
{
    char format[48], text[NUMBER_CAP * 2 + 64];
    int64_t integer;
    double real;
    bool decimal = spec->kind == 'd' || spec->kind == 'i' || spec->kind == 'u';
    if (!jinja_as_integer(value, &integer)) {
        if (!decimal || !jinja_as_float(value, &real))
            return jinja_raise(percent->eval, "%%%c format: a real number is required, not %s",
                               spec->kind, jinja_type_name(value));
        if (!(fabs(real) < 9223372036854775808.0))
            return jinja_raise(percent->eval, "limit of integers: a float does not fit 64 bits");
        integer = (int64_t)real;
    }
    if (!decimal && integer < 0)
        return err_set(percent->eval->err, ERR_UNSUPPORTED,
                       "template line %u: %%%c of a negative number is not supported",
                       percent->eval->line, spec->kind);
    c_format(spec,
             decimal             ? PRId64
             : spec->kind == 'x' ? PRIx64
             : spec->kind == 'X' ? PRIX64
                                 : PRIo64,
             format);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int size = snprintf(text, sizeof text, format, integer);
#pragma GCC diagnostic pop
    traced_add(&percent->out, (struct str){ text, size > 0 ? (size_t)size : 0 }, true);
    return true;
}

static bool add_float(struct percent *percent, const struct spec *spec, struct value value)
{
    char format[48], kind[] = { spec->kind, '\0' }, text[NUMBER_CAP * 2 + 64];
    double real;
    if (!jinja_as_float(value, &real))
        return jinja_raise(percent->eval, "must be real number, not %s", jinja_type_name(value));
    c_format(spec, kind, format);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int size = snprintf(text, sizeof text, format, real);
#pragma GCC diagnostic pop
    traced_add(&percent->out, (struct str){ text, size > 0 ? (size_t)size : 0 }, true);
    return true;
}

static bool add_character(struct percent *percent, const struct spec *spec, struct value value)
{
    int64_t point;
    char bytes[4];
    struct value text = value;
    if (jinja_as_integer(value, &point)) {
        if (point < 0 || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
            return jinja_raise(percent->eval, "%%c arg not in range(0x110000)");
        size_t size = utf8_write((uint32_t)point, bytes);
        if (!jinja_text(percent->eval, (struct str){ bytes, size }, &text))
            return false;
    }
    if (text.type != VALUE_STRING || jinja_length_points(traced_str(text.string)) != 1)
        return jinja_raise(percent->eval, "%%c requires int or char");
    return add_padded(percent, spec, text);
}

static bool add_value(struct percent *percent, const struct spec *spec, struct value value)
{
    switch (spec->kind) {
    case 's':
    case 'r':
    case 'a':
        return add_text(percent, spec, value);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        return add_integer(percent, spec, value);
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
        return add_float(percent, spec, value);
    case 'c':
        return add_character(percent, spec, value);
    default:
        return jinja_raise(percent->eval, "unsupported format character '%c'", spec->kind);
    }
}

bool jinja_format_percent(struct jinja_eval *eval, struct value format, struct value args,
                          struct value *out)
{
    struct percent percent = { .eval = eval, .values = args, .markup = format.markup };
    struct str text = traced_str(format.string);
    jinja_text_begin(eval, &percent.out);
    for (size_t at = 0; at < text.size;) {
        size_t plain = str_find_char(str_slice(text, at, text.size), '%');
        plain = plain == SIZE_MAX ? text.size - at : plain;
        traced_add_text(&percent.out, jinja_piece(format, at, at + plain));
        at += plain + 1;
        if (at > text.size)
            break;
        struct value value = { 0 };
        struct spec spec;
        bool named = at < text.size && text.data[at] == '(';
        if (named && (at++, !named_value(&percent, format, &at, &value)))
            return false;
        if (!read_spec(&percent, text, &at, &spec) || !jinja_step(eval))
            return false;
        if (spec.kind == '%') {
            traced_add(&percent.out, STR("%"), true);
            continue;
        }
        if ((!named && !next_value(&percent, &value)) || !add_value(&percent, &spec, value))
            return false;
    }
    /* Python lets what has an index operator pass, used or not. */
    bool indexed = args.type == VALUE_DICT || args.type == VALUE_LIST || args.type == VALUE_RANGE ||
                   args.type == VALUE_UNDEFINED;
    size_t given = args.type == VALUE_TUPLE ? args.list->size : 1;
    if (percent.used < given && !indexed)
        return jinja_raise(eval, "not all arguments converted during string formatting");
    if (!jinja_work(eval, text.size) || !jinja_text_end(eval, &percent.out, out))
        return false;
    out->markup = format.markup;
    return true;
}

/* ---- braces ---- */

/* The value of the field "", "0" or "name". */
static bool field_value(struct jinja_eval *eval, struct str field, const struct jinja_args *args,
                        size_t *next, struct value *out)
{
    uint64_t index = *next;
    if (field.size == 0)
        (*next)++;
    if (field.size == 0 || str_to_u64(field, &index)) {
        if (index >= args->size)
            return jinja_raise(eval,
                               "Replacement index %llu out of range for positional args tuple",
                               (unsigned long long)index);
        *out = args->items[index];
        return true;
    }
    for (size_t i = 0; i < args->n_named; i++)
        if (str_equal(args->named[i].name, field)) {
            *out = args->named[i].value;
            return true;
        }
    if (str_find_char(field, '.') != SIZE_MAX || str_find_char(field, '[') != SIZE_MAX)
        return err_set(eval->err, ERR_UNSUPPORTED,
                       "template line %u: attributes in format fields are not supported",
                       eval->line);
    return jinja_raise(eval, "KeyError: '%.*s'", STR_ARG(field));
}

static bool add_field(struct jinja_eval *eval, struct str field, const struct jinja_args *args,
                      size_t *next, bool markup, struct traced_builder *out)
{
    bool repr = str_ends(field, STR("!r"));
    struct value value, text;
    if (repr || str_ends(field, STR("!s")))
        field.size -= 2;
    size_t colon = str_find_char(field, ':');
    if (colon != SIZE_MAX && colon + 1 < field.size)
        return err_set(eval->err, ERR_UNSUPPORTED,
                       "template line %u: formats after ':' in format fields are not supported",
                       eval->line);
    field.size = colon == SIZE_MAX ? field.size : colon;
    if (!field_value(eval, field, args, next, &value))
        return false;
    if (repr)
        return jinja_print_repr(eval, value, out);
    if (!jinja_soft_text(eval, value, &text) || (markup && !jinja_escape(eval, text, &text)))
        return false;
    return jinja_print(eval, text, out);
}

bool jinja_format_braces(struct jinja_eval *eval, struct value format,
                         const struct jinja_args *args, struct value *out)
{
    struct str text = traced_str(format.string);
    struct traced_builder builder;
    size_t next = 0;
    jinja_text_begin(eval, &builder);
    for (size_t at = 0; at < text.size;) {
        size_t end = at;
        while (end < text.size && text.data[end] != '{' && text.data[end] != '}')
            end++;
        bool doubled = end + 1 < text.size && text.data[end] == text.data[end + 1];
        traced_add_text(&builder, jinja_piece(format, at, end + (doubled ? 1 : 0)));
        at = end + (doubled ? 2 : 1);
        if (doubled || end == text.size)
            continue;
        if (text.data[end] == '}')
            return jinja_raise(eval, "Single '}' encountered in format string");
        size_t close = str_find_char(str_slice(text, at, text.size), '}');
        if (close == SIZE_MAX)
            return jinja_raise(eval, "expected '}' before end of string");
        struct str field = str_slice(text, at, at + close);
        if (!jinja_step(eval) || !add_field(eval, field, args, &next, format.markup, &builder))
            return false;
        at += close + 1;
    }
    if (!jinja_work(eval, text.size) || !jinja_text_end(eval, &builder, out))
        return false;
    out->markup = format.markup;
    return true;
}
