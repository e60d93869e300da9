/* Python's json.dumps: the text that models saw in training, so separators, escapes, the order of
 * keys and the shape of numbers are Python's, not those of any C library. */
#include "text/jinja_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct writer {
    struct jinja_eval *eval;
    const struct jinja_json_style *style;
    struct traced_builder out;
};

static bool write_value(struct writer *writer, struct value value, int depth);

static void add(struct writer *writer, struct str text)
{
    traced_add(&writer->out, text, true);
}

/* Bytes of text that need no escape, from `at`. */
static size_t plain_size(struct str text, size_t at, size_t end, bool ascii)
{
    size_t size = 0;
    for (; at + size < end; size++) {
        unsigned char c = (unsigned char)text.data[at + size];
        if (c < 0x20 || c == '"' || c == '\\' || (ascii && c >= 0x7f))
            break;
    }
    return size;
}

static void add_escape(struct writer *writer, uint32_t point, bool from_template)
{
    static const char letters[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    char text[16];
    const char *found = point > 0 && point < 0x80 ? strchr(letters, (int)point) : NULL;
    if (found)
        snprintf(text, sizeof text, "\\%c", names[found - letters]);
    else if (point < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", (unsigned)point);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x",
                 (unsigned)(0xd800 + ((point - 0x10000) >> 10)),
                 (unsigned)(0xdc00 + ((point - 0x10000) & 0x3ff)));
    traced_add(&writer->out, str_from(text), from_template);
}

static bool write_string(struct writer *writer, struct traced string)
{
    struct str text = traced_str(string);
    add(writer, STR("\""));
    for (size_t at = 0, end = 0; at < text.size; at = end) {
        bool from_template = traced_origin(string, at, &end);
        while (at < end) {
            size_t size = plain_size(text, at, end, writer->style->ascii);
            traced_add(&writer->out, (struct str){ text.data + at, size }, from_template);
            at += size;
            if (at < end)
                add_escape(writer, jinja_next_point(text, &at), from_template);
        }
    }
    add(writer, STR("\""));
    return jinja_work(writer->eval, text.size);
}

static void write_float(struct writer *writer, double real)
{
    char text[32];
    jinja_print_float(real, text);
    const char *word = text[0] == 'n'   ? "NaN"
                       : text[0] == 'i' ? "Infinity"
                       : text[1] == 'i' ? "-Infinity"
                                        : text;
    add(writer, str_from(word));
}

static void write_integer(struct writer *writer, int64_t integer)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, integer);
    add(writer, str_from(text));
}

static void write_newline(struct writer *writer, int depth)
{
    if (!writer->style->has_indent)
        return;
    add(writer, STR("\n"));
    for (int i = 0; i < depth; i++)
        add(writer, writer->style->indent);
}

static bool write_list(struct writer *writer, const struct value_list *list, int depth)
{
    if (list->size == 0) {
        add(writer, STR("[]"));
        return true;
    }
    add(writer, STR("["));
    for (size_t i = 0; i < list->size; i++) {
        if (i > 0)
            add(writer, writer->style->item_separator);
        write_newline(writer, depth + 1);
        if (!write_value(writer, list->items[i], depth + 1))
            return false;
    }
    write_newline(writer, depth);
    add(writer, STR("]"));
    return true;
}

/* Keys that are not strings become the text of their JSON. */
static bool write_key(struct writer *writer, struct value key)
{
    switch (key.type) {
    case VALUE_STRING:
        return write_string(writer, key.string);
    case VALUE_NONE:
    case VALUE_BOOL:
    case VALUE_INTEGER:
    case VALUE_FLOAT:
        add(writer, STR("\""));
        if (!write_value(writer, key, 0))
            return false;
        add(writer, STR("\""));
        return true;
    default:
        return jinja_raise(writer->eval, "keys must be str, int, float, bool or None, not %s",
                           jinja_type_name(key));
    }
}

static bool sort_entries(struct writer *writer, const struct value_dict *dict,
                         struct value_entry **sorted)
{
    struct arena *arena = &writer->eval->arena;
    struct value *keys = arena_array(arena, dict->size, sizeof *keys);
    *sorted = arena_array(arena, dict->size, sizeof **sorted);
    if (!keys || !*sorted)
        return jinja_no_memory(writer->eval);
    for (size_t i = 0; i < dict->size; i++)
        keys[i] = dict->entries[i].key;
    size_t *order;
    if (!jinja_sort(writer->eval, keys, dict->size, false, &order))
        return false;
    for (size_t i = 0; i < dict->size; i++)
        (*sorted)[i] = dict->entries[order[i]];
    return true;
}

static bool write_dict(struct writer *writer, const struct value_dict *dict, int depth)
{
    const struct value_entry *entries = dict->entries;
    if (dict->size == 0) {
        add(writer, STR("{}"));
        return true;
    }
    struct value_entry *sorted;
    if (writer->style->sort_keys) {
        if (!sort_entries(writer, dict, &sorted))
            return false;
        entries = sorted;
    }
    add(writer, STR("{"));
    for (size_t i = 0; i < dict->size; i++) {
        if (i > 0)
            add(writer, writer->style->item_separator);
        write_newline(writer, depth + 1);
        if (!write_key(writer, entries[i].key))
            return false;
        add(writer, writer->style->key_separator);
        if (!write_value(writer, entries[i].value, depth + 1))
            return false;
    }
    write_newline(writer, depth);
    add(writer, STR("}"));
    return true;
}

static bool write_value(struct writer *writer, struct value value, int depth)
{
    if (depth > VALUE_DEPTH_CAP)
        return jinja_raise(writer->eval, "limit of evaluation depth: values nested deeper than %d",
                           VALUE_DEPTH_CAP);
    if (writer->out.overflowed || writer->out.exhausted)
        return jinja_text_end(writer->eval, &writer->out, &value);
    if (!jinja_step(writer->eval))
        return false;
    switch (value.type) {
    case VALUE_NONE:
        add(writer, STR("null"));
        return true;
    case VALUE_BOOL:
        add(writer, value.boolean ? STR("true") : STR("false"));
        return true;
    case VALUE_INTEGER:
        write_integer(writer, value.integer);
        return true;
    case VALUE_FLOAT:
        write_float(writer, value.real);
        return true;
    case VALUE_STRING:
        return write_string(writer, value.string);
    case VALUE_LIST:
    case VALUE_TUPLE:
        return write_list(writer, value.list, depth);
    case VALUE_DICT:
        return write_dict(writer, value.dict, depth);
    default:
        return jinja_raise(writer->eval, "Object of type %s is not JSON serializable",
                           jinja_type_name(value));
    }
}

bool jinja_json(struct jinja_eval *eval, struct value value, const struct jinja_json_style *style,
                struct value *out)
{
    struct writer writer = { .eval = eval, .style = style };
    jinja_text_begin(eval, &writer.out);
    return write_value(&writer, value, 0) && jinja_text_end(eval, &writer.out, out);
}
