/* JSON Schema: which texts a schema lets through and which not, keyword by keyword, and the words
 * about what is not supported. That all texts of the grammar are valid is the matter of
 * tests/sample/test_schemas.py and tests/peers/schemas.py. */
#include "sample/json_schema.h"

#include <stdio.h>

#include "helpers/grammars.h"

#include "helpers/cm.h"

#define TEXTS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static struct grammars grammars;

static int set_up(void **state)
{
    (void)state;
    grammars_open(&grammars);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    grammars_close(&grammars);
    return 0;
}

static void check(const char *source, const char *const *texts)
{
    assert_grammar(&grammars, SAMPLING_GRAMMAR_JSON_SCHEMA, source, texts);
}

static void test_types(void **state)
{
    (void)state;
    check("true", TEXTS("+1", "+\"x\"", "+{\"a\": [1, null, {}]}", "+[]", "- 1", "-1 ", "-x", "-"));
    check("{\"type\":\"string\"}", TEXTS("+\"\"", "+\"a\\n\\u00e9\xc3\xa9\"", "-\"\n\"", "-\"\\x\"",
                                         "-\"\\ud800\"", "-\"", "-1", "-\"\\u12\"", "-\"\xff\""));
    check("{\"type\":\"number\"}",
          TEXTS("+0", "+-1.5e+10", "+12.25", "-01", "-.5", "-1.", "-1e", "-1e100", "-+1"));
    check("{\"type\":\"integer\"}", TEXTS("+0", "+-12", "-1.0", "-1e2", "-00"));
    check("{\"type\":[\"boolean\",\"null\"]}", TEXTS("+true", "+false", "+null", "-0", "-True"));
    check("{\"type\":\"object\"}", TEXTS("+{}", "+{ }", "+{\n  \"a\": 1,\n  \"b\": {}\n}",
                                         "-{\"a\"}", "-{\"a\":1,}", "-[]"));
    check("{\"type\":\"array\"}", TEXTS("+[]", "+[1, \"x\", [2]]", "-[1,]", "-[1 2]", "-{}"));
    check("{\"minLength\":2}", TEXTS("+\"ab\"", "-\"a\"", "-1")); // the keyword tells the type
}

static void test_values(void **state)
{
    (void)state;
    check("{\"enum\":[\"a\",1,null,{\"k\":[1]}]}",
          TEXTS("+\"a\"", "+1", "+null", "+{\"k\":[1]}", "-\"b\"", "-2"));
    check("{\"const\":\"q\\\"\\\\\\n\"}", TEXTS("+\"q\\\"\\\\\\n\"", "-\"q\""));
    check("{\"type\":\"integer\",\"enum\":[1,\"1\",2.5]}", TEXTS("+1", "-\"1\"", "-2.5"));
    check("{\"enum\":[1,5,9],\"minimum\":2,\"maximum\":8}", TEXTS("+5", "-1", "-9"));
    check("{\"enum\":[\"a\",\"abc\"],\"minLength\":2}", TEXTS("+\"abc\"", "-\"a\""));
    check("{\"allOf\":[{\"enum\":[1,2]},{\"enum\":[2,3]}]}", TEXTS("+2", "-1", "-3"));
}

