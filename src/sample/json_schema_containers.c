/* Arrays and objects: what may follow what, as rules that end in the next one. Such a rule is not a
 * call but a jump, so a list of a hundred optional properties is a chain of states and no stack.
 *
 * Properties come in the order of the schema. A rule stands for "so many of them are decided, so
 * many were written"; the second number is only kept as far as it matters, for the first comma and
 * for minProperties and maxProperties. */
#include <stdlib.h>

#include "base/memory.h"
#include "sample/json_schema_internal.h"

#define OBJECT_RULES_CAP 60000u

/* Compiles what holds one value further in; takes the place. */
static bool compile_inner(struct schema_compiler *compiler, struct schema_place *place,
                          uint32_t *out)
{
    compiler->level++;
    const bool good = schema_compile(compiler, place, out);
    compiler->level--;
    place_release(place);
    return good;
}

static uint32_t comma(struct schema_compiler *compiler, uint32_t item)
{
    const uint32_t parts[] = { rules_text(compiler->rules, STR(",")),
                               json_blank(&compiler->language), item };
    return rules_sequence(compiler->rules, parts, 3);
}

static uint32_t in_rule(struct schema_compiler *compiler, const char *name, uint32_t body)
{
    if (body == RULES_NOTHING)
        return RULES_NOTHING;
    const uint32_t rule = rules_declare(compiler->rules, str_from(name));
    rules_define(compiler->rules, rule, body);
    return rules_call(compiler->rules, rule);
}

static bool is_schema(const struct json *value)
{
    return json_kind(value) == JSON_KIND_OBJECT || json_kind(value) == JSON_KIND_BOOL;
}

static bool is_false(const struct json *value)
{
    return json_kind(value) == JSON_KIND_BOOL && !json_bool(value, true);
}

/* ---- arrays ---- */

struct array_facts {
    uint32_t min, max;
    size_t n_prefix; // items with a schema of their own
    bool has_items;  // some part says what the others are
    bool is_limited; // some part has no more than the prefix
};

static bool read_array(struct schema_compiler *compiler, const struct json *schema,
                       struct array_facts *facts)
{
    const struct json *items = json_get(schema, "items"), *prefix = json_get(schema, "prefixItems");
    uint32_t min = 0, max = GRAMMAR_NO_MAX;
    if (!schema_count(compiler, schema, "minItems", &min) ||
        !schema_count(compiler, schema, "maxItems", &max))
        return false;
    facts->min = min > facts->min ? min : facts->min;
    facts->max = max < facts->max ? max : facts->max;
    if (items != NULL && !is_schema(items))
        return schema_fail(compiler, schema, "items",
                           "it must be a schema; a list of them is called prefixItems");
    if (prefix != NULL && json_kind(prefix) != JSON_KIND_ARRAY)
        return schema_fail(compiler, schema, "prefixItems", "it must be a list of schemas");
    for (size_t i = 0; i < json_size(prefix); i++) {
        if (!is_schema(json_at(prefix, i)))
            return schema_fail(compiler, schema, "prefixItems", "it must be a list of schemas");
    }
    facts->n_prefix = json_size(prefix) > facts->n_prefix ? json_size(prefix) : facts->n_prefix;
    facts->has_items |= items != NULL;
    facts->is_limited |= is_false(json_get(schema, "unevaluatedItems"));
    return true;
}

/* The item at `index`, by all parts. */
static bool compile_item(struct schema_compiler *compiler, const struct schema_place *place,
                         size_t index, uint32_t *out)
{
    struct schema_place item = { 0 };
    for (size_t i = 0; i < place->n_parts; i++) {
        const struct json *schema = place->parts[i].schema;
        const struct json *own = json_at(json_get(schema, "prefixItems"), index);
        const struct json *others = json_get(schema, "items");
        if (own != NULL || others != NULL)
            place_add(&item, own != NULL ? own : others);
    }
    return compile_inner(compiler, &item, out);
}

