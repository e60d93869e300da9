/* What the files of the schema compiler share.
 *
 * At one place of a document several schemas may hold at once: a reference and its siblings, the
 * branches of allOf, the same property in two of them. A place is such a set; its meaning is what
 * all of its parts accept. */
#ifndef CASCADIA_SAMPLE_JSON_SCHEMA_INTERNAL_H
#define CASCADIA_SAMPLE_JSON_SCHEMA_INTERNAL_H

#include "base/json.h"
#include "sample/json_language.h"
#include "sample/json_number.h"
#include "sample/json_schema.h"

/* A schema of a place, and which of its choices have been made. */
struct schema_part {
    const struct json *schema; // an object
    bool any_chosen, one_chosen;
    bool is_expanded; // its $ref and allOf are in the set
};

struct schema_place {
    struct schema_part *parts;
    size_t n_parts, room;
    bool is_false; // nothing is accepted
};

/* A place whose rule is made, or being made. */
struct schema_memo {
    struct schema_place place;
    uint32_t rule, level;
    bool is_open;    // being made
    bool is_nothing; // made, and accepts nothing
};

struct schema_compiler {
    const struct json *document;
    struct json *string_schema; // {"type": "string"}, which names of properties have besides
    struct grammar_rules *rules;
    struct json_language language;
    struct schema_memo *memos;
    size_t n_memos, memos_room;
    uint32_t depth;
    uint32_t level; // rises with each step into a value: below it, recursion is no circle
    struct err *err;
};

enum schema_type {
    SCHEMA_NULL = 1 << 0,
    SCHEMA_BOOLEAN = 1 << 1,
    SCHEMA_INTEGER = 1 << 2,
    SCHEMA_NUMBER = 1 << 3, // those that are no integers
    SCHEMA_STRING = 1 << 4,
    SCHEMA_ARRAY = 1 << 5,
    SCHEMA_OBJECT = 1 << 6,
    SCHEMA_ALL = (1 << 7) - 1,
};

/* json_schema_place.c: sets of schemas, references, keywords. */
void place_add(struct schema_place *place, const struct json *schema); // boolean or object
/* The same for a branch that was chosen: what it brings is asked for once more. */
void place_choose(struct schema_place *place, const struct json *branch);
void place_copy(struct schema_place *to, const struct schema_place *from);
void place_release(struct schema_place *place);
bool place_equal(const struct schema_place *a, const struct schema_place *b);
/* Adds what $ref and allOf bring, checks keywords, puts parts in order. */
bool place_expand(struct schema_compiler *compiler, struct schema_place *place);
/* Types that the schemas name themselves, or, if none does, those that their keywords speak of. */
bool place_types(struct schema_compiler *compiler, const struct schema_place *place, unsigned *out);
unsigned value_types(const struct json *value);
bool values_equal(const struct json *a, const struct json *b);
/* The values that enum and const of all parts leave; false: they say nothing. Views, *n of them. */
bool place_values(const struct schema_place *place, const struct json ***values, size_t *n);

/* "unsupported keyword" and where; returns false. */
bool schema_fail(struct schema_compiler *compiler, const struct json *schema, const char *keyword,
                 const char *what);
/* A count; absent leaves *out. */
bool schema_count(struct schema_compiler *compiler, const struct json *schema, const char *keyword,
                  uint32_t *out);

/* json_schema.c */
bool schema_compile(struct schema_compiler *compiler, struct schema_place *place, uint32_t *out);

/* json_schema_containers.c */
bool schema_array(struct schema_compiler *compiler, const struct schema_place *place,
                  uint32_t *out);
bool schema_object(struct schema_compiler *compiler, const struct schema_place *place,
                   uint32_t *out);

/* json_schema_disjoint.c: no value is accepted by both, as far as can be seen. */
bool schemas_are_disjoint(struct schema_compiler *compiler, const struct json *a,
                          const struct json *b);

#endif