static void test_strings(void **state)
{
    (void)state;
    check("{\"type\":\"string\",\"minLength\":1,\"maxLength\":2}",
          TEXTS("+\"a\"", "+\"\xf0\x9f\x99\x82\\n\"", "-\"\"", "-\"abc\""));
    check("{\"type\":\"string\",\"maxLength\":60}",
          TEXTS("+\"\"", "+\"123456789012345678901234567890123456789012345678901234567890\"",
                "-\"1234567890123456789012345678901234567890123456789012345678901\""));
    check("{\"pattern\":\"^[a-z]\\\\d$\"}", TEXTS("+\"a1\"", "-\"a\"", "-\"xa1\""));
    check("{\"pattern\":\"a\\\"b\"}", TEXTS("+\"xxa\\\"byy\"", "-\"ab\"", "-\"a\"b\""));
    check("{\"pattern\":\"^[\\\\s\\\\S]$\"}",
          TEXTS("+\"\\n\"", "+\"\\u0001\"", "+\"\\\\\"", "-\"\n\""));
    check("{\"pattern\":\"^[a-z]{2,3}$\",\"minLength\":2,\"maxLength\":9}",
          TEXTS("+\"ab\"", "-\"a\""));
    check("{\"format\":\"date\"}",
          TEXTS("+\"2024-02-29\"", "+\"1999-12-31\"", "-\"2023-02-29\"", "-\"2024-04-31\"",
                "-\"2024-13-01\"", "+\"2000-02-29\"", "-\"1900-02-29\""));
    check("{\"format\":\"date-time\"}",
          TEXTS("+\"2024-01-01T00:00:00Z\"", "+\"2024-01-01T23:59:59.5+01:00\"",
                "-\"2024-01-01 00:00:00Z\"", "-\"2024-01-01T24:00:00Z\""));
    check("{\"format\":\"uuid\"}", TEXTS("+\"123e4567-e89b-12d3-a456-426614174000\"", "-\"123\""));
    check("{\"format\":\"email\"}", TEXTS("+\"a.b@c.de\"", "-\"a@b\"", "-\".a@b.de\""));
    check("{\"format\":\"ipv4\"}", TEXTS("+\"255.0.10.1\"", "-\"256.0.0.1\"", "-\"1.2.3\""));
}

static void check_integer(int low, int high, int from, int to)
{
    char source[100], text[16];
    snprintf(source, sizeof source, "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}", low,
             high);
    struct grammar *grammar = grammars_compile(&grammars, SAMPLING_GRAMMAR_JSON_SCHEMA, source);
    for (int value = from; value <= to; value++) {
        int32_t ids[16];
        struct grammar_place place = { 0 };
        struct err err;
        const int size = snprintf(text, sizeof text, "%d", value);
        for (int i = 0; i < size; i++)
            ids[i] = (uint8_t)text[i];
        const bool matches = grammar_follow(grammar, &place, ids, (uint32_t)size, &err) &&
                             grammar_may_end(grammar, &place);
        if (matches != (value >= low && value <= high))
            fail_msg("%s: %d", source, value);
    }
    grammar_free(grammar);
}

static void test_numbers(void **state)
{
    (void)state;
    static const int bounds[][2] = { { 0, 0 },     { 3, 7 },       { -5, 5 },    { 95, 105 },
                                     { 100, 999 }, { -1205, -98 }, { 7, 1234 },  { -1, 2000 },
                                     { 1, 10 },    { 19, 21 },     { -999, -1 }, { 1090, 2011 } };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        check_integer(bounds[i][0], bounds[i][1], -2100, 2100);
    check("{\"type\":\"integer\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":3}",
          TEXTS("-0", "+1", "+2", "-3", "--1", "--0"));
    check("{\"type\":\"integer\",\"minimum\":10}", TEXTS("-9", "+10", "+999999999999999", "--10"));
    check("{\"type\":\"integer\",\"maximum\":-2}", TEXTS("+-2", "+-1000", "--1", "-0"));
    check("{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
          TEXTS("+0", "+1", "+0.5", "+1.0", "+0.999", "-1.01", "-2", "--0.1", "-1e0"));
    check("{\"type\":\"number\",\"exclusiveMinimum\":0.25,\"exclusiveMaximum\":0.5}",
          TEXTS("-0.25", "+0.251", "+0.2500001", "+0.49", "-0.5", "-0.50", "-0.24", "-0.250"));
    check("{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":2.75}",
          TEXTS("+-1.5", "+-1.50", "--1.51", "+-0.3", "+0", "+2.75", "-2.751", "+2.7", "+1.99",
                "-3"));
    check("{\"type\":\"number\",\"minimum\":-2,\"maximum\":-1}",
          TEXTS("+-1", "+-2.0", "+-1.7", "--0.9", "-1", "--2.1"));
    assert_no_grammar(SAMPLING_GRAMMAR_JSON_SCHEMA,
                      "{\"type\":\"integer\",\"minimum\":5,\"maximum\":3}", ERR_ARGUMENT,
                      "no text");
}

