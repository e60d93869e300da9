/* Values: plain data, with Python's ideas of equality and of dictionary keys.
 *
 * Dictionaries are arrays in order of insertion; beyond a few entries an index of open addressing
 * stands beside the array. Most dictionaries of a request have under eight keys, where a scan that
 * compares hashes first is as fast and allocates nothing. */
#include "text/value.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"

#define DICT_SCAN_CAP 8

struct value value_none(void)
{
    return (struct value){ .type = VALUE_NONE };
}

struct value value_bool(bool boolean)
{
    return (struct value){ .type = VALUE_BOOL, .boolean = boolean };
}

struct value value_integer(int64_t integer)
{
    return (struct value){ .type = VALUE_INTEGER, .integer = integer };
}

struct value value_float(double real)
{
    return (struct value){ .type = VALUE_FLOAT, .real = real };
}

struct value value_text(struct traced text)
{
    return (struct value){ .type = VALUE_STRING, .string = text };
}

bool value_view(struct arena *arena, struct str bytes, bool from_template, struct value *out)
{
    struct traced text;
    if (!traced_view(arena, bytes, from_template, &text))
        return false;
    *out = value_text(text);
    return true;
}

bool value_string(struct arena *arena, struct str bytes, bool from_template, struct value *out)
{
    struct str copy = STR_NONE;
    if (bytes.size > 0) {
        copy = arena_str(arena, bytes);
        if (!copy.data)
            return false;
    }
    return value_view(arena, copy, from_template, out);
}

bool value_list_new(struct arena *arena, enum value_type type, struct value *out)
{
    struct value_list *list = arena_alloc(arena, sizeof *list);
    if (!list)
        return false;
    *out = (struct value){ .type = type, .list = list };
    return true;
}

bool value_list_add(struct arena *arena, struct value *value, struct value item)
{
    struct value_list *list = value->list;
    if (list->size == list->room) {
        size_t room = list->room ? list->room * 2 : 4;
        struct value *items = arena_array(arena, room, sizeof *items);
        if (!items)
            return false;
        if (list->size > 0)
            memcpy(items, list->items, list->size * sizeof *items);
        list->items = items;
        list->room = room;
    }
    list->items[list->size++] = item;
    return true;
}

bool value_dict_new(struct arena *arena, struct value *out)
{
    struct value_dict *dict = arena_alloc(arena, sizeof *dict);
    if (!dict)
        return false;
    *out = (struct value){ .type = VALUE_DICT, .dict = dict };
    return true;
}

static uint64_t hash_integer(int64_t integer)
{
    uint64_t mixed = (uint64_t)integer * 0x9e3779b97f4a7c15u;
    return mixed ^ mixed >> 32;
}

/* Whether a double is a whole number of int64; numbers that are equal must hash equally. */
static bool double_is_integer(double real, int64_t *out)
{
    if (!(real >= -9223372036854775808.0 && real < 9223372036854775808.0) || real != floor(real))
        return false;
    *out = (int64_t)real;
    return true;
}

static uint64_t hash_key(struct value key)
{
    int64_t integer;
    uint64_t bits;
    switch (key.type) {
    case VALUE_BOOL:
        return hash_integer(key.boolean);
    case VALUE_INTEGER:
        return hash_integer(key.integer);
    case VALUE_FLOAT:
        if (double_is_integer(key.real, &integer))
            return hash_integer(integer);
        memcpy(&bits, &key.real, sizeof bits);
        return bits;
    case VALUE_STRING:
        return hash_xxh3(traced_str(key.string).data, traced_size(key.string));
    case VALUE_TUPLE:
        bits = key.list->size;
        for (size_t i = 0; i < key.list->size; i++)
            bits = bits * 31 + hash_key(key.list->items[i]);
        return bits;
    default:
        return (uint64_t)key.type;
    }
}

static struct value_entry *dict_entry(const struct value_dict *dict, struct value key,
                                      uint64_t hash)
{
    if (!dict->index) {
        for (size_t i = 0; i < dict->size; i++)
            if (dict->entries[i].hash == hash && value_equal(dict->entries[i].key, key))
                return &dict->entries[i];
        return NULL;
    }
    size_t mask = dict->index_room - 1;
    for (size_t slot = (size_t)hash & mask; dict->index[slot] != 0; slot = (slot + 1) & mask) {
        struct value_entry *entry = &dict->entries[dict->index[slot] - 1];
        if (entry->hash == hash && value_equal(entry->key, key))
            return entry;
    }
    return NULL;
}

