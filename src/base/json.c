/* JSON on jansson. What this adds: duplicate keys are errors, numbers print in the shortest form
 * that reads back equal, and strings that are not UTF-8 are mended instead of refused when written
 * (they come from a model). Depth is limited by jansson itself (2048). */
#include "base/json.h"

#include "base/file.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const json_t *jansson(const struct json *value)
{
    return (const json_t *)(const void *)value;
}

static const struct json *ours(const json_t *value)
{
    return (const struct json *)(const void *)value;
}

struct json *json_parse(struct str text, struct err *err)
{
    json_error_t error;
    size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_t *document = json_loadb(text.data ? text.data : "", text.size, flags, &error);
    /* Integers past int64 are legal JSON and real files hold them (tokenizer_config.json says
     * model_max_length 1e30, digit by digit): such a document has all its numbers as reals. */
    if (!document && json_error_code(&error) == json_error_numeric_overflow)
        document = json_loadb(text.data ? text.data : "", text.size,
                              flags | JSON_DECODE_INT_AS_REAL, &error);
    if (!document) {
        err_set(err, ERR_FORMAT, "not valid JSON: %s (line %d, column %d)", error.text, error.line,
                error.column);
        return NULL;
    }
    return (struct json *)(void *)document;
}

struct json *json_parse_file(const char *path, size_t size_cap, struct err *err)
{
    struct buf text;
    struct json *document = NULL;
    buf_init(&text, size_cap);
    if (file_read(path, &text, err)) {
        document = json_parse(buf_view(&text), err);
        if (!document)
            err_wrap(err, "%s", path);
    }
    buf_release(&text);
    return document;
}

void json_free(struct json *document)
{
    json_decref((json_t *)(void *)document);
}

enum json_kind json_kind(const struct json *value)
{
    static const enum json_kind kinds[] = {
        [JSON_OBJECT] = JSON_KIND_OBJECT, [JSON_ARRAY] = JSON_KIND_ARRAY,
        [JSON_STRING] = JSON_KIND_STRING, [JSON_INTEGER] = JSON_KIND_INTEGER,
        [JSON_REAL] = JSON_KIND_REAL,     [JSON_TRUE] = JSON_KIND_BOOL,
        [JSON_FALSE] = JSON_KIND_BOOL,    [JSON_NULL] = JSON_KIND_NULL,
    };
    return value ? kinds[json_typeof(jansson(value))] : JSON_KIND_MISSING;
}

const char *json_kind_name(enum json_kind kind)
{
    static const char *const names[] = {
        [JSON_KIND_MISSING] = "missing", [JSON_KIND_NULL] = "null",
        [JSON_KIND_BOOL] = "boolean",    [JSON_KIND_INTEGER] = "integer",
        [JSON_KIND_REAL] = "number",     [JSON_KIND_STRING] = "string",
        [JSON_KIND_ARRAY] = "array",     [JSON_KIND_OBJECT] = "object",
    };
    return names[kind];
}

const struct json *json_get(const struct json *object, const char *key)
{
    return ours(json_object_get(jansson(object), key));
}

const struct json *json_at(const struct json *array, size_t index)
{
    return ours(json_array_get(jansson(array), index));
}

size_t json_size(const struct json *value)
{
    switch (json_kind(value)) {
    case JSON_KIND_ARRAY:
        return json_array_size(jansson(value));
    case JSON_KIND_OBJECT:
        return json_object_size(jansson(value));
    default:
        return 0;
    }
}

/* jansson's iterators take a non-const object and do not change it. */
static json_t *iterable(const struct json *object)
{
    return json_kind(object) == JSON_KIND_OBJECT ? (json_t *)(uintptr_t)object : NULL;
}

void *json_first(const struct json *object)
{
    return json_object_iter(iterable(object));
}

void *json_next(const struct json *object, void *member)
{
    return json_object_iter_next(iterable(object), member);
}

struct str json_member_key(void *member)
{
    return (struct str){ .data = json_object_iter_key(member),
                         .size = json_object_iter_key_len(member) };
}

const struct json *json_member_value(void *member)
{
    return ours(json_object_iter_value(member));
}

bool json_read_bool(const struct json *value, bool *out)
{
    if (json_kind(value) != JSON_KIND_BOOL)
        return false;
    *out = json_is_true(jansson(value));
    return true;
}

