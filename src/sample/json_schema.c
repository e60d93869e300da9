/* A place becomes a rule: the choices of its parts are made one after the other (each branch is a
 * place of its own, with the branch added), and when none is left what remains are plain keywords,
 * which are joined type by type.
 *
 * Rules are kept by their places, so recursion ends where it began. A place that comes back before
 * any value was entered is a circle (anyOf that lists itself): what it adds is what it has already,
 * so it adds nothing. */
#include "sample/json_schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "sample/json_format.h"
#include "sample/json_schema_internal.h"
#include "sample/pattern.h"

/* ---- strings ---- */

struct string_facts {
    uint32_t min, max;
    const struct json *schema; // that has the pattern or format
    struct str pattern;        // none: size 0 and data NULL
    bool is_format;
};

static bool add_pattern(struct schema_compiler *compiler, const struct json *schema,
                        const char *keyword, struct str pattern, struct string_facts *facts)
{
    const bool is_format = strcmp(keyword, "format") == 0;
    if (facts->pattern.data != NULL &&
        (!str_equal(facts->pattern, pattern) || facts->is_format != is_format))
        return schema_fail(compiler, schema, keyword,
                           "it cannot be combined with another pattern or format");
    facts->schema = schema;
    facts->pattern = pattern;
    facts->is_format = is_format;
    return true;
}

static bool read_string(struct schema_compiler *compiler, const struct json *schema,
                        struct string_facts *facts)
{
    const struct json *pattern = json_get(schema, "pattern"), *format = json_get(schema, "format");
    uint32_t min = 0, max = GRAMMAR_NO_MAX;
    if (!schema_count(compiler, schema, "minLength", &min) ||
        !schema_count(compiler, schema, "maxLength", &max))
        return false;
    facts->min = min > facts->min ? min : facts->min;
    facts->max = max < facts->max ? max : facts->max;
    if (pattern != NULL && json_kind(pattern) != JSON_KIND_STRING)
        return schema_fail(compiler, schema, "pattern", "it must be a string");
    if (pattern != NULL && !add_pattern(compiler, schema, "pattern", json_text(pattern), facts))
        return false;
    if (format == NULL)
        return true;
    const char *of_format = json_format_find(json_text(format));
    char what[160];
    if (of_format == NULL) {
        snprintf(what, sizeof what, "known are %s", json_format_names);
        return schema_fail(compiler, schema, "format", what);
    }
    return add_pattern(compiler, schema, "format", str_from(of_format), facts);
}

static bool compile_pattern(struct schema_compiler *compiler, const struct string_facts *facts,
                            uint32_t *out)
{
    const struct pattern_options options = { .searches = !facts->is_format,
                                             .write_class = json_write_class };
    struct pattern_piece piece;
    struct err err = { 0 };
    if (!pattern_read_piece(facts->pattern, &options, compiler->rules, &piece, &err))
        return schema_fail(compiler, facts->schema, "pattern", err.text);
    if (piece.min_chars < facts->min || piece.max_chars > facts->max)
        return schema_fail(compiler, facts->schema, facts->is_format ? "format" : "pattern",
                           "it allows other lengths than minLength and maxLength, which cannot be "
                           "combined with it");
    const uint32_t quote = rules_text(compiler->rules, STR("\""));
    const uint32_t parts[] = { quote, piece.node, quote };
    const uint32_t rule = rules_declare(compiler->rules, STR("string of a pattern"));
    rules_define(compiler->rules, rule, rules_sequence(compiler->rules, parts, 3));
    *out = piece.node == RULES_NOTHING ? RULES_NOTHING : rules_call(compiler->rules, rule);
    return true;
}

static bool compile_string(struct schema_compiler *compiler, const struct schema_place *place,
                           uint32_t *out)
{
    struct string_facts facts = { .max = GRAMMAR_NO_MAX };
    for (size_t i = 0; i < place->n_parts; i++) {
        if (!read_string(compiler, place->parts[i].schema, &facts))
            return false;
    }
    if (facts.pattern.data != NULL)
        return compile_pattern(compiler, &facts, out);
    *out = facts.min == 0 && facts.max == GRAMMAR_NO_MAX
               ? json_string_any(&compiler->language)
               : json_string_sized(&compiler->language, facts.min, facts.max);
    return true;
}

