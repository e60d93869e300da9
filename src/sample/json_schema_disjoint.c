/* Whether two schemas exclude each other, as far as can be told without deciding what JSON Schema
 * cannot decide in general: by types, by listed values, and by a property that both must have with
 * schemas that exclude each other (the tag of a union). When it cannot be told the answer is no. */
#include <stdlib.h>

#include "base/memory.h"
#include "sample/json_schema_internal.h"

#define DEPTH_CAP 8u

static bool places_are_disjoint(struct schema_compiler *compiler, const struct schema_place *a,
                                const struct schema_place *b, unsigned depth);

static bool is_disjoint(struct schema_compiler *compiler, const struct json *a,
                        const struct json *b, unsigned depth)
{
    struct schema_place left = { 0 }, right = { 0 };
    place_add(&left, a);
    place_add(&right, b);
    const bool disjoint = place_expand(compiler, &left) && place_expand(compiler, &right) &&
                          places_are_disjoint(compiler, &left, &right, depth);
    place_release(&left);
    place_release(&right);
    return disjoint;
}

/* Types that a value can have, named or those of the listed values; `generated`: that a text of the
 * grammar has, where keywords tell the type if nothing else does. */
static unsigned types_of(struct schema_compiler *compiler, const struct schema_place *place,
                         bool generated)
{
    const struct json **values;
    size_t n;
    unsigned types = SCHEMA_ALL;
    if (generated && !place_types(compiler, place, &types))
        return SCHEMA_ALL; // whoever compiles it will say what is wrong
    for (size_t i = 0; i < place->n_parts; i++) {
        struct schema_place one = { .parts = &place->parts[i], .n_parts = 1 };
        unsigned named;
        if (json_get(place->parts[i].schema, "type") != NULL && place_types(compiler, &one, &named))
            types &= named;
    }
    if (!place_values(place, &values, &n))
        return types;
    unsigned listed = 0;
    for (size_t i = 0; i < n; i++)
        listed |= value_types(values[i]);
    free(values);
    return types & listed;
}

static bool share_no_value(const struct schema_place *a, const struct schema_place *b)
{
    const struct json **left, **right;
    size_t n_left, n_right;
    bool disjoint = true;
    if (!place_values(a, &left, &n_left))
        return false;
    if (!place_values(b, &right, &n_right)) {
        free(left);
        return false;
    }
    for (size_t i = 0; i < n_left && disjoint; i++) {
        for (size_t j = 0; j < n_right && disjoint; j++)
            disjoint = !values_equal(left[i], right[j]);
    }
    free(left);
    free(right);
    return disjoint;
}

/* Every value of `a` has the property, and `b` has none or another one. */
static bool excludes_property(struct schema_compiler *compiler, const struct schema_place *a,
                              const struct schema_place *b, const char *name, unsigned depth)
{
    for (size_t j = 0; j < b->n_parts; j++) {
        const struct json *theirs = json_get(json_get(b->parts[j].schema, "properties"), name);
        const struct json *others = json_get(b->parts[j].schema, "additionalProperties");
        if (theirs == NULL && json_kind(others) == JSON_KIND_BOOL && !json_bool(others, true))
            return true;
        for (size_t i = 0; i < a->n_parts && theirs != NULL; i++) {
            const struct json *ours = json_get(json_get(a->parts[i].schema, "properties"), name);
            if (ours != NULL && is_disjoint(compiler, ours, theirs, depth + 1))
                return true;
        }
    }
    return false;
}

static bool differ_in_property(struct schema_compiler *compiler, const struct schema_place *a,
                               const struct schema_place *b, unsigned depth)
{
    for (size_t i = 0; i < a->n_parts; i++) {
        const struct json *required = json_get(a->parts[i].schema, "required");
        for (size_t k = 0; k < json_size(required); k++) {
            const struct str text = json_text(json_at(required, k));
            char *name = xstrndup(text.data ? text.data : "", text.size);
            const bool excludes = excludes_property(compiler, a, b, name, depth);
            free(name);
            if (excludes)
                return true;
        }
    }
    return false;
}

/* All branches of one of a's choices exclude b. */
static bool branches_are_disjoint(struct schema_compiler *compiler, const struct schema_place *a,
                                  const struct schema_place *b, unsigned depth)
{
    static const char *const keywords[] = { "anyOf", "oneOf" };
    for (size_t i = 0; i < 2 * a->n_parts; i++) {
        const struct json *list = json_get(a->parts[i / 2].schema, keywords[i % 2]);
        bool disjoint = json_size(list) > 0;
        for (size_t k = 0; k < json_size(list) && disjoint; k++) {
            struct schema_place branch = { 0 };
            place_add(&branch, json_at(list, k));
            disjoint = place_expand(compiler, &branch) &&
                       places_are_disjoint(compiler, &branch, b, depth + 1);
            place_release(&branch);
        }
        if (disjoint)
            return true;
    }
    return false;
}

static bool places_are_disjoint(struct schema_compiler *compiler, const struct schema_place *a,
                                const struct schema_place *b, unsigned depth)
{
    if (a->is_false || b->is_false)
        return true;
    if (depth > DEPTH_CAP)
        return false;
    /* What is generated for one must not be accepted by the other. */
    const unsigned types = (types_of(compiler, a, true) & types_of(compiler, b, false)) |
                           (types_of(compiler, b, true) & types_of(compiler, a, false));
    if (types == 0 || share_no_value(a, b))
        return true;
    if (types == SCHEMA_OBJECT &&
        (differ_in_property(compiler, a, b, depth) || differ_in_property(compiler, b, a, depth)))
        return true;
    return branches_are_disjoint(compiler, a, b, depth) ||
           branches_are_disjoint(compiler, b, a, depth);
}

bool schemas_are_disjoint(struct schema_compiler *compiler, const struct json *a,
                          const struct json *b)
{
    return is_disjoint(compiler, a, b, 0);
}
