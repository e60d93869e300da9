/* Filters on single values, and the table of all. What each does to text is in jinja_text.c. */
#include "text/jinja_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/unicode_case.h"

#define FILTER(name)                                                                               \
    static bool name(struct jinja_eval *eval, struct value subject,                                \
                     const struct jinja_bound *args, struct value *out)

/* The integer in an argument, or `otherwise` when it is left out. */
static bool integer_arg(struct jinja_eval *eval, const struct jinja_bound *args, size_t at,
                        int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (!args->given[at] || jinja_as_integer(args->values[at], out))
        return true;
    if (args->values[at].type == VALUE_UNDEFINED)
        return jinja_raise_undefined(eval, args->values[at]);
    return jinja_raise(eval, "'%s' object cannot be interpreted as an integer",
                       jinja_type_name(args->values[at]));
}

static bool truth_arg(const struct jinja_bound *args, size_t at)
{
    return args->given[at] && jinja_truth(args->values[at]);
}

/* ---- numbers ---- */

FILTER(filter_abs)
{
    int64_t integer;
    (void)args;
    if (subject.type == VALUE_FLOAT) {
        *out = value_float(fabs(subject.real));
        return true;
    }
    if (!jinja_as_integer(subject, &integer))
        return jinja_raise(eval, "bad operand type for abs(): '%s'", jinja_type_name(subject));
    return jinja_negate(eval, value_integer(integer), integer >= 0, out);
}

static bool float_to_integer(struct jinja_eval *eval, double real, struct value *out)
{
    if (!(fabs(real) < 9223372036854775808.0))
        return jinja_raise(eval, "limit of integers: a float does not fit 64 bits");
    *out = value_integer((int64_t)real);
    return true;
}

/* Like Python: "42.5"|int is 42, what is no number the default. */
FILTER(filter_int)
{
    int64_t integer, base;
    double real;
    if (!integer_arg(eval, args, 1, 10, &base))
        return false;
    if (subject.type == VALUE_UNDEFINED)
        return jinja_raise_undefined(eval, subject);
    *out = args->given[0] ? args->values[0] : value_integer(0);
    if (jinja_as_integer(subject, &integer))
        *out = value_integer(integer);
    else if (subject.type == VALUE_FLOAT && !isnan(subject.real))
        return float_to_integer(eval, subject.real, out);
    else if (subject.type == VALUE_STRING &&
             jinja_read_integer(traced_str(subject.string), (int)base, &integer))
        *out = value_integer(integer);
    else if (subject.type == VALUE_STRING && jinja_read_float(traced_str(subject.string), &real) &&
             !isnan(real))
        return float_to_integer(eval, real, out);
    return true;
}

FILTER(filter_float)
{
    double real;
    if (subject.type == VALUE_UNDEFINED)
        return jinja_raise_undefined(eval, subject);
    *out = args->given[0] ? args->values[0] : value_float(0);
    if (jinja_as_float(subject, &real) ||
        (subject.type == VALUE_STRING && jinja_read_float(traced_str(subject.string), &real)))
        *out = value_float(real);
    return true;
}

/* round(value, precision): half to even of the exact decimal value, as printf does. */
static bool round_common(struct jinja_eval *eval, struct value subject, int64_t precision,
                         struct value *out)
{
    char text[512];
    if (subject.type != VALUE_FLOAT) {
        int64_t integer, scale = 1;
        jinja_as_integer(subject, &integer);
        for (int64_t i = 0; i > precision; i--)
            if (__builtin_mul_overflow(scale, (int64_t)10, &scale)) {
                *out = value_integer(0);
                return true;
            }
        int64_t rest = integer % scale, base = integer - rest, half = scale / 2;
        bool up =
            llabs(rest) > half || (scale > 1 && llabs(rest) == half && (base / scale) % 2 != 0);
        if (up && __builtin_add_overflow(base, integer < 0 ? -scale : scale, &base))
            return jinja_raise(eval, "limit of integers: the result does not fit 64 bits");
        *out = value_integer(base);
        return true;
    }
    if (precision > 308 || !isfinite(subject.real)) {
        *out = subject;
        return true;
    }
    if (precision < 0) {
        double scale = pow(10, (double)-precision);
        *out =
            value_float(isinf(scale) ? 0 * subject.real : nearbyint(subject.real / scale) * scale);
        return true;
    }
    int size =
        snprintf(text, sizeof text, "%.*f", (int)(precision > 150 ? 150 : precision), subject.real);
    if (size < 0 || (size_t)size >= sizeof text)
        *out = subject;
    else
        *out = value_float(strtod(text, NULL));
    return true;
}

