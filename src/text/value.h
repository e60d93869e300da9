/* The values that templates compute with: Python's, as far as templates can tell.
 *
 * A value is small and copied; what it points to lives in an arena and is immutable once it is
 * reachable from a template (only namespaces, loops and iterators change). Dictionaries keep the
 * order of insertion and compare keys as Python does (1, 1.0 and true are one key).
 * Functions that allocate return false past the arena's ceiling. One thread at a time. */
#ifndef CASCADIA_TEXT_VALUE_H
#define CASCADIA_TEXT_VALUE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "text/traced.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum value_type {
    VALUE_UNDEFINED, // the zeroed value
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INTEGER,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT,
    /* Made only by the interpreter: */
    VALUE_RANGE,
    VALUE_ITERATOR,  // what Python's generators are: consumed once, no length
    VALUE_DICT_VIEW, // keys(), values(), items()
    VALUE_NAMESPACE,
    VALUE_MACRO,
    VALUE_METHOD,   // a method of a value, not yet called
    VALUE_FUNCTION, // range, dict, raise_exception, ...
    VALUE_LOOP,
    VALUE_CYCLER,
    VALUE_JOINER,
    VALUE_SLICE, // a[1:2] between the brackets
};

struct value_list;
struct value_dict;
struct value_range;
struct value_iterator;
struct value_dict_view;
struct value_namespace;
struct value_macro;
struct value_method;
struct value_function;
struct value_loop;
struct value_cycler;
struct value_slice;

struct value {
    enum value_type type;
    bool markup; // of a string: marked as safe by the template (`safe`, `escape`)
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct traced string;
        struct value_list *list; // of lists and tuples
        struct value_dict *dict;
        const struct value_range *range;
        struct value_iterator *iterator;
        const struct value_dict_view *view;
        struct value_namespace *space;
        const struct value_macro *macro;
        const struct value_method *method;
        const struct value_function *function;
        struct value_loop *loop;
        struct value_cycler *cycler; // of cyclers and joiners
        const struct value_slice *slice;
        const char *missing; // of undefined: the sentence that using it raises, or NULL
    };
};

struct value_list {
    struct value *items;
    size_t size, room;
};

struct value_entry {
    struct value key, value;
    uint64_t hash;
};

struct value_dict {
    struct value_entry *entries; // in order of insertion
    size_t size, room;
    uint32_t *index; // open addressing, entry number + 1; NULL while the dictionary is small
    size_t index_room;
};

struct value value_none(void);
struct value value_bool(bool boolean);
struct value value_integer(int64_t integer);
struct value value_float(double real);
struct value value_text(struct traced text);

/* A string over bytes that outlive it. */
bool value_view(struct arena *arena, struct str bytes, bool from_template, struct value *out);
/* A string of bytes that are copied into the arena. */
bool value_string(struct arena *arena, struct str bytes, bool from_template, struct value *out);

/* Empty; `type` is VALUE_LIST or VALUE_TUPLE. */
bool value_list_new(struct arena *arena, enum value_type type, struct value *out);
bool value_list_add(struct arena *arena, struct value *list, struct value item);
bool value_dict_new(struct arena *arena, struct value *out);
/* A key that is there keeps its place and gets the new value. The key must be hashable. */
bool value_dict_set(struct arena *arena, struct value *dict, struct value key, struct value item);
/* With a key that outlives the dictionary and counts as the template's. */
bool value_dict_put(struct arena *arena, struct value *dict, const char *key, struct value item);
/* NULL if not there (or not a dictionary). */
const struct value *value_dict_find(const struct value *dict, struct value key);
const struct value *value_dict_get(const struct value *dict, struct str key);

/* What Python accepts as a key: numbers, strings, none, tuples of such, functions. */
bool value_hashable(struct value value);
/* Python's ==. Values nested deeper than VALUE_DEPTH_CAP count as different. */
bool value_equal(struct value a, struct value b);

/* Nesting of lists and dictionaries beyond which values are refused. */
#define VALUE_DEPTH_CAP 128

/* Copies a JSON value; strings and keys get the origin `from_template`. ERR_NO_MEMORY past the
 * arena's ceiling, ERR_ARGUMENT past VALUE_DEPTH_CAP. */
bool value_from_json(struct arena *arena, const struct json *json, bool from_template,
                     struct value *out, struct err *err);

#endif
