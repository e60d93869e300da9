/* JSON Schema (draft 2020-12) as a grammar: the texts of JSON values that a schema accepts.
 *
 * Understood: boolean schemas; type, enum, const; properties, required, additionalProperties,
 * unevaluatedProperties false, propertyNames (without properties), minProperties, maxProperties;
 * items, prefixItems, minItems, maxItems; minLength, maxLength, pattern, format (json_format.h);
 * minimum, maximum, exclusiveMinimum, exclusiveMaximum; anyOf, allOf, oneOf whose branches exclude
 * each other; $ref within the document ("#", pointers, $anchor), $defs, definitions, recursion.
 * Annotations (title, description, default, examples, $schema, $id, $comment, deprecated, readOnly,
 * writeOnly, x-...) are passed over. Any other keyword, and what cannot be done of these, is
 * ERR_UNSUPPORTED with the keyword and where it stands; nothing is silently left out.
 *
 * Every text of the grammar is accepted by the schema. Where a schema leaves open what a model
 * should not have to choose, the grammar has less: properties come in the schema's order; others
 * only if additionalProperties says so; without a type the keywords tell it. Pure: any thread. */
#ifndef CASCADIA_SAMPLE_JSON_SCHEMA_H
#define CASCADIA_SAMPLE_JSON_SCHEMA_H

#include "base/err.h"
#include "sample/grammar_rules.h"

#include <stdbool.h>

#define JSON_SCHEMA_DEPTH_CAP 100u       // schemas within each other, references counted
#define JSON_SCHEMA_PARTS_CAP 256u       // schemas that hold at one place
#define JSON_SCHEMA_PLACES_CAP 5000u     // different sets of them
#define JSON_SCHEMA_PROPERTIES_CAP 1000u // of one object
#define JSON_SCHEMA_COUNT_CAP 1000000u   // of minLength, maxItems, ...

bool json_schema_read(struct str text, struct grammar_rules *rules, struct err *err);

#endif
