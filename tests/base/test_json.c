#include "base/json.h"
#include "helpers/cm.h"

#include <math.h>
#include <stdlib.h>

static void test_reads_in_order_with_fallbacks(void **state)
{
    struct err err = { 0 };
    struct str text = STR("{\"z\":1,\"a\":[true,null,2.5,64.0],\"s\":\"x\\u0000y\"}");
    struct json *j = json_parse(text, &err);
    uint32_t u = 9;
    (void)state;
    assert_non_null(j);
    void *member = json_first(j);
    assert_true(str_is(json_member_key(member), "z"));
    member = json_next(j, member);
    assert_true(str_is(json_member_key(member), "a"));
    const struct json *a = json_get(j, "a");
    assert_int_equal(json_size(a), 4);
    assert_true(json_bool(json_at(a, 0), false));
    assert_int_equal(json_kind(json_at(a, 1)), JSON_KIND_NULL);
    assert_int_equal(json_int(json_at(a, 2), -1), -1); // has a fraction
    assert_true(json_read_u32(json_at(a, 3), &u) && u == 64);
    assert_false(json_read_u32(json_at(a, 2), &u));
    assert_int_equal(json_int(json_get(json_get(json_get(j, "no"), "no"), "no"), 5), 5);
    assert_int_equal(json_text(json_get(j, "s")).size, 3);
    assert_null(json_at(a, 4));
    json_free(j);
}

static void refuse(const char *text)
{
    struct err err = { 0 };
    struct json *j = json_parse(str_from(text), &err);
    if (j)
        fail_msg("accepted: %s", text);
    assert_int_equal(err.code, ERR_FORMAT);
}

static void test_refuses_what_is_not_json(void **state)
{
    (void)state;
    refuse("");
    refuse("{\"a\":1,\"a\":2}");
    refuse("{\"a\":1} x");
    refuse("\"\xFF\"");
    refuse("\"\\ud800\"");
    refuse("[1,]");
    refuse("NaN");
    char *deep = calloc(1, 100001);
    memset(deep, '[', 100000);
    refuse(deep);
    free(deep);
}

static void test_doubles_are_shortest_and_exact(void **state)
{
    static const double values[] = { 0.1, 1e-7, 1e300, 123456.789, 5e-324, 1.0 / 3 };
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct buf out;
        buf_init(&out, 64);
        json_write_double(&out, values[i]);
        assert_true(strtod(out.data, NULL) == values[i]);
        buf_clear(&out);
        json_write_double(&out, 0.1);
        assert_string_equal(out.data, "0.1");
        buf_clear(&out);
        json_write_double(&out, NAN);
        assert_string_equal(out.data, "null");
        buf_release(&out);
    }
}

static void test_writes_what_it_read(void **state)
{
    struct err err = { 0 };
    const char *text = "{\"k\":[1,-2,0.5,true,null,\"a\\n\\\"\\\\\\u0001\xC3\xA9\"],\"e\":{}}";
    struct json *j = json_parse(str_from(text), &err);
    struct buf out;
    (void)state;
    assert_non_null(j);
    buf_init(&out, 1000);
    json_write_value(&out, j);
    assert_string_equal(out.data, text);
    buf_clear(&out);
    json_write_string(&out, STR("a\xFF"
                                "b"));
    assert_string_equal(out.data, "\"a\xEF\xBF\xBD"
                                  "b\"");
    buf_release(&out);
    json_free(j);
}

/* tokenizer_config.json of real models says model_max_length in thirty digits. */
static void test_integers_past_64_bits(void **state)
{
    struct err err = { 0 };
    uint32_t small;
    (void)state;
    struct json *json = json_parse(STR("{\"a\": 1000000000000000019884624838656, \"b\": 7}"), &err);
    if (!json)
        fail_msg("%s", err.text);
    assert_true(json_number(json_get(json, "a"), 0) == 1000000000000000019884624838656.0);
    assert_true(json_read_u32(json_get(json, "b"), &small) && small == 7);
    json_free(json);
    assert_null(json_parse(STR("1e999"), &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_in_order_with_fallbacks),
        cmocka_unit_test(test_refuses_what_is_not_json),
        cmocka_unit_test(test_doubles_are_shortest_and_exact),
        cmocka_unit_test(test_writes_what_it_read),
        cmocka_unit_test(test_integers_past_64_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