static void test_arrays(void **state)
{
    (void)state;
    check("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
          TEXTS("-[]", "+[1]", "+[1,2, 3]", "-[1,2,3,4]", "-[\"a\"]"));
    check("{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":false}",
          TEXTS("+[]", "+[1]", "+[1,\"a\"]", "-[\"a\"]", "-[1,\"a\",2]"));
    check("{\"prefixItems\":[{\"type\":\"integer\"}],\"items\":{\"type\":\"null\"},\"minItems\":2}",
          TEXTS("+[1,null]", "+[1,null,null]", "-[1]", "-[1,2]"));
    check("{\"type\":\"array\",\"maxItems\":0}", TEXTS("+[]", "-[1]"));
    check(
        "{\"allOf\":[{\"items\":{\"minimum\":3}},{\"items\":{\"type\":\"integer\",\"maximum\":5}}],"
        "\"type\":\"array\"}",
        TEXTS("+[3,5]", "-[2]", "-[6]", "-[3.5]"));
}

static void test_objects(void **state)
{
    (void)state;
    check("{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"},\"c\":{}},"
          "\"required\":[\"b\"],\"additionalProperties\":false}",
          TEXTS("+{\"b\":null}", "+{\"a\":1,\"b\":null}", "+{\"b\":null,\"c\":[]}", "-{\"a\":1}",
                "-{\"b\":null,\"a\":1}", "-{}", "-{\"b\":null,\"d\":1}", "-{\"a\":1,,\"b\":null}"));
    check("{\"properties\":{\"a\":{\"type\":\"integer\"},\"ab\":{\"type\":\"null\"}},"
          "\"additionalProperties\":{\"type\":\"boolean\"}}",
          TEXTS("+{}", "+{\"a\":1,\"b\":true}", "+{\"abc\":true}", "+{\"\":false,\"x\":true}",
                "-{\"a\":true}", "-{\"ab\":true}", "-{\"x\":true,\"a\":1}"));
    check("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}}}",
          TEXTS("+{}", "+{\"a\":null}", "-{\"b\":1}"));
    check("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"null\"},\"minProperties\":1,"
          "\"maxProperties\":2}",
          TEXTS("-{}", "+{\"a\":null}", "+{\"a\":null,\"b\":null}",
                "-{\"a\":null,\"b\":null,\"c\":null}"));
    check("{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{\"const\":3}},"
          "\"minProperties\":2,\"maxProperties\":2,\"additionalProperties\":false}",
          TEXTS("+{\"a\":1,\"b\":2}", "+{\"a\":1,\"c\":3}", "+{\"b\":2,\"c\":3}", "-{\"a\":1}",
                "-{\"a\":1,\"b\":2,\"c\":3}", "-{}"));
    check("{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"x\",\"y\"]},"
          "\"additionalProperties\":{\"type\":\"null\"}}",
          TEXTS("+{\"x\":null}", "+{\"y\":null,\"x\":null}", "-{\"z\":null}"));
    check("{\"required\":[\"x\"],\"additionalProperties\":false,\"type\":\"object\","
          "\"properties\":{\"x\":{}}}",
          TEXTS("+{\"x\":1}", "-{}"));
}

static void test_combinations(void **state)
{
    (void)state;
    check("{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}",
          TEXTS("+1", "+\"a\"", "-\"ab\"", "-null"));
    check("{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":\"null\"}},"
          "\"required\":"
          "[\"k\",\"x\"]},{\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"]}]}",
          TEXTS("+{\"k\":\"a\",\"x\":null}", "+{\"k\":\"b\"}", "-{\"k\":\"a\"}", "-{\"k\":\"c\"}"));
    check("{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
          "{\"properties\":{\"a\":{\"minimum\":5},\"b\":{}},\"required\":[\"b\"]}]}",
          TEXTS("+{\"a\":5,\"b\":1}", "-{\"a\":4,\"b\":1}", "-{\"a\":5}"));
    check("{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/"
          "$defs/t\"}}}}",
          TEXTS("+[]", "+[[],[[]]]", "-[1]", "-[[]"));
    check("{\"$defs\":{\"a/b~\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/a~1b~0\"}",
          TEXTS("+null", "-1"));
    check("{\"$defs\":{\"n\":{\"$anchor\":\"here\",\"const\":7}},\"$ref\":\"#here\"}",
          TEXTS("+7", "-8"));
    check("{\"$ref\":\"#/$defs/"
          "n\",\"maximum\":3,\"$defs\":{\"n\":{\"type\":\"integer\",\"minimum\":2}}}",
          TEXTS("+2", "+3", "-1", "-4"));
    check("{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"},{\"type\":\"array\",\"items\":{\"$"
          "ref\":\"#\"}}]}",
          TEXTS("+null", "+[null,[]]", "-1")); // a circle adds nothing
}