FILTER(filter_round)
{
    int64_t precision;
    double real;
    struct str method = args->given[1] && args->values[1].type == VALUE_STRING
                            ? traced_str(args->values[1].string)
                            : STR("common");
    if (!integer_arg(eval, args, 0, 0, &precision))
        return false;
    if (!str_is(method, "common") && !str_is(method, "ceil") && !str_is(method, "floor"))
        return jinja_raise(eval, "method must be common, ceil or floor");
    if (!jinja_as_float(subject, &real))
        return jinja_raise(eval, "type %s doesn't define __round__ method",
                           jinja_type_name(subject));
    if (str_is(method, "common"))
        return round_common(eval, subject, precision, out);
    double scale = pow(10, (double)precision);
    real = str_is(method, "ceil") ? ceil(real * scale) : floor(real * scale);
    *out = value_float(real / scale);
    return true;
}

/* ---- text ---- */

static bool filter_case(struct jinja_eval *eval, struct value subject, enum jinja_case how,
                        struct value *out)
{
    struct value text;
    return jinja_soft_text(eval, subject, &text) && jinja_change_case(eval, text, how, out);
}

FILTER(filter_upper)
{
    (void)args;
    return filter_case(eval, subject, CASE_UPPER, out);
}

FILTER(filter_lower)
{
    (void)args;
    return filter_case(eval, subject, CASE_LOWER, out);
}

FILTER(filter_capitalize)
{
    (void)args;
    return filter_case(eval, subject, CASE_CAPITALIZE, out);
}

static bool begins_word(uint32_t point)
{
    return unicode_is_space(point) || point == '-' || point == '(' || point == '{' ||
           point == '[' || point == '<';
}

static bool add_cased(struct jinja_eval *eval, struct value text, size_t first, size_t last,
                      enum jinja_case how, struct traced_builder *out)
{
    struct value cased;
    if (!jinja_change_case(eval, value_text(jinja_piece(text, first, last)), how, &cased))
        return false;
    traced_add_text(out, cased.string);
    return true;
}

/* Upper case behind blanks and opening brackets, lower case elsewhere: "It's", not "It'S". */
FILTER(filter_title)
{
    struct value text;
    struct traced_builder builder;
    (void)args;
    if (!jinja_to_text(eval, subject, &text))
        return false;
    struct str bytes = traced_str(text.string);
    jinja_text_begin(eval, &builder);
    for (size_t at = 0; at < bytes.size;) {
        size_t first = at, second, end;
        bool separator = begins_word(jinja_next_point(bytes, &at));
        second = at;
        for (end = at; at < bytes.size; end = at)
            if (begins_word(jinja_next_point(bytes, &at)) != separator)
                break;
        at = end;
        if (!add_cased(eval, text, first, second, CASE_UPPER, &builder) ||
            !add_cased(eval, text, second, end, CASE_LOWER, &builder))
            return false;
    }
    return jinja_text_end(eval, &builder, out);
}

FILTER(filter_trim)
{
    struct value text;
    return jinja_soft_text(eval, subject, &text) &&
           jinja_strip(eval, text, args->values[0], SIDE_BOTH, out);
}

FILTER(filter_string)
{
    (void)args;
    return jinja_soft_text(eval, subject, out);
}