/* ---- numbers ---- */

static bool read_bound(struct schema_compiler *compiler, const struct json *schema,
                       const char *keyword, bool is_low, bool is_open, struct json_bound *bound)
{
    const struct json *value = json_get(schema, keyword);
    double number;
    if (value == NULL)
        return true;
    if (!json_read_double(value, &number) || !isfinite(number))
        return schema_fail(compiler, schema, keyword, "it must be a number");
    const bool is_tighter = !bound->is_given ||
                            (is_low ? number > bound->value : number < bound->value) ||
                            (number == bound->value && is_open);
    if (is_tighter)
        *bound = (struct json_bound){ .is_given = true, .is_open = is_open, .value = number };
    return true;
}

static bool compile_number(struct schema_compiler *compiler, const struct schema_place *place,
                           bool is_whole, uint32_t *out)
{
    struct json_bound low = { 0 }, high = { 0 };
    struct err err = { 0 };
    for (size_t i = 0; i < place->n_parts; i++) {
        const struct json *schema = place->parts[i].schema;
        if (!read_bound(compiler, schema, "minimum", true, false, &low) ||
            !read_bound(compiler, schema, "exclusiveMinimum", true, true, &low) ||
            !read_bound(compiler, schema, "maximum", false, false, &high) ||
            !read_bound(compiler, schema, "exclusiveMaximum", false, true, &high))
            return false;
    }
    if (json_number_between(&compiler->language, is_whole, low, high, out, &err))
        return true;
    return schema_fail(compiler, place->parts[0].schema, "minimum, maximum", err.text);
}

/* ---- values ---- */

/* Whether a listed value also obeys the other keywords, where that can be told. */
static bool value_fits(struct schema_compiler *compiler, const struct schema_place *place,
                       const struct json *value, bool *fits)
{
    static const char *const hard[] = {
        "pattern",       "format",        "properties",    "required", "additionalProperties",
        "minProperties", "maxProperties", "propertyNames", "items",    "prefixItems",
        "minItems",      "maxItems"
    };
    const unsigned type = value_types(value);
    for (size_t i = 0; i < place->n_parts; i++) {
        const struct json *schema = place->parts[i].schema;
        for (size_t k = 0; k < sizeof hard / sizeof hard[0]; k++) {
            const unsigned about = k < 2 ? SCHEMA_STRING : k < 8 ? SCHEMA_OBJECT : SCHEMA_ARRAY;
            if ((type & about) && json_get(schema, hard[k]) != NULL)
                return schema_fail(compiler, schema, hard[k],
                                   "it cannot be combined with enum or const");
        }
        struct string_facts sizes = { .max = GRAMMAR_NO_MAX };
        if (!read_string(compiler, schema, &sizes))
            return false;
        if (type == SCHEMA_STRING) {
            uint32_t n_chars = 0;
            const struct str text = json_text(value);
            for (size_t b = 0; b < text.size; b++)
                n_chars += ((unsigned char)text.data[b] & 0xc0) != 0x80;
            *fits &= n_chars >= sizes.min && n_chars <= sizes.max;
        }
        if (!(type & (SCHEMA_INTEGER | SCHEMA_NUMBER)))
            continue;
        const double number = json_number(value, 0);
        *fits &= number >= json_number(json_get(schema, "minimum"), number) &&
                 number <= json_number(json_get(schema, "maximum"), number) &&
                 number > json_number(json_get(schema, "exclusiveMinimum"), -INFINITY) &&
                 number < json_number(json_get(schema, "exclusiveMaximum"), INFINITY);
    }
    return true;
}

static bool compile_values(struct schema_compiler *compiler, const struct schema_place *place,
                           unsigned types, const struct json **values, size_t n_values,
                           uint32_t *out)
{
    struct rules_list kinds = { 0 };
    bool good = true;
    for (size_t i = 0; i < n_values && good; i++) {
        bool fits = value_types(values[i]) & types;
        good = value_fits(compiler, place, values[i], &fits);
        if (good && fits)
            rules_list_add(&kinds, json_literal(&compiler->language, values[i]));
    }
    *out = rules_choice(compiler->rules, kinds.parts, kinds.n_parts);
    rules_list_release(&kinds);
    return good;
}

