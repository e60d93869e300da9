/* Sets of schemas. Which schemas they are is all that counts, so sets are kept in the order of
 * their addresses and compared as such. A reference to a schema that is already in the set adds
 * nothing: that is how circles of $ref and allOf end.
 *
 * Messages name where a keyword stands by its JSON pointer, found by looking for the schema's
 * address in the document: only those who made a mistake pay for it. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "sample/json_schema_internal.h"

#define POINTER_BYTES_CAP 160u

/* ---- messages ---- */

/* Appends the pointer's rest that leads from `at` to `wanted`. */
static bool find_pointer(const struct json *at, const struct json *wanted, struct buf *out)
{
    const size_t size = out->size;
    if (at == wanted)
        return true;
    if (json_kind(at) == JSON_KIND_ARRAY) {
        for (size_t i = 0; i < json_size(at); i++) {
            buf_printf(out, "/%zu", i);
            if (find_pointer(json_at(at, i), wanted, out))
                return true;
            out->size = size;
        }
    }
    for (void *it = json_first(at); it != NULL; it = json_next(at, it)) {
        buf_printf(out, "/%.*s", STR_ARG(json_member_key(it)));
        if (find_pointer(json_member_value(it), wanted, out))
            return true;
        out->size = size;
    }
    return false;
}

bool schema_fail(struct schema_compiler *compiler, const struct json *schema, const char *keyword,
                 const char *what)
{
    struct buf pointer;
    buf_init(&pointer, (size_t)1 << 20);
    buf_add_char(&pointer, '#');
    if (!find_pointer(compiler->document, schema, &pointer))
        pointer.size = 1;
    const int size = pointer.size > POINTER_BYTES_CAP ? (int)POINTER_BYTES_CAP : (int)pointer.size;
    err_set(compiler->err, ERR_UNSUPPORTED, "%s at %.*s: %s", keyword, size, pointer.data, what);
    buf_release(&pointer);
    return false;
}

/* ---- sets ---- */

void place_add(struct schema_place *place, const struct json *schema)
{
    if (json_kind(schema) == JSON_KIND_BOOL) {
        place->is_false |= !json_bool(schema, true);
        return;
    }
    for (size_t i = 0; i < place->n_parts; i++) {
        if (place->parts[i].schema != schema)
            continue;
        /* Asked for once more, its choices are open again. */
        if (place->parts[i].any_chosen || place->parts[i].one_chosen)
            place->parts[i] = (struct schema_part){ .schema = schema };
        return;
    }
    if (place->n_parts == place->room) {
        place->room = place->room ? 2 * place->room : 4;
        place->parts = xreallocarray(place->parts, place->room, sizeof *place->parts);
    }
    place->parts[place->n_parts++] = (struct schema_part){ .schema = schema };
}

void place_choose(struct schema_place *place, const struct json *branch)
{
    for (size_t i = 0; i < place->n_parts; i++) {
        if (place->parts[i].schema == branch)
            place->parts[i] = (struct schema_part){ .schema = branch };
    }
    place_add(place, branch);
}

void place_copy(struct schema_place *to, const struct schema_place *from)
{
    *to = *from;
    to->room = from->n_parts + 1;
    to->parts = xcalloc(to->room, sizeof *to->parts);
    for (size_t i = 0; i < from->n_parts; i++) // none at all in a place without schemas
        to->parts[i] = from->parts[i];
}

void place_release(struct schema_place *place)
{
    free(place->parts);
    *place = (struct schema_place){ 0 };
}

bool place_equal(const struct schema_place *a, const struct schema_place *b)
{
    if (a->n_parts != b->n_parts || a->is_false != b->is_false)
        return false;
    for (size_t i = 0; i < a->n_parts; i++) {
        if (a->parts[i].schema != b->parts[i].schema ||
            a->parts[i].any_chosen != b->parts[i].any_chosen ||
            a->parts[i].one_chosen != b->parts[i].one_chosen)
            return false;
    }
    return true;
}

static int compare_parts(const void *a, const void *b)
{
    const uintptr_t left = (uintptr_t)((const struct schema_part *)a)->schema;
    const uintptr_t right = (uintptr_t)((const struct schema_part *)b)->schema;
    return left < right ? -1 : left > right;
}

/* ---- references ---- */