FILTER(filter_safe)
{
    (void)args;
    if (!jinja_soft_text(eval, subject, out))
        return false;
    out->markup = true;
    return true;
}

FILTER(filter_escape)
{
    (void)args;
    return jinja_escape(eval, subject, out);
}

FILTER(filter_forceescape)
{
    (void)args;
    subject.markup = false;
    return jinja_escape(eval, subject, out);
}

FILTER(filter_replace)
{
    struct value text, old, new;
    int64_t count = -1;
    bool limited = args->given[2] && args->values[2].type != VALUE_NONE;
    if (limited && !integer_arg(eval, args, 2, -1, &count))
        return false;
    return jinja_to_text(eval, subject, &text) && jinja_to_text(eval, args->values[0], &old) &&
           jinja_to_text(eval, args->values[1], &new) &&
           jinja_replace(eval, text, old, new, count, out);
}

FILTER(filter_center)
{
    struct value text;
    int64_t width;
    if (!jinja_soft_text(eval, subject, &text) || !integer_arg(eval, args, 0, 80, &width))
        return false;
    int64_t length = (int64_t)jinja_length_points(traced_str(text.string));
    int64_t pad = width > length ? width - length : 0;
    int64_t before = pad / 2 + (pad & width & 1);
    return jinja_pad(eval, text, (size_t)before, (size_t)(pad - before), value_none(), out);
}

/* The text that one level of indentation adds: a number of blanks, or the text itself. */
static bool indent_text(struct jinja_eval *eval, const struct jinja_bound *args,
                        struct value *indent)
{
    int64_t width;
    struct value blank;
    if (args->given[0] && args->values[0].type == VALUE_STRING) {
        *indent = args->values[0];
        return true;
    }
    return integer_arg(eval, args, 0, 4, &width) && jinja_text(eval, STR(" "), &blank) &&
           jinja_arithmetic(eval, TOKEN_MUL, blank, value_integer(width), indent);
}

/* Jinja2 adds a newline and takes the lines, so a newline at the end begins one more (empty) line,
 * but a carriage return there becomes part of that newline. */
static void indent_lines(struct value subject, struct value indent, bool blank,
                         struct traced_builder *out)
{
    struct str text = traced_str(subject.string);
    for (size_t at = 0;;) {
        size_t end_size, size = jinja_line_size(text, at, &end_size);
        if (at > 0 && (size > 0 || blank))
            traced_add_text(out, indent.string);
        traced_add_text(out, jinja_piece(subject, at, at + size));
        at += size + end_size;
        if (end_size == 0 || (at == text.size && text.data[at - 1] == '\r'))
            return;
        traced_add(out, STR("\n"), true);
    }
}

FILTER(filter_indent)
{
    struct value indent;
    struct traced_builder builder;
    if (subject.type == VALUE_UNDEFINED)
        return jinja_raise_undefined(eval, subject);
    if (subject.type != VALUE_STRING)
        return jinja_raise(eval, "indent needs a string, not %s", jinja_type_name(subject));
    if (!indent_text(eval, args, &indent))
        return false;
    jinja_text_begin(eval, &builder);
    if (truth_arg(args, 1))
        traced_add_text(&builder, indent.string);
    indent_lines(subject, indent, truth_arg(args, 2), &builder);
    if (!jinja_work(eval, traced_size(subject.string)) || !jinja_text_end(eval, &builder, out))
        return false;
    out->markup = subject.markup;
    return true;
}

/* Up to `length` code points of text and the end mark; whole words unless killwords. */
static bool cut_text(struct jinja_eval *eval, struct value text, int64_t length, bool killwords,
                     struct value *out)
{
    struct value_slice slice = { value_none(), value_integer(length), value_none() };
    if (!jinja_slice(eval, text, &slice, out))
        return false;
    if (killwords)
        return true;
    struct str kept = traced_str(out->string);
    for (size_t at = kept.size; at > 0; at--)
        if (kept.data[at - 1] == ' ') {
            out->string = jinja_piece(*out, 0, at - 1);
            break;
        }
    return true;
}