static void index_add(struct value_dict *dict, size_t number)
{
    size_t mask = dict->index_room - 1;
    size_t slot = (size_t)dict->entries[number].hash & mask;
    while (dict->index[slot] != 0)
        slot = (slot + 1) & mask;
    dict->index[slot] = (uint32_t)number + 1;
}

/* Room for one more entry; the index is kept at most half full. */
static bool dict_grow(struct arena *arena, struct value_dict *dict)
{
    if (dict->size < dict->room)
        return true;
    size_t room = dict->room ? dict->room * 2 : 4;
    struct value_entry *entries = arena_array(arena, room, sizeof *entries);
    if (!entries || room > UINT32_MAX / 4)
        return false;
    if (dict->size > 0)
        memcpy(entries, dict->entries, dict->size * sizeof *entries);
    if (room > DICT_SCAN_CAP) {
        uint32_t *index = arena_array(arena, room * 2, sizeof *index);
        if (!index)
            return false;
        dict->index = index;
        dict->index_room = room * 2;
    }
    dict->entries = entries;
    dict->room = room;
    for (size_t i = 0; dict->index && i < dict->size; i++)
        index_add(dict, i);
    return true;
}

bool value_dict_set(struct arena *arena, struct value *value, struct value key, struct value item)
{
    struct value_dict *dict = value->dict;
    uint64_t hash = hash_key(key);
    struct value_entry *entry = dict_entry(dict, key, hash);
    if (entry) {
        entry->value = item;
        return true;
    }
    if (!dict_grow(arena, dict))
        return false;
    dict->entries[dict->size] = (struct value_entry){ key, item, hash };
    if (dict->index)
        index_add(dict, dict->size);
    dict->size++;
    return true;
}

bool value_dict_put(struct arena *arena, struct value *dict, const char *key, struct value item)
{
    struct value name;
    return value_view(arena, str_from(key), true, &name) && value_dict_set(arena, dict, name, item);
}

const struct value *value_dict_find(const struct value *dict, struct value key)
{
    if (dict->type != VALUE_DICT || !value_hashable(key))
        return NULL;
    const struct value_entry *entry = dict_entry(dict->dict, key, hash_key(key));
    return entry ? &entry->value : NULL;
}

const struct value *value_dict_get(const struct value *dict, struct str key)
{
    /* A window on the caller's bytes, only for the comparison. */
    union {
        const char *view;
        char *bytes;
    } borrowed = { .view = key.data };
    struct traced_run run = { key.size, true };
    struct traced_store store = {
        .bytes = borrowed.bytes, .used = key.size, .runs = &run, .n_runs = 1
    };
    return value_dict_find(dict, value_text((struct traced){ &store, 0, key.size }));
}

static bool hashable(struct value value, int depth)
{
    switch (value.type) {
    case VALUE_LIST:
    case VALUE_DICT:
    case VALUE_SLICE:
    case VALUE_DICT_VIEW:
        return false;
    case VALUE_TUPLE:
        if (depth >= VALUE_DEPTH_CAP)
            return false;
        for (size_t i = 0; i < value.list->size; i++)
            if (!hashable(value.list->items[i], depth + 1))
                return false;
        return true;
    default:
        return true;
    }
}

bool value_hashable(struct value value)
{
    return hashable(value, 0);
}

static bool equal_integer_float(int64_t integer, double real)
{
    int64_t whole;
    return double_is_integer(real, &whole) && whole == integer;
}

static bool equal_numbers(struct value a, struct value b)
{
    if (a.type == VALUE_FLOAT && b.type == VALUE_FLOAT)
        return a.real == b.real;
    if (a.type == VALUE_FLOAT)
        return equal_integer_float(b.type == VALUE_BOOL ? b.boolean : b.integer, a.real);
    if (b.type == VALUE_FLOAT)
        return equal_integer_float(a.type == VALUE_BOOL ? a.boolean : a.integer, b.real);
    return (a.type == VALUE_BOOL ? a.boolean : a.integer) ==
           (b.type == VALUE_BOOL ? b.boolean : b.integer);
}

static bool equal(struct value a, struct value b, int depth);

