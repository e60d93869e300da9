/* Values as text: Python's str() and repr(). */
#include "text/jinja_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/unicode_case.h"

/* Python's repr of a float: the shortest digits that read back equal, with an exponent when the
 * decimal point would stand more than 16 digits to the right or 4 to the left. */
void jinja_print_float(double real, char out[32])
{
    char digits[32];
    int precision = 0;
    if (!isfinite(real)) {
        snprintf(out, 32, "%s", isnan(real) ? "nan" : real > 0 ? "inf" : "-inf");
        return;
    }
    for (; precision < 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, real);
        if (strtod(digits, NULL) == real)
            break;
    }
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16) {
        int decimals = precision > exponent ? precision - exponent : 0;
        snprintf(out, 32, "%.*f%s", decimals, real, decimals == 0 ? ".0" : "");
        return;
    }
    snprintf(out, 32, "%.*s", (int)(strchr(digits, 'e') - digits), digits);
    size_t size = strlen(out);
    snprintf(out + size, 32 - size, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
}

static void add(struct traced_builder *out, const char *text)
{
    traced_add(out, str_from(text), true);
}

static void add_integer(struct traced_builder *out, int64_t integer)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, integer);
    add(out, text);
}

/* One character of a repr, as it is or escaped. */
static void add_repr_point(struct traced_builder *out, uint32_t point, char quote,
                           bool from_template)
{
    char text[16] = { '\\', '\0' };
    if (point == (uint32_t)quote || point == '\\')
        text[1] = (char)point;
    else if (point == '\n' || point == '\r' || point == '\t')
        text[1] = point == '\n' ? 'n' : point == '\r' ? 'r' : 't';
    else if (unicode_is_printable(point)) {
        traced_add_point(out, point, from_template);
        return;
    } else if (point < 0x100)
        snprintf(text, sizeof text, "\\x%02x", (unsigned)point);
    else
        snprintf(text, sizeof text, point < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)point);
    traced_add(out, str_from(text), from_template);
}

static bool print_text_repr(struct jinja_eval *eval, struct value string,
                            struct traced_builder *out)
{
    struct str text = traced_str(string.string);
    bool single = text.size > 0 && memchr(text.data, '\'', text.size) != NULL;
    bool both = single && memchr(text.data, '"', text.size) != NULL;
    char quote[] = { single && !both ? '"' : '\'', '\0' };
    if (!jinja_work(eval, text.size * 4))
        return false;
    add(out, string.markup ? "Markup(" : "");
    add(out, quote);
    for (size_t at = 0, run_end = 0; at < text.size;) {
        bool from_template = traced_origin(string.string, at, &run_end);
        while (at < run_end)
            add_repr_point(out, jinja_next_point(text, &at), quote[0], from_template);
    }
    add(out, quote);
    add(out, string.markup ? ")" : "");
    return true;
}

static bool print_repr(struct jinja_eval *eval, struct value value, int depth,
                       struct traced_builder *out);

static bool print_list(struct jinja_eval *eval, struct value list, int depth,
                       struct traced_builder *out)
{
    bool is_tuple = list.type == VALUE_TUPLE;
    add(out, is_tuple ? "(" : "[");
    for (size_t i = 0; i < list.list->size; i++) {
        add(out, i > 0 ? ", " : "");
        if (!print_repr(eval, list.list->items[i], depth + 1, out))
            return false;
    }
    add(out, !is_tuple ? "]" : list.list->size == 1 ? ",)" : ")");
    return true;
}

static bool print_dict(struct jinja_eval *eval, const struct value_dict *dict, int depth,
                       struct traced_builder *out)
{
    add(out, "{");
    for (size_t i = 0; i < dict->size; i++) {
        add(out, i > 0 ? ", " : "");
        if (!print_repr(eval, dict->entries[i].key, depth + 1, out))
            return false;
        add(out, ": ");
        if (!print_repr(eval, dict->entries[i].value, depth + 1, out))
            return false;
    }
    add(out, "}");
    return true;
}

static bool print_view(struct jinja_eval *eval, struct value view, int depth,
                       struct traced_builder *out)
{
    static const char *const names[] = { "dict_keys(", "dict_values(", "dict_items(" };
    struct value items;
    add(out, names[view.view->view]);
    if (!jinja_collect(eval, view, VALUE_LIST, &items) || !print_list(eval, items, depth, out))
        return false;
    add(out, ")");
    return true;
}

static void print_range(const struct value_range *range, struct traced_builder *out)
{
    add(out, "range(");
    add_integer(out, range->first);
    add(out, ", ");
    add_integer(out, range->last);
    if (range->step != 1) {
        add(out, ", ");
        add_integer(out, range->step);
    }
    add(out, ")");
}