static const struct json *find_anchor(const struct json *at, struct str name)
{
    if (json_kind(at) == JSON_KIND_OBJECT && str_equal(json_text(json_get(at, "$anchor")), name))
        return at;
    for (size_t i = 0; json_kind(at) == JSON_KIND_ARRAY && i < json_size(at); i++) {
        const struct json *found = find_anchor(json_at(at, i), name);
        if (found != NULL)
            return found;
    }
    for (void *it = json_first(at); it != NULL; it = json_next(at, it)) {
        const struct json *found = find_anchor(json_member_value(it), name);
        if (found != NULL)
            return found;
    }
    return NULL;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    const char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* A pointer's token without its ~0, ~1 and %XX. */
static void unescape_token(struct str token, struct buf *out)
{
    for (size_t i = 0; i < token.size; i++) {
        const char c = token.data[i];
        const bool has_two = i + 2 < token.size;
        if (c == '~' && i + 1 < token.size) {
            buf_add_char(out, token.data[++i] == '1' ? '/' : '~');
        } else if (c == '%' && has_two && hex_value(token.data[i + 1]) >= 0 &&
                   hex_value(token.data[i + 2]) >= 0) {
            buf_add_char(out,
                         (char)(hex_value(token.data[i + 1]) << 4 | hex_value(token.data[i + 2])));
            i += 2;
        } else {
            buf_add_char(out, c);
        }
    }
}

static const struct json *follow_pointer(const struct json *at, struct str pointer)
{
    struct str token, rest = str_slice(pointer, 1, pointer.size);
    while (at != NULL && str_split(&rest, '/', &token)) {
        struct buf name;
        uint64_t index;
        buf_init(&name, token.size + 1);
        buf_add(&name, "", 0);
        unescape_token(token, &name);
        if (json_kind(at) == JSON_KIND_ARRAY)
            at = str_to_u64(token, &index) ? json_at(at, (size_t)index) : NULL;
        else
            at = json_get(at, name.data ? name.data : "");
        buf_release(&name);
    }
    return at;
}

static bool add_reference(struct schema_compiler *compiler, struct schema_place *place,
                          const struct json *schema)
{
    const struct json *reference = json_get(schema, "$ref");
    const struct str text = json_text(reference);
    const struct json *target = NULL;
    if (reference == NULL)
        return true;
    if (str_is(text, "#"))
        target = compiler->document;
    else if (str_starts(text, STR("#/")))
        target = follow_pointer(compiler->document, str_slice(text, 1, text.size));
    else if (text.size > 1 && text.data[0] == '#')
        target = find_anchor(compiler->document, str_slice(text, 1, text.size));
    if (json_kind(target) != JSON_KIND_OBJECT && json_kind(target) != JSON_KIND_BOOL)
        return schema_fail(compiler, schema, "$ref",
                           text.size > 0 && text.data[0] == '#'
                               ? "there is no schema at this place"
                               : "only references within the document (\"#...\") are followed");
    place_add(place, target);
    return true;
}

static bool add_all_of(struct schema_compiler *compiler, struct schema_place *place,
                       const struct json *schema)
{
    const struct json *list = json_get(schema, "allOf");
    if (list != NULL && (json_kind(list) != JSON_KIND_ARRAY || json_size(list) == 0))
        return schema_fail(compiler, schema, "allOf", "it must be a list of schemas");
    for (size_t i = 0; i < json_size(list); i++) {
        const struct json *branch = json_at(list, i);
        if (json_kind(branch) != JSON_KIND_OBJECT && json_kind(branch) != JSON_KIND_BOOL)
            return schema_fail(compiler, schema, "allOf", "it must be a list of schemas");
        place_add(place, branch);
    }
    return true;
}

/* ---- keywords ---- */

static const char *const keywords[] = {
    "$ref",
    "$defs",
    "definitions",
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "anyOf",
    "oneOf",
    "allOf",
    /* annotations */
    "title",
    "description",
    "default",
    "examples",
    "example",
    "$schema",
    "$id",
    "$comment",
    "$anchor",
    "deprecated",
    "readOnly",
    "writeOnly",
};

/* Keywords that are harmless with one value. */
static bool is_harmless(struct str name, const struct json *value)
{
    if (str_is(name, "uniqueItems"))
        return json_kind(value) == JSON_KIND_BOOL && !json_bool(value, true);
    if (str_is(name, "unevaluatedProperties") || str_is(name, "unevaluatedItems"))
        return json_kind(value) == JSON_KIND_BOOL;
    if (str_is(name, "multipleOf"))
        return false;
    return str_starts(name, STR("x-"));
}

static bool check_keywords(struct schema_compiler *compiler, const struct json *schema)
{
    for (void *it = json_first(schema); it != NULL; it = json_next(schema, it)) {
        const struct str name = json_member_key(it);
        bool is_known = false;
        for (size_t i = 0; i < sizeof keywords / sizeof keywords[0] && !is_known; i++)
            is_known = str_is(name, keywords[i]);
        if (is_known || is_harmless(name, json_member_value(it)))
            continue;
        char copy[64];
        const size_t size = name.size < sizeof copy - 1 ? name.size : sizeof copy - 1;
        memcpy(copy, name.data, size);
        copy[size] = '\0';
        return schema_fail(compiler, schema, copy, "this keyword is not supported");
    }
    return true;
}

bool place_expand(struct schema_compiler *compiler, struct schema_place *place)
{
    for (size_t i = 0; i < place->n_parts;) { // grows as it goes
        const struct json *schema = place->parts[i].schema;
        if (place->parts[i].is_expanded) {
            i++;
            continue;
        }
        place->parts[i].is_expanded = true;
        if (place->n_parts > JSON_SCHEMA_PARTS_CAP)
            return schema_fail(compiler, schema, "allOf", "too many schemas hold at one place");
        if (!check_keywords(compiler, schema) || !add_reference(compiler, place, schema) ||
            !add_all_of(compiler, place, schema))
            return false;
        i = 0; // parts before may have been opened again
    }
    if (place->n_parts > 1)
        qsort(place->parts, place->n_parts, sizeof *place->parts, compare_parts);
    return true;
}

bool schema_count(struct schema_compiler *compiler, const struct json *schema, const char *keyword,
                  uint32_t *out)
{
    const struct json *value = json_get(schema, keyword);
    const int64_t number = json_int(value, -1);
    if (value == NULL)
        return true;
    if (number < 0 || number > JSON_SCHEMA_COUNT_CAP)
        return schema_fail(compiler, schema, keyword, "it must be a whole number, at most 1000000");
    *out = (uint32_t)number;
    return true;
}

/* ---- types and values ---- */

unsigned value_types(const struct json *value)
{
    switch (json_kind(value)) {
    case JSON_KIND_NULL:
        return SCHEMA_NULL;
    case JSON_KIND_BOOL:
        return SCHEMA_BOOLEAN;
    case JSON_KIND_INTEGER:
        return SCHEMA_INTEGER;
    case JSON_KIND_REAL: {
        const double number = json_number(value, 0);
        return number == floor(number) ? SCHEMA_INTEGER : SCHEMA_NUMBER;
    }
    case JSON_KIND_STRING:
        return SCHEMA_STRING;
    case JSON_KIND_ARRAY:
        return SCHEMA_ARRAY;
    case JSON_KIND_OBJECT:
        return SCHEMA_OBJECT;
    case JSON_KIND_MISSING:
        break;
    }
    return 0;
}

static unsigned type_named(struct str name)
{
    static const struct {
        const char *name;
        unsigned types;
    } types[] = { { "null", SCHEMA_NULL },       { "boolean", SCHEMA_BOOLEAN },
                  { "integer", SCHEMA_INTEGER }, { "number", SCHEMA_INTEGER | SCHEMA_NUMBER },
                  { "string", SCHEMA_STRING },   { "array", SCHEMA_ARRAY },
                  { "object", SCHEMA_OBJECT } };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (str_is(name, types[i].name))
            return types[i].types;
    }
    return 0;
}