static void test_unsupported(void **state)
{
    (void)state;
    static const struct {
        const char *source, *words;
    } wrong[] = {
        { "{\"not\":{}}", "not at #" },
        { "{\"properties\":{\"a\":{\"items\":{\"multipleOf\":3}}}}",
          "multipleOf at #/properties/a/items" },
        { "{\"if\":{}}", "if at #" },
        { "{\"patternProperties\":{}}", "patternProperties at #" },
        { "{\"contains\":{}}", "contains at #" },
        { "{\"dependentRequired\":{}}", "dependentRequired at #" },
        { "{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems at #" },
        { "{\"nullable\":true}", "nullable at #" },
        { "{\"format\":\"iri\"}", "format at #" },
        { "{\"pattern\":\"(?=a)\"}", "pattern at #: at 2 of the pattern: look-around" },
        { "{\"pattern\":\"a\",\"maxLength\":3}", "minLength and maxLength" },
        { "{\"pattern\":\"a\",\"format\":\"date\"}", "format at #" },
        { "{\"enum\":[\"a\"],\"pattern\":\"a\"}", "pattern at #" },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "oneOf at #" },
        { "{\"oneOf\":[{\"type\":\"object\"},{\"type\":\"object\"}]}", "anyOf has no such need" },
        { "{\"$ref\":\"other.json\"}", "$ref at #" },
        { "{\"$ref\":\"#/$defs/x\"}", "no schema at this place" },
        { "{\"type\":\"text\"}", "type at #" },
        { "{\"type\":[]}", "type at #" },
        { "{\"minLength\":-1}", "minLength at #" },
        { "{\"maxItems\":1.5}", "maxItems at #" },
        { "{\"minimum\":\"1\"}", "minimum at #" },
        { "{\"items\":[{}]}", "prefixItems" },
        { "{\"properties\":[]}", "properties at #" },
        { "{\"required\":\"a\"}", "required at #" },
        { "{\"anyOf\":{}}", "anyOf at #" },
        { "{\"allOf\":[1]}", "allOf at #" },
        { "{\"type\":\"object\",\"minProperties\":3}", "minProperties at #" },
        { "{\"properties\":{\"a\":{}},\"propertyNames\":{\"maxLength\":3}}", "propertyNames at #" },
        { "{\"type\":\"number\",\"maximum\":1e300}", "too large" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_no_grammar(SAMPLING_GRAMMAR_JSON_SCHEMA, wrong[i].source, ERR_UNSUPPORTED,
                          wrong[i].words);
    assert_no_grammar(SAMPLING_GRAMMAR_JSON_SCHEMA, "{", ERR_ARGUMENT, "the schema");
    assert_no_grammar(SAMPLING_GRAMMAR_JSON_SCHEMA, "[]", ERR_ARGUMENT, "a schema is an object");
    assert_no_grammar(SAMPLING_GRAMMAR_JSON_SCHEMA, "false", ERR_ARGUMENT, "no text");
    assert_no_grammar(SAMPLING_GRAMMAR_JSON_SCHEMA,
                      "{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
                      ERR_ARGUMENT, "no text");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),        cmocka_unit_test(test_values),
        cmocka_unit_test(test_strings),      cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_arrays),       cmocka_unit_test(test_objects),
        cmocka_unit_test(test_combinations), cmocka_unit_test(test_unsupported),
    };
    return cmocka_run_group_tests_name("json_schema", tests, set_up, tear_down);
}