/* Items from `index` on, a comma before each but the first of all. */
static bool compile_rest(struct schema_compiler *compiler, const struct schema_place *place,
                         const struct array_facts *facts, uint32_t *out)
{
    struct grammar_rules *rules = compiler->rules;
    const uint32_t index = (uint32_t)facts->n_prefix;
    uint32_t item = RULES_NOTHING;
    if (facts->max > index && (facts->has_items || !facts->is_limited) &&
        !compile_item(compiler, place, index, &item))
        return false;
    const uint32_t min = facts->min > index ? facts->min - index : 0;
    const uint32_t max = facts->max == GRAMMAR_NO_MAX ? GRAMMAR_NO_MAX
                         : facts->max > index         ? facts->max - index
                                                      : 0;
    if (item == RULES_NOTHING || max == 0) {
        *out = min == 0 ? RULES_EMPTY : RULES_NOTHING;
        return true;
    }
    const uint32_t more = comma(compiler, item);
    if (index > 0) {
        *out = rules_repeat(rules, more, min, max);
        return true;
    }
    const uint32_t all[] = { item, rules_repeat(rules, more, min > 0 ? min - 1 : 0,
                                                max == GRAMMAR_NO_MAX ? max : max - 1) };
    const uint32_t some[] = { rules_sequence(rules, all, 2),
                              min == 0 ? RULES_EMPTY : RULES_NOTHING };
    *out = rules_choice(rules, some, 2);
    return true;
}

bool schema_array(struct schema_compiler *compiler, const struct schema_place *place, uint32_t *out)
{
    struct grammar_rules *rules = compiler->rules;
    struct array_facts facts = { .max = GRAMMAR_NO_MAX };
    uint32_t items;
    for (size_t i = 0; i < place->n_parts; i++) {
        if (!read_array(compiler, place->parts[i].schema, &facts))
            return false;
    }
    if (!compile_rest(compiler, place, &facts, &items))
        return false;
    for (size_t index = facts.n_prefix; index-- > 0;) {
        uint32_t item = RULES_NOTHING;
        if (index < facts.max && !compile_item(compiler, place, index, &item))
            return false;
        if (item != RULES_NOTHING && index > 0)
            item = comma(compiler, item);
        const uint32_t with[] = { item, items };
        const uint32_t kinds[] = { rules_sequence(rules, with, 2),
                                   index >= facts.min ? RULES_EMPTY : RULES_NOTHING };
        items = in_rule(compiler, "items", rules_choice(rules, kinds, 2));
    }
    *out = in_rule(compiler, "array", json_enclose(&compiler->language, "[", items, "]"));
    return true;
}

/* ---- objects ---- */

struct property {
    struct str name;
    char *key; // the same, with a NUL
    bool is_required;
    uint32_t member; // "name": value
};

struct object_facts {
    uint32_t min, max;
    struct property *properties;
    size_t n_properties, room;
    bool is_open;             // some part asks for other properties
    bool is_closed;           // some part has no others
    bool is_declared;         // some part has properties or required
    const struct json *names; // propertyNames
    uint32_t other;           // "name": value of a property that is not declared
};

static struct property *find_property(struct object_facts *facts, struct str name)
{
    for (size_t i = 0; i < facts->n_properties; i++) {
        if (str_equal(facts->properties[i].name, name))
            return &facts->properties[i];
    }
    return NULL;
}

static bool add_property(struct schema_compiler *compiler, const struct json *schema,
                         struct object_facts *facts, struct str name, bool is_required)
{
    struct property *property = find_property(facts, name);
    if (property == NULL) {
        if (facts->n_properties == JSON_SCHEMA_PROPERTIES_CAP)
            return schema_fail(compiler, schema, "properties", "there are too many");
        if (memchr(name.data ? name.data : "", '\0', name.size) != NULL)
            return schema_fail(compiler, schema, "properties", "a name with a NUL in it");
        if (facts->n_properties == facts->room) {
            facts->room = facts->room ? 2 * facts->room : 16;
            facts->properties =
                xreallocarray(facts->properties, facts->room, sizeof *facts->properties);
        }
        property = &facts->properties[facts->n_properties++];
        *property = (struct property){ .name = name, .key = xstrndup(name.data, name.size) };
    }
    property->is_required |= is_required;
    return true;
}

static bool read_names(struct schema_compiler *compiler, const struct json *schema,
                       struct object_facts *facts)
{
    const struct json *properties = json_get(schema, "properties");
    const struct json *required = json_get(schema, "required");
    if (properties != NULL && json_kind(properties) != JSON_KIND_OBJECT)
        return schema_fail(compiler, schema, "properties", "it must be an object");
    for (void *it = json_first(properties); it != NULL; it = json_next(properties, it)) {
        if (!is_schema(json_member_value(it)))
            return schema_fail(compiler, schema, "properties", "it must be an object of schemas");
        if (!add_property(compiler, schema, facts, json_member_key(it), false))
            return false;
    }
    if (required != NULL && json_kind(required) != JSON_KIND_ARRAY)
        return schema_fail(compiler, schema, "required", "it must be a list of names");
    for (size_t i = 0; i < json_size(required); i++) {
        if (json_kind(json_at(required, i)) != JSON_KIND_STRING)
            return schema_fail(compiler, schema, "required", "it must be a list of names");
        if (!add_property(compiler, schema, facts, json_text(json_at(required, i)), true))
            return false;
    }
    facts->is_declared |= properties != NULL || json_size(required) > 0;
    return true;
}