/* What has no text of its own; Python shows addresses here, so nothing can depend on it. */
static void print_object(struct value value, struct traced_builder *out)
{
    add(out, "<");
    add(out, jinja_type_name(value));
    if (value.type == VALUE_MACRO) {
        add(out, " '");
        traced_add(out, value.macro->node->name, true);
        add(out, "'");
    } else {
        add(out, " object");
    }
    add(out, ">");
}

static bool print_namespace(struct jinja_eval *eval, const struct value_namespace *space, int depth,
                            struct traced_builder *out)
{
    add(out, "<Namespace ");
    if (!print_dict(eval, space->attributes.dict, depth, out))
        return false;
    add(out, ">");
    return true;
}

static void print_number(struct value value, struct traced_builder *out)
{
    char text[32];
    if (value.type == VALUE_INTEGER) {
        add_integer(out, value.integer);
    } else {
        jinja_print_float(value.real, text);
        add(out, text);
    }
}

static bool print_repr(struct jinja_eval *eval, struct value value, int depth,
                       struct traced_builder *out)
{
    if (depth > VALUE_DEPTH_CAP)
        return jinja_raise(eval, "limit of evaluation depth: values nested deeper than %d",
                           VALUE_DEPTH_CAP);
    if (!jinja_step(eval))
        return false;
    switch (value.type) {
    case VALUE_UNDEFINED:
        add(out, "Undefined");
        return true;
    case VALUE_NONE:
        add(out, "None");
        return true;
    case VALUE_BOOL:
        add(out, value.boolean ? "True" : "False");
        return true;
    case VALUE_INTEGER:
    case VALUE_FLOAT:
        print_number(value, out);
        return true;
    case VALUE_STRING:
        return print_text_repr(eval, value, out);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return print_list(eval, value, depth, out);
    case VALUE_DICT:
        return print_dict(eval, value.dict, depth, out);
    case VALUE_DICT_VIEW:
        return print_view(eval, value, depth, out);
    case VALUE_RANGE:
        print_range(value.range, out);
        return true;
    case VALUE_NAMESPACE:
        return print_namespace(eval, value.space, depth, out);
    default:
        print_object(value, out);
        return true;
    }
}

bool jinja_check_room(struct jinja_eval *eval, const struct traced_builder *text)
{
    if (text->overflowed)
        return jinja_raise(eval, "limit of %s size: more than %zu bytes",
                           text == eval->output ? "output" : "string", text->size_cap);
    return !text->exhausted || jinja_no_memory(eval);
}

bool jinja_print_repr(struct jinja_eval *eval, struct value value, struct traced_builder *out)
{
    return print_repr(eval, value, 0, out) && jinja_check_room(eval, out);
}

bool jinja_print(struct jinja_eval *eval, struct value value, struct traced_builder *out)
{
    if (value.type == VALUE_STRING) {
        traced_add_text(out, value.string);
        return jinja_work(eval, traced_size(value.string)) && jinja_check_room(eval, out);
    }
    return value.type == VALUE_UNDEFINED || jinja_print_repr(eval, value, out);
}

bool jinja_to_text(struct jinja_eval *eval, struct value value, struct value *out)
{
    struct traced_builder text;
    if (value.type == VALUE_STRING) {
        *out = value;
        out->markup = false;
        return true;
    }
    jinja_text_begin(eval, &text);
    return jinja_print(eval, value, &text) && jinja_text_end(eval, &text, out);
}

bool jinja_soft_text(struct jinja_eval *eval, struct value value, struct value *out)
{
    if (value.type != VALUE_STRING)
        return jinja_to_text(eval, value, out);
    *out = value;
    return true;
}

bool jinja_escape(struct jinja_eval *eval, struct value value, struct value *out)
{
    struct traced_builder builder;
    if (value.type == VALUE_STRING && value.markup) {
        *out = value;
        return true;
    }
    if (!jinja_to_text(eval, value, &value))
        return false;
    struct str text = traced_str(value.string);
    jinja_text_begin(eval, &builder);
    for (size_t at = 0, end = 0, run_end = 0; at < text.size; at = end) {
        bool from_template = traced_origin(value.string, at, &run_end);
        while (end < run_end && !memchr("&<>'\"", text.data[end], 5))
            end++;
        traced_add(&builder, str_slice(text, at, end), from_template);
        if (end == run_end)
            continue;
        char c = text.data[end++];
        traced_add(&builder,
                   str_from(c == '&'   ? "&amp;"
                            : c == '<' ? "&lt;"
                            : c == '>' ? "&gt;"
                            : c == '"' ? "&#34;"
                                       : "&#39;"),
                   from_template);
    }
    if (!jinja_work(eval, text.size) || !jinja_text_end(eval, &builder, out))
        return false;
    out->markup = true;
    return true;
}