static bool read_types(struct schema_compiler *compiler, const struct json *schema, unsigned *out)
{
    const struct json *type = json_get(schema, "type");
    unsigned types = type_named(json_text(type));
    bool good = types != 0;
    if (json_kind(type) == JSON_KIND_ARRAY) {
        good = json_size(type) > 0;
        for (size_t i = 0; i < json_size(type) && good; i++) {
            const unsigned one = type_named(json_text(json_at(type, i)));
            types |= one;
            good = one != 0;
        }
    }
    *out = types;
    return good || schema_fail(compiler, schema, "type", "it names no type of JSON");
}

/* The types that a schema's keywords are about. */
static unsigned implied_types(const struct json *schema)
{
    static const struct {
        const char *keyword;
        unsigned types;
    } about[] = { { "properties", SCHEMA_OBJECT },
                  { "required", SCHEMA_OBJECT },
                  { "additionalProperties", SCHEMA_OBJECT },
                  { "minProperties", SCHEMA_OBJECT },
                  { "maxProperties", SCHEMA_OBJECT },
                  { "propertyNames", SCHEMA_OBJECT },
                  { "items", SCHEMA_ARRAY },
                  { "prefixItems", SCHEMA_ARRAY },
                  { "minItems", SCHEMA_ARRAY },
                  { "maxItems", SCHEMA_ARRAY },
                  { "minLength", SCHEMA_STRING },
                  { "maxLength", SCHEMA_STRING },
                  { "pattern", SCHEMA_STRING },
                  { "format", SCHEMA_STRING },
                  { "minimum", SCHEMA_INTEGER | SCHEMA_NUMBER },
                  { "maximum", SCHEMA_INTEGER | SCHEMA_NUMBER },
                  { "exclusiveMinimum", SCHEMA_INTEGER | SCHEMA_NUMBER },
                  { "exclusiveMaximum", SCHEMA_INTEGER | SCHEMA_NUMBER } };
    unsigned types = 0;
    for (size_t i = 0; i < sizeof about / sizeof about[0]; i++) {
        if (json_get(schema, about[i].keyword) != NULL)
            types |= about[i].types;
    }
    return types;
}