static bool read_object(struct schema_compiler *compiler, const struct json *schema,
                        struct object_facts *facts)
{
    const struct json *others = json_get(schema, "additionalProperties");
    const struct json *names = json_get(schema, "propertyNames");
    uint32_t min = 0, max = GRAMMAR_NO_MAX;
    if (!schema_count(compiler, schema, "minProperties", &min) ||
        !schema_count(compiler, schema, "maxProperties", &max))
        return false;
    facts->min = min > facts->min ? min : facts->min;
    facts->max = max < facts->max ? max : facts->max;
    if (others != NULL && !is_schema(others))
        return schema_fail(compiler, schema, "additionalProperties", "it must be a schema");
    facts->is_open |= others != NULL && !is_false(others);
    facts->is_closed |=
        is_false(others) || (is_false(json_get(schema, "unevaluatedProperties")) && others == NULL);
    if (names != NULL && !is_schema(names))
        return schema_fail(compiler, schema, "propertyNames", "it must be a schema");
    if (names != NULL && facts->names != NULL)
        return schema_fail(compiler, schema, "propertyNames", "two of them hold here");
    facts->names = names != NULL ? names : facts->names;
    return read_names(compiler, schema, facts);
}

/* The value of a property, by all parts. */
static bool compile_property(struct schema_compiler *compiler, const struct schema_place *place,
                             const char *key, uint32_t *out)
{
    struct schema_place value = { 0 };
    for (size_t i = 0; i < place->n_parts; i++) {
        const struct json *schema = place->parts[i].schema;
        const struct json *own = key ? json_get(json_get(schema, "properties"), key) : NULL;
        const struct json *others = json_get(schema, "additionalProperties");
        if (own != NULL || others != NULL)
            place_add(&value, own != NULL ? own : others);
    }
    return compile_inner(compiler, &value, out);
}

static uint32_t member(struct schema_compiler *compiler, uint32_t key, uint32_t value)
{
    const uint32_t parts[] = { key, json_blank(&compiler->language), value };
    return rules_sequence(compiler->rules, parts, 3);
}

static bool compile_members(struct schema_compiler *compiler, const struct schema_place *place,
                            struct object_facts *facts)
{
    for (size_t i = 0; i < facts->n_properties; i++) {
        struct property *property = &facts->properties[i];
        uint32_t value;
        if (!compile_property(compiler, place, property->key, &value))
            return false;
        property->member = member(compiler, json_key(&compiler->language, property->name), value);
    }
    return true;
}

/* Properties that are not declared: their names are none of the declared ones, or what
 * propertyNames says. */
static bool compile_others(struct schema_compiler *compiler, const struct schema_place *place,
                           struct object_facts *facts)
{
    struct grammar_rules *rules = compiler->rules;
    uint32_t key, value;
    facts->other = RULES_NOTHING;
    if (facts->names != NULL && facts->n_properties > 0)
        return schema_fail(compiler, place->parts[0].schema, "propertyNames",
                           "it cannot be combined with properties or required");
    if (facts->is_closed || !(facts->is_open || !facts->is_declared))
        return true;
    if (!compile_property(compiler, place, NULL, &value))
        return false;
    if (facts->names != NULL) {
        struct schema_place names = { 0 };
        place_add(&names, facts->names);
        place_add(&names, compiler->string_schema);
        if (!compile_inner(compiler, &names, &key))
            return false;
    } else {
        struct str *taken = xcalloc(facts->n_properties + 1, sizeof *taken);
        for (size_t i = 0; i < facts->n_properties; i++)
            taken[i] = facts->properties[i].name;
        key = json_string_except(&compiler->language, taken, facts->n_properties);
        free(taken);
    }
    const uint32_t with_colon[] = { key, rules_text(rules, STR(":")) };
    facts->other = member(compiler, rules_sequence(rules, with_colon, 2), value);
    return true;
}

/* After all declared properties, `count` written. Names of the others may repeat each other, so no
 * more than one of them is sure to count as a property of its own. */
