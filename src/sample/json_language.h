/* JSON as a grammar: the rules that schemas are put together from. Made when first asked for, once
 * a grammar.
 *
 * What is generated is a sane part of JSON: between tokens nothing, a blank, or a line end with up
 * to JSON_INDENT_CAP blanks (a model cannot go astray in white space); numbers of at most 15 digits
 * before and after the point and 2 of an exponent; no escapes of half a surrogate pair. One
 * owner. */
#ifndef CASCADIA_SAMPLE_JSON_LANGUAGE_H
#define CASCADIA_SAMPLE_JSON_LANGUAGE_H

#include "base/json.h"
#include "sample/grammar_rules.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_INDENT_CAP 20u
#define JSON_DIGITS_CAP 15u // of a number, before and after the point
#define JSON_EXPONENT_DIGITS_CAP 2u

/* Expressions; RULES_NOTHING: not made yet. */
struct json_language {
    struct grammar_rules *rules;
    uint32_t blank, character, plain_character, string, number, value, object, array;
};

void json_language_init(struct json_language *language, struct grammar_rules *rules);

uint32_t json_blank(struct json_language *language);      // what may stand between two tokens
uint32_t json_string_any(struct json_language *language); // any, with its quotes
uint32_t json_number_any(struct json_language *language);
uint32_t json_value_any(struct json_language *language);
uint32_t json_object_any(struct json_language *language);
uint32_t json_array_any(struct json_language *language);

/* A string of so many characters. */
uint32_t json_string_sized(struct json_language *language, uint32_t min, uint32_t max);
/* A string that is none of the names; it has no escapes. */
uint32_t json_string_except(struct json_language *language, const struct str *names,
                            size_t n_names);
/* One value, written without blanks. */
uint32_t json_literal(struct json_language *language, const struct json *value);
/* "name": with its quotes and colon. */
uint32_t json_key(struct json_language *language, struct str name);

/* One character of a set within a JSON string, escaped where it must be (pattern.h). */
uint32_t json_write_class(struct grammar_rules *rules, const struct code_range *ranges,
                          size_t n_ranges);

/* open, blank, items, blank, close; or open, blank, close if items can be empty. */
uint32_t json_enclose(struct json_language *language, const char *open, uint32_t items,
                      const char *close);

#endif