FILTER(filter_truncate)
{
    int64_t length, leeway;
    struct value end, head;
    size_t subject_length;
    if (!integer_arg(eval, args, 0, 255, &length) || !integer_arg(eval, args, 3, 5, &leeway) ||
        !jinja_text(eval, STR("..."), &end) ||
        (args->given[2] && !jinja_to_text(eval, args->values[2], &end)))
        return false;
    int64_t end_length = (int64_t)jinja_length_points(traced_str(end.string));
    if (length < end_length || leeway < 0)
        return jinja_raise(eval, "expected length >= %lld", (long long)end_length);
    if (!jinja_length(subject, &subject_length))
        return jinja_raise(eval, "object of type '%s' has no len()", jinja_type_name(subject));
    *out = subject;
    if ((int64_t)subject_length <= length + leeway)
        return true;
    if (subject.type != VALUE_STRING)
        return jinja_raise(eval, "'%s' object cannot be truncated", jinja_type_name(subject));
    return cut_text(eval, subject, length - end_length, truth_arg(args, 1), &head) &&
           jinja_arithmetic(eval, TOKEN_ADD, head, end, out);
}

FILTER(filter_wordcount)
{
    struct value text;
    int64_t count = 0;
    bool inside = false;
    (void)args;
    if (!jinja_soft_text(eval, subject, &text))
        return false;
    struct str bytes = traced_str(text.string);
    for (size_t at = 0; at < bytes.size;) {
        bool word = unicode_is_word(jinja_next_point(bytes, &at));
        count += word && !inside;
        inside = word;
    }
    *out = value_integer(count);
    return jinja_work(eval, bytes.size);
}

static bool filter_format(struct jinja_eval *eval, struct value subject,
                          const struct jinja_args *args, struct value *out)
{
    struct value text, values;
    if (args->size > 0 && args->n_named > 0)
        return jinja_raise(eval, "can't handle positional and keyword arguments at the same time");
    bool named = args->n_named > 0;
    if (!jinja_soft_text(eval, subject, &text))
        return false;
    if (named ? !value_dict_new(&eval->arena, &values)
              : !value_list_new(&eval->arena, VALUE_TUPLE, &values))
        return jinja_no_memory(eval);
    for (size_t i = 0; i < args->size; i++)
        if (!value_list_add(&eval->arena, &values, args->items[i]))
            return jinja_no_memory(eval);
    for (size_t i = 0; i < args->n_named; i++) {
        struct value key;
        if (!jinja_arg_key(eval, &args->named[i], &key))
            return false;
        if (!value_dict_set(&eval->arena, &values, key, args->named[i].value))
            return jinja_no_memory(eval);
    }
    return jinja_format_percent(eval, text, values, out);
}

/* ---- others ---- */

FILTER(filter_default)
{
    bool missing = subject.type == VALUE_UNDEFINED || (truth_arg(args, 1) && !jinja_truth(subject));
    *out = subject;
    if (!missing)
        return true;
    *out = args->values[0];
    return args->given[0] || jinja_text(eval, STR_NONE, out);
}

FILTER(filter_attr)
{
    struct value name;
    bool found;
    if (!jinja_to_text(eval, args->values[0], &name))
        return false;
    if (subject.type == VALUE_UNDEFINED)
        return jinja_raise_undefined(eval, subject);
    if (!jinja_own_attribute(eval, subject, traced_str(name.string), out, &found))
        return false;
    if (!found)
        *out = jinja_no_attribute(eval, subject, traced_str(name.string));
    return true;
}