static uint32_t compile_tail(struct schema_compiler *compiler, const struct object_facts *facts,
                             uint32_t count, bool is_exact)
{
    struct grammar_rules *rules = compiler->rules;
    const uint32_t min = count < facts->min ? facts->min - count : 0;
    uint32_t max = GRAMMAR_NO_MAX;
    if (facts->max != GRAMMAR_NO_MAX)
        max = facts->max > count ? facts->max - count : 0;
    must(is_exact || max == GRAMMAR_NO_MAX || facts->other == RULES_NOTHING);
    if (facts->other == RULES_NOTHING || max == 0)
        return min == 0 ? RULES_EMPTY : RULES_NOTHING;
    if (min > 1) // another way must be taken: more declared ones
        return RULES_NOTHING;
    const uint32_t more = comma(compiler, facts->other);
    if (count > 0)
        return rules_repeat(rules, more, min, max);
    const uint32_t some[] = { facts->other,
                              rules_repeat(rules, more, 0, max == GRAMMAR_NO_MAX ? max : max - 1) };
    const uint32_t kinds[] = { rules_sequence(rules, some, 2),
                               min == 0 ? RULES_EMPTY : RULES_NOTHING };
    return rules_choice(rules, kinds, 2);
}

/* From the last property back: after[count] is what follows when `count` were written before. */
static void compile_chain(struct schema_compiler *compiler, const struct object_facts *facts,
                          uint32_t *after, uint32_t n_counts)
{
    struct grammar_rules *rules = compiler->rules;
    const bool is_exact = n_counts > facts->n_properties; // counts are not cut off
    for (uint32_t count = 0; count < n_counts; count++) {
        const uint32_t tail = compile_tail(compiler, facts, count, is_exact);
        after[count] = tail == RULES_EMPTY ? tail : in_rule(compiler, "other properties", tail);
    }
    for (size_t i = facts->n_properties; i-- > 0;) {
        const struct property *property = &facts->properties[i];
        for (uint32_t count = 0; count < n_counts; count++) {
            const uint32_t next = count + 1 < n_counts ? count + 1 : count;
            const bool has_room = facts->max == GRAMMAR_NO_MAX || count < facts->max;
            const uint32_t written = count > 0 && property->member != RULES_NOTHING
                                         ? comma(compiler, property->member)
                                         : property->member;
            const uint32_t with[] = { written, after[next] };
            const uint32_t kinds[] = { has_room ? rules_sequence(rules, with, 2) : RULES_NOTHING,
                                       property->is_required ? RULES_NOTHING : after[count] };
            after[count] = in_rule(compiler, "properties", rules_choice(rules, kinds, 2));
        }
    }
}

static bool compile_object(struct schema_compiler *compiler, const struct schema_place *place,
                           struct object_facts *facts, uint32_t *out)
{
    if (!compile_others(compiler, place, facts) || !compile_members(compiler, place, facts))
        return false;
    /* Counts 0 and 1 tell whether a comma comes; more are told apart as far as bounds need it. */
    size_t n_required = 0;
    for (size_t i = 0; i < facts->n_properties; i++)
        n_required += facts->properties[i].is_required;
    uint32_t n_counts = 2;
    if (facts->min > n_required)
        n_counts = facts->min + 1 > n_counts ? facts->min + 1 : n_counts;
    if (facts->max != GRAMMAR_NO_MAX)
        n_counts = (uint32_t)facts->n_properties + 1 > n_counts ? (uint32_t)facts->n_properties + 1
                                                                : n_counts;
    if (n_counts > facts->n_properties + 1)
        n_counts = facts->n_properties ? (uint32_t)facts->n_properties + 1 : 2;
    if ((uint64_t)n_counts * (facts->n_properties + 1) > OBJECT_RULES_CAP)
        return schema_fail(compiler, place->parts[0].schema, "minProperties, maxProperties",
                           "they cannot be kept with so many properties");
    if (facts->other != RULES_NOTHING && facts->min > facts->n_properties + 1)
        return schema_fail(compiler, place->parts[0].schema, "minProperties",
                           "more than one that is not declared cannot be told apart");
    uint32_t *after = xcalloc(n_counts, sizeof *after);
    compile_chain(compiler, facts, after, n_counts);
    *out = in_rule(compiler, "object", json_enclose(&compiler->language, "{", after[0], "}"));
    free(after);
    return true;
}

bool schema_object(struct schema_compiler *compiler, const struct schema_place *place,
                   uint32_t *out)
{
    struct object_facts facts = { .max = GRAMMAR_NO_MAX };
    bool good = true;
    for (size_t i = 0; i < place->n_parts && good; i++)
        good = read_object(compiler, place->parts[i].schema, &facts);
    if (good && !facts.is_declared && !facts.is_open && !facts.is_closed && facts.names == NULL &&
        facts.min == 0 && facts.max == GRAMMAR_NO_MAX)
        *out = json_object_any(&compiler->language);
    else if (good)
        good = compile_object(compiler, place, &facts, out);
    for (size_t i = 0; i < facts.n_properties; i++)
        free(facts.properties[i].key);
    free(facts.properties);
    return good;
}