bool place_types(struct schema_compiler *compiler, const struct schema_place *place, unsigned *out)
{
    unsigned types = SCHEMA_ALL, implied = 0;
    bool is_named = false;
    for (size_t i = 0; i < place->n_parts; i++) {
        const struct json *schema = place->parts[i].schema;
        unsigned named;
        implied |= implied_types(schema);
        is_named |= json_get(schema, "enum") != NULL || json_get(schema, "const") != NULL;
        if (json_get(schema, "type") == NULL)
            continue;
        if (!read_types(compiler, schema, &named))
            return false;
        types &= named;
        is_named = true;
    }
    *out = is_named || implied == 0 ? types : types & implied;
    return true;
}

bool values_equal(const struct json *a, const struct json *b)
{
    struct buf left, right;
    if (value_types(a) != value_types(b))
        return false;
    if (value_types(a) & (SCHEMA_INTEGER | SCHEMA_NUMBER))
        return json_number(a, 0) == json_number(b, 0);
    if (json_size(a) != json_size(b))
        return false;
    if (json_kind(a) == JSON_KIND_OBJECT) {
        for (void *it = json_first(a); it != NULL; it = json_next(a, it)) {
            char *name = xstrndup(json_member_key(it).data, json_member_key(it).size);
            const struct json *other = json_get(b, name);
            free(name);
            if (other == NULL || !values_equal(json_member_value(it), other))
                return false;
        }
        return true;
    }
    for (size_t i = 0; json_kind(a) == JSON_KIND_ARRAY && i < json_size(a); i++) {
        if (!values_equal(json_at(a, i), json_at(b, i)))
            return false;
    }
    if (json_kind(a) == JSON_KIND_ARRAY)
        return true;
    buf_init(&left, (size_t)1 << 24);
    buf_init(&right, (size_t)1 << 24);
    json_write_value(&left, a);
    json_write_value(&right, b);
    const bool equal = str_equal(buf_view(&left), buf_view(&right));
    buf_release(&left);
    buf_release(&right);
    return equal;
}

static bool lists_value(const struct json *schema, const struct json *value)
{
    const struct json *list = json_get(schema, "enum"), *one = json_get(schema, "const");
    bool is_listed = list == NULL;
    for (size_t i = 0; i < json_size(list) && !is_listed; i++)
        is_listed = values_equal(json_at(list, i), value);
    return is_listed && (one == NULL || values_equal(one, value));
}

bool place_values(const struct schema_place *place, const struct json ***values, size_t *n)
{
    const struct json *source = NULL;
    bool is_const = false;
    for (size_t i = 0; i < place->n_parts && !is_const; i++) {
        const struct json *one = json_get(place->parts[i].schema, "const");
        const struct json *list = json_get(place->parts[i].schema, "enum");
        is_const = one != NULL;
        if (one != NULL)
            source = one;
        else if (list != NULL && source == NULL)
            source = list;
    }
    if (source == NULL)
        return false;
    const size_t room = is_const ? 1 : json_size(source);
    *values = xcalloc(room + 1, sizeof **values);
    *n = 0;
    for (size_t i = 0; i < room; i++) {
        const struct json *value = is_const ? source : json_at(source, i);
        bool is_good = true;
        for (size_t p = 0; p < place->n_parts && is_good; p++)
            is_good = lists_value(place->parts[p].schema, value);
        if (is_good)
            (*values)[(*n)++] = value;
    }
    return true;
}