/* separators=(',', ':') */
static bool read_separators(struct jinja_eval *eval, struct value pair,
                            struct jinja_json_style *style)
{
    if (pair.type == VALUE_NONE)
        return true;
    bool is_pair = (pair.type == VALUE_TUPLE || pair.type == VALUE_LIST) && pair.list->size == 2;
    if (!is_pair || pair.list->items[0].type != VALUE_STRING ||
        pair.list->items[1].type != VALUE_STRING)
        return jinja_raise(eval, "tojson: separators must be two strings");
    style->item_separator = traced_str(pair.list->items[0].string);
    style->key_separator = traced_str(pair.list->items[1].string);
    return true;
}

static bool read_json_indent(struct jinja_eval *eval, struct value indent,
                             struct jinja_json_style *style)
{
    struct value text, blank;
    int64_t width;
    if (indent.type == VALUE_NONE)
        return true;
    style->has_indent = true;
    style->item_separator = STR(",");
    if (indent.type == VALUE_STRING) {
        style->indent = traced_str(indent.string);
        return true;
    }
    if (!jinja_as_integer(indent, &width))
        return jinja_raise(eval, "tojson: indent must be a number or a string, not %s",
                           jinja_type_name(indent));
    if (!jinja_text(eval, STR(" "), &blank) ||
        !jinja_arithmetic(eval, TOKEN_MUL, blank, value_integer(width), &text))
        return false;
    style->indent = traced_str(text.string);
    return true;
}

FILTER(filter_tojson)
{
    struct jinja_json_style style = { .ascii = truth_arg(args, 0),
                                      .sort_keys = truth_arg(args, 3),
                                      .item_separator = STR(", "),
                                      .key_separator = STR(": ") };
    if (args->given[1] && !read_json_indent(eval, args->values[1], &style))
        return false;
    if (args->given[2] && !read_separators(eval, args->values[2], &style))
        return false;
    return jinja_json(eval, subject, &style, out);
}

const struct jinja_filter jinja_filters[] = {
    { "abs", "", filter_abs, NULL },
    { "attr", "name", filter_attr, NULL },
    { "capitalize", "", filter_capitalize, NULL },
    { "center", "width=", filter_center, NULL },
    { "d", "default_value= boolean=", filter_default, NULL },
    { "default", "default_value= boolean=", filter_default, NULL },
    { "e", "", filter_escape, NULL },
    { "escape", "", filter_escape, NULL },
    { "float", "default=", filter_float, NULL },
    { "forceescape", "", filter_forceescape, NULL },
    { "format", NULL, NULL, filter_format },
    { "indent", "width= first= blank=", filter_indent, NULL },
    { "int", "default= base=", filter_int, NULL },
    { "lower", "", filter_lower, NULL },
    { "replace", "old new count=", filter_replace, NULL },
    { "round", "precision= method=", filter_round, NULL },
    { "safe", "", filter_safe, NULL },
    { "string", "", filter_string, NULL },
    { "title", "", filter_title, NULL },
    { "tojson", "ensure_ascii= indent= separators= sort_keys=", filter_tojson, NULL },
    { "trim", "chars=", filter_trim, NULL },
    { "truncate", "length= killwords= end= leeway=", filter_truncate, NULL },
    { "upper", "", filter_upper, NULL },
    { "wordcount", "", filter_wordcount, NULL },
    { NULL, NULL, NULL, NULL },
};

static const struct jinja_filter *find_in(const struct jinja_filter *rows, struct str name)
{
    for (; rows->name; rows++)
        if (str_is(name, rows->name))
            return rows;
    return NULL;
}

const struct jinja_filter *jinja_filter_find(struct str name)
{
    const struct jinja_filter *row = find_in(jinja_filters, name);
    return row ? row : find_in(jinja_sequence_filters, name);
}

bool jinja_apply_filter(struct jinja_eval *eval, const struct jinja_filter *filter,
                        struct value subject, const struct jinja_args *args, struct value *out)
{
    struct jinja_bound bound;
    if (!filter->parameters)
        return filter->apply_args(eval, subject, args, out);
    return jinja_bind(eval, filter->name, filter->parameters, args, &bound) &&
           filter->apply(eval, subject, &bound, out);
}