static bool equal_lists(const struct value_list *a, const struct value_list *b, int depth)
{
    if (a->size != b->size)
        return false;
    for (size_t i = 0; i < a->size; i++)
        if (!equal(a->items[i], b->items[i], depth + 1))
            return false;
    return true;
}

static bool equal_dicts(const struct value_dict *a, const struct value_dict *b, int depth)
{
    if (a->size != b->size)
        return false;
    for (size_t i = 0; i < a->size; i++) {
        const struct value_entry *other = dict_entry(b, a->entries[i].key, a->entries[i].hash);
        if (!other || !equal(a->entries[i].value, other->value, depth + 1))
            return false;
    }
    return true;
}

static bool is_number(struct value value)
{
    return value.type == VALUE_BOOL || value.type == VALUE_INTEGER || value.type == VALUE_FLOAT;
}

static bool equal(struct value a, struct value b, int depth)
{
    if (depth > VALUE_DEPTH_CAP)
        return false;
    if (is_number(a) && is_number(b))
        return equal_numbers(a, b);
    if (a.type != b.type)
        return false;
    switch (a.type) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return true;
    case VALUE_STRING:
        return str_equal(traced_str(a.string), traced_str(b.string));
    case VALUE_LIST:
    case VALUE_TUPLE:
        return a.list == b.list || equal_lists(a.list, b.list, depth);
    case VALUE_DICT:
        return a.dict == b.dict || equal_dicts(a.dict, b.dict, depth);
    default:
        return a.range == b.range; // the rest are what they are: the same object or not
    }
}

bool value_equal(struct value a, struct value b)
{
    return equal(a, b, 0);
}

static bool no_memory(const struct arena *arena, struct err *err)
{
    return err_set(err, ERR_NO_MEMORY, "the values need more than %zu bytes",
                   arena->used_bytes_cap);
}

static bool from_json(struct arena *arena, const struct json *json, bool from_template, int depth,
                      struct value *out, struct err *err);

static bool list_from_json(struct arena *arena, const struct json *json, bool from_template,
                           int depth, struct value *out, struct err *err)
{
    if (!value_list_new(arena, VALUE_LIST, out))
        return no_memory(arena, err);
    for (size_t i = 0; i < json_size(json); i++) {
        struct value item;
        if (!from_json(arena, json_at(json, i), from_template, depth + 1, &item, err))
            return false;
        if (!value_list_add(arena, out, item))
            return no_memory(arena, err);
    }
    return true;
}

static bool dict_from_json(struct arena *arena, const struct json *json, bool from_template,
                           int depth, struct value *out, struct err *err)
{
    if (!value_dict_new(arena, out))
        return no_memory(arena, err);
    for (void *at = json_first(json); at; at = json_next(json, at)) {
        struct value key, item;
        if (!value_string(arena, json_member_key(at), from_template, &key))
            return no_memory(arena, err);
        if (!from_json(arena, json_member_value(at), from_template, depth + 1, &item, err))
            return false;
        if (!value_dict_set(arena, out, key, item))
            return no_memory(arena, err);
    }
    return true;
}

static bool from_json(struct arena *arena, const struct json *json, bool from_template, int depth,
                      struct value *out, struct err *err)
{
    if (depth > VALUE_DEPTH_CAP)
        return err_set(err, ERR_ARGUMENT, "values are nested deeper than %d", VALUE_DEPTH_CAP);
    switch (json_kind(json)) {
    case JSON_KIND_BOOL:
        *out = value_bool(json_bool(json, false));
        return true;
    case JSON_KIND_INTEGER:
        *out = value_integer(json_int(json, 0));
        return true;
    case JSON_KIND_REAL:
        *out = value_float(json_number(json, 0));
        return true;
    case JSON_KIND_STRING:
        return value_string(arena, json_text(json), from_template, out) || no_memory(arena, err);
    case JSON_KIND_ARRAY:
        return list_from_json(arena, json, from_template, depth, out, err);
    case JSON_KIND_OBJECT:
        return dict_from_json(arena, json, from_template, depth, out, err);
    default:
        *out = value_none();
        return true;
    }
}

bool value_from_json(struct arena *arena, const struct json *json, bool from_template,
                     struct value *out, struct err *err)
{
    struct value value;
    if (!from_json(arena, json, from_template, 0, &value, err))
        return false;
    *out = value;
    return true;
}