/* An integer, or a real without a fraction (some writers print 1e4 or 64.0). */
static bool read_int(const struct json *value, int64_t *out)
{
    if (json_kind(value) == JSON_KIND_INTEGER) {
        *out = json_integer_value(jansson(value));
        return true;
    }
    if (json_kind(value) != JSON_KIND_REAL)
        return false;
    double real = json_real_value(jansson(value));
    if (!(fabs(real) < 9.0e15) || floor(real) != real)
        return false;
    *out = (int64_t)real;
    return true;
}

bool json_read_u64(const struct json *value, uint64_t *out)
{
    int64_t number;
    if (!read_int(value, &number) || number < 0)
        return false;
    *out = (uint64_t)number;
    return true;
}

bool json_read_u32(const struct json *value, uint32_t *out)
{
    uint64_t number;
    if (!json_read_u64(value, &number) || number > UINT32_MAX)
        return false;
    *out = (uint32_t)number;
    return true;
}

bool json_read_double(const struct json *value, double *out)
{
    if (json_kind(value) != JSON_KIND_INTEGER && json_kind(value) != JSON_KIND_REAL)
        return false;
    *out = json_number_value(jansson(value));
    return true;
}

bool json_read_string(const struct json *value, struct str *out)
{
    if (json_kind(value) != JSON_KIND_STRING)
        return false;
    *out = (struct str){ .data = json_string_value(jansson(value)),
                         .size = json_string_length(jansson(value)) };
    return true;
}

bool json_bool(const struct json *value, bool otherwise)
{
    json_read_bool(value, &otherwise);
    return otherwise;
}

int64_t json_int(const struct json *value, int64_t otherwise)
{
    read_int(value, &otherwise);
    return otherwise;
}

double json_number(const struct json *value, double otherwise)
{
    json_read_double(value, &otherwise);
    return otherwise;
}

struct str json_text(const struct json *value)
{
    struct str text = STR_NONE;
    json_read_string(value, &text);
    return text;
}

static void write_escaped(struct buf *out, unsigned char c)
{
    static const char shorts[] = { ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                   ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\' };
    if (c < sizeof shorts && shorts[c])
        buf_printf(out, "\\%c", shorts[c]);
    else
        buf_printf(out, "\\u%04x", c);
}

void json_write_string(struct buf *out, struct str text)
{
    buf_add_char(out, '"');
    for (size_t at = 0; at < text.size;) {
        unsigned char c = (unsigned char)text.data[at];
        uint32_t code_point;
        size_t used = utf8_decode(str_slice(text, at, text.size), &code_point);
        if (used == 0)
            buf_add_text(out, "\xEF\xBF\xBD");
        else if (c < 0x20 || c == '"' || c == '\\' || c == 0x7F)
            write_escaped(out, c);
        else
            buf_add(out, text.data + at, used);
        at += used ? used : 1;
    }
    buf_add_char(out, '"');
}

void json_write_key(struct buf *out, const char *key)
{
    json_write_string(out, str_from(key));
    buf_add_char(out, ':');
}

void json_write_double(struct buf *out, double value)
{
    char text[40];
    if (!isfinite(value)) {
        buf_add_text(out, "null");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    buf_add_text(out, text);
}

static void write_array(struct buf *out, const struct json *array)
{
    buf_add_char(out, '[');
    for (size_t i = 0; i < json_size(array); i++) {
        if (i)
            buf_add_char(out, ',');
        json_write_value(out, json_at(array, i));
    }
    buf_add_char(out, ']');
}

static void write_object(struct buf *out, const struct json *object)
{
    buf_add_char(out, '{');
    for (void *member = json_first(object); member; member = json_next(object, member)) {
        if (member != json_first(object))
            buf_add_char(out, ',');
        json_write_string(out, json_member_key(member));
        buf_add_char(out, ':');
        json_write_value(out, json_member_value(member));
    }
    buf_add_char(out, '}');
}

void json_write_value(struct buf *out, const struct json *value)
{
    switch (json_kind(value)) {
    case JSON_KIND_MISSING:
    case JSON_KIND_NULL:
        buf_add_text(out, "null");
        break;
    case JSON_KIND_BOOL:
        buf_add_text(out, json_bool(value, false) ? "true" : "false");
        break;
    case JSON_KIND_INTEGER:
        buf_printf(out, "%lld", (long long)json_int(value, 0));
        break;
    case JSON_KIND_REAL:
        json_write_double(out, json_number(value, 0));
        break;
    case JSON_KIND_STRING:
        json_write_string(out, json_text(value));
        break;
    case JSON_KIND_ARRAY:
        write_array(out, value);
        break;
    case JSON_KIND_OBJECT:
        write_object(out, value);
        break;
    }
}