/* All choices are made. */
static bool compile_plain(struct schema_compiler *compiler, const struct schema_place *place,
                          uint32_t *out)
{
    struct grammar_rules *rules = compiler->rules;
    const struct json **values;
    size_t n_values;
    unsigned types;
    uint32_t kinds[6] = { 0 }; // RULES_NOTHING
    if (!place_types(compiler, place, &types))
        return false;
    if (place_values(place, &values, &n_values)) {
        const bool good = compile_values(compiler, place, types, values, n_values, out);
        free(values);
        return good;
    }
    if (place->n_parts == 0 && types == SCHEMA_ALL) {
        *out = json_value_any(&compiler->language);
        return true;
    }
    if ((types & SCHEMA_OBJECT) && !schema_object(compiler, place, &kinds[0]))
        return false;
    if ((types & SCHEMA_ARRAY) && !schema_array(compiler, place, &kinds[1]))
        return false;
    if ((types & SCHEMA_STRING) && !compile_string(compiler, place, &kinds[2]))
        return false;
    if ((types & (SCHEMA_INTEGER | SCHEMA_NUMBER)) &&
        !compile_number(compiler, place, !(types & SCHEMA_NUMBER), &kinds[3]))
        return false;
    if (types & SCHEMA_BOOLEAN) {
        const uint32_t both[] = { rules_text(rules, STR("true")), rules_text(rules, STR("false")) };
        kinds[4] = rules_choice(rules, both, 2);
    }
    if (types & SCHEMA_NULL)
        kinds[5] = rules_text(rules, STR("null"));
    *out = rules_choice(rules, kinds, 6);
    return true;
}

/* ---- choices ---- */

static bool check_disjoint(struct schema_compiler *compiler, const struct json *schema,
                           const struct json *list)
{
    for (size_t i = 0; i < json_size(list); i++) {
        for (size_t j = 0; j < i; j++) {
            if (!schemas_are_disjoint(compiler, json_at(list, i), json_at(list, j)))
                return schema_fail(compiler, schema, "oneOf",
                                   "it cannot be seen that its branches exclude each other; anyOf "
                                   "has no such need");
        }
    }
    return true;
}

/* One of the branches of a part's list, which is not looked at again. */
static bool compile_choice(struct schema_compiler *compiler, const struct schema_place *place,
                           size_t part, const char *keyword, uint32_t *out)
{
    const struct json *schema = place->parts[part].schema;
    const struct json *list = json_get(schema, keyword);
    struct rules_list kinds = { 0 };
    bool good = true;
    if (json_kind(list) != JSON_KIND_ARRAY || json_size(list) == 0)
        return schema_fail(compiler, schema, keyword, "it must be a list of schemas");
    if (strcmp(keyword, "oneOf") == 0 && !check_disjoint(compiler, schema, list))
        return false;
    for (size_t i = 0; i < json_size(list) && good; i++) {
        const struct json *branch = json_at(list, i);
        struct schema_place with;
        uint32_t node = RULES_NOTHING;
        if (json_kind(branch) != JSON_KIND_OBJECT && json_kind(branch) != JSON_KIND_BOOL) {
            good = schema_fail(compiler, schema, keyword, "it must be a list of schemas");
            break;
        }
        place_copy(&with, place);
        if (strcmp(keyword, "anyOf") == 0)
            with.parts[part].any_chosen = true;
        else
            with.parts[part].one_chosen = true;
        place_choose(&with, branch);
        good = schema_compile(compiler, &with, &node);
        place_release(&with);
        rules_list_add(&kinds, node);
    }
    *out = rules_choice(compiler->rules, kinds.parts, kinds.n_parts);
    rules_list_release(&kinds);
    return good;
}

static bool compile_body(struct schema_compiler *compiler, const struct schema_place *place,
                         uint32_t *out)
{
    for (size_t i = 0; i < place->n_parts; i++) {
        const struct schema_part *part = &place->parts[i];
        if (!part->any_chosen && json_get(part->schema, "anyOf") != NULL)
            return compile_choice(compiler, place, i, "anyOf", out);
        if (!part->one_chosen && json_get(part->schema, "oneOf") != NULL)
            return compile_choice(compiler, place, i, "oneOf", out);
    }
    return compile_plain(compiler, place, out);
}

