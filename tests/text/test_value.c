/* Values: Python's equality and keys, order of insertion, and what comes from JSON. */
#include "helpers/cm.h"
#include "text/value.h"

#include <stdio.h>
#include <string.h>

static struct arena arena;

static int open_arena(void **state)
{
    (void)state;
    arena_init(&arena, 1 << 22);
    return 0;
}

static int close_arena(void **state)
{
    (void)state;
    arena_release(&arena);
    return 0;
}

static struct value text(const char *bytes)
{
    struct value out;
    assert_true(value_string(&arena, str_from(bytes), false, &out));
    return out;
}

static struct value tuple(struct value a, struct value b)
{
    struct value out;
    assert_true(value_list_new(&arena, VALUE_TUPLE, &out));
    assert_true(value_list_add(&arena, &out, a) && value_list_add(&arena, &out, b));
    return out;
}

static void test_numbers_are_equal_across_types(void **state)
{
    (void)state;
    assert_true(value_equal(value_integer(1), value_float(1)));
    assert_true(value_equal(value_bool(true), value_integer(1)));
    assert_true(value_equal(value_bool(false), value_float(-0.0)));
    assert_false(value_equal(value_integer(INT64_MAX), value_float(9223372036854775808.0)));
    assert_false(value_equal(value_integer((1LL << 53) + 1), value_float(9007199254740992.0)));
    assert_false(value_equal(value_none(), value_bool(false)));
    assert_false(value_equal(value_none(), (struct value){ 0 }));
    assert_false(value_equal(text("1"), value_integer(1)));
    assert_true(value_equal(tuple(text("a"), value_integer(1)), tuple(text("a"), value_float(1))));
}

static void test_keys_are_one_as_in_python(void **state)
{
    struct value dict;
    (void)state;
    assert_true(value_dict_new(&arena, &dict));
    assert_true(value_dict_set(&arena, &dict, value_integer(1), text("a")));
    assert_true(value_dict_set(&arena, &dict, value_float(1), text("b")));
    assert_true(value_dict_set(&arena, &dict, value_bool(true), text("c")));
    assert_true(value_dict_set(&arena, &dict, text("1"), text("d")));
    assert_int_equal(dict.dict->size, 2);
    assert_true(value_equal(*value_dict_find(&dict, value_float(1)), text("c")));
    assert_true(value_equal(*value_dict_get(&dict, STR("1")), text("d")));
    assert_null(value_dict_get(&dict, STR("")));
    assert_null(value_dict_get(&(struct value){ 0 }, STR("1")));
    assert_true(value_dict_set(&arena, &dict, tuple(value_integer(1), text("x")), text("e")));
    assert_non_null(value_dict_find(&dict, tuple(value_float(1), text("x"))));
    struct value list;
    assert_true(value_list_new(&arena, VALUE_LIST, &list));
    assert_false(value_hashable(list));
    assert_false(value_hashable(tuple(value_none(), list)));
    assert_null(value_dict_find(&dict, list));
}

static void test_large_dictionaries_keep_their_order(void **state)
{
    struct value dict;
    char name[32];
    (void)state;
    assert_true(value_dict_new(&arena, &dict));
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "key %d", i * 7919 % 5000);
        assert_true(value_dict_set(&arena, &dict, text(name), value_integer(i)));
    }
    assert_int_equal(dict.dict->size, 5000);
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "key %d", i * 7919 % 5000);
        assert_int_equal(value_dict_get(&dict, str_from(name))->integer, i);
        assert_true(str_is(traced_str(dict.dict->entries[i].key.string), name));
    }
    assert_null(value_dict_get(&dict, STR("key 5000")));
}

static struct json *nested(size_t depth)
{
    char source[1024] = { 0 };
    struct err err = { 0 };
    memset(source, '[', depth);
    memset(source + depth, ']', depth);
    struct json *json = json_parse(str_from(source), &err);
    assert_non_null(json);
    return json;
}

static void test_json_becomes_values(void **state)
{
    struct err err = { 0 };
    struct value value;
    size_t end;
    struct json *json =
        json_parse(STR("{\"z\":[1,2.0,null,true,\"\\u0000é\"],\"a\":{\"k\":\"\"}}"), &err);
    (void)state;
    assert_non_null(json);
    assert_true(value_from_json(&arena, json, false, &value, &err));
    json_free(json); // nothing is borrowed from it
    const struct value *list = value_dict_get(&value, STR("z"));
    assert_true(str_is(traced_str(value.dict->entries[0].key.string), "z"));
    assert_int_equal(list->list->size, 5);
    assert_int_equal(list->list->items[1].type, VALUE_FLOAT);
    assert_int_equal(list->list->items[2].type, VALUE_NONE);
    assert_int_equal(traced_size(list->list->items[4].string), 3);
    assert_false(traced_origin(list->list->items[4].string, 0, &end));
    assert_int_equal(value_dict_get(value_dict_get(&value, STR("a")), STR("k"))->type,
                     VALUE_STRING);
}

static void test_depth_and_memory_have_ceilings(void **state)
{
    struct err err = { 0 };
    struct value value = value_integer(7);
    struct arena small;
    struct json *deep = nested(VALUE_DEPTH_CAP + 2), *fine = nested(VALUE_DEPTH_CAP);
    (void)state;
    assert_false(value_from_json(&arena, deep, false, &value, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    assert_int_equal(value.integer, 7); // untouched
    assert_true(value_from_json(&arena, fine, false, &value, &err));
    arena_init(&small, 512);
    assert_false(value_from_json(&small, fine, false, &value, &err));
    assert_int_equal(err.code, ERR_NO_MEMORY);
    arena_release(&small);
    json_free(deep);
    json_free(fine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_numbers_are_equal_across_types, open_arena,
                                        close_arena),
        cmocka_unit_test_setup_teardown(test_keys_are_one_as_in_python, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(test_large_dictionaries_keep_their_order, open_arena,
                                        close_arena),
        cmocka_unit_test_setup_teardown(test_json_becomes_values, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(test_depth_and_memory_have_ceilings, open_arena,
                                        close_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