static struct schema_memo *find_memo(struct schema_compiler *compiler,
                                     const struct schema_place *place)
{
    for (size_t i = 0; i < compiler->n_memos; i++) {
        if (place_equal(&compiler->memos[i].place, place))
            return &compiler->memos[i];
    }
    return NULL;
}

static bool add_memo(struct schema_compiler *compiler, const struct schema_place *place,
                     size_t *index)
{
    if (compiler->n_memos >= JSON_SCHEMA_PLACES_CAP)
        return schema_fail(compiler, compiler->document, "the schema", "it is too large");
    if (compiler->n_memos == compiler->memos_room) {
        compiler->memos_room = compiler->memos_room ? 2 * compiler->memos_room : 16;
        compiler->memos =
            xreallocarray(compiler->memos, compiler->memos_room, sizeof *compiler->memos);
    }
    struct schema_memo *memo = &compiler->memos[compiler->n_memos];
    *memo = (struct schema_memo){ .level = compiler->level, .is_open = true };
    place_copy(&memo->place, place);
    memo->rule = rules_declare(compiler->rules, STR("schema"));
    *index = compiler->n_memos++;
    return true;
}

bool schema_compile(struct schema_compiler *compiler, struct schema_place *place, uint32_t *out)
{
    uint32_t body = RULES_NOTHING;
    size_t index = 0;
    if (!place_expand(compiler, place))
        return false;
    *out = RULES_NOTHING;
    if (place->is_false)
        return true;
    const struct schema_memo *known = find_memo(compiler, place);
    if (known != NULL) {
        const bool is_circle = known->is_open && known->level == compiler->level;
        if (!is_circle && !known->is_nothing)
            *out = rules_call(compiler->rules, known->rule);
        return true;
    }
    if (compiler->depth == JSON_SCHEMA_DEPTH_CAP)
        return schema_fail(compiler, place->n_parts ? place->parts[0].schema : compiler->document,
                           "the schema", "it is nested too deep");
    if (!add_memo(compiler, place, &index))
        return false;
    compiler->depth++;
    const bool good = compile_body(compiler, place, &body);
    compiler->depth--;
    if (!good)
        return false;
    struct schema_memo *memo = &compiler->memos[index];
    memo->is_open = false;
    memo->is_nothing = body == RULES_NOTHING;
    rules_define(compiler->rules, memo->rule, body);
    *out = memo->is_nothing ? RULES_NOTHING : rules_call(compiler->rules, memo->rule);
    return true;
}

/* ---- the document ---- */

static bool compile_document(struct schema_compiler *compiler)
{
    struct schema_place place = { 0 };
    uint32_t node;
    place_add(&place, compiler->document);
    compiler->rules->root = rules_declare(compiler->rules, STR("root"));
    const bool good = schema_compile(compiler, &place, &node);
    if (good)
        rules_define(compiler->rules, compiler->rules->root, node);
    place_release(&place);
    return good;
}

bool json_schema_read(struct str text, struct grammar_rules *rules, struct err *err)
{
    struct schema_compiler compiler = { .rules = rules, .err = err };
    struct json *document = json_parse(text, err);
    bool good = false;
    if (document == NULL) {
        err->code = ERR_ARGUMENT;
        return err_wrap(err, "the schema");
    }
    compiler.document = document;
    compiler.string_schema = json_parse(STR("{\"type\": \"string\"}"), err);
    must(compiler.string_schema != NULL);
    json_language_init(&compiler.language, rules);
    if (json_kind(document) != JSON_KIND_OBJECT && json_kind(document) != JSON_KIND_BOOL)
        err_set(err, ERR_ARGUMENT, "a schema is an object, or true or false");
    else
        good = compile_document(&compiler);
    for (size_t i = 0; i < compiler.n_memos; i++)
        place_release(&compiler.memos[i].place);
    free(compiler.memos);
    json_free(compiler.string_schema);
    json_free(document);
    return good;
}
