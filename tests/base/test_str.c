#include "base/str.h"
#include "helpers/cm.h"

static void test_find_and_split(void **state)
{
    struct str rest = STR("a,,b"), part;
    (void)state;
    assert_int_equal(str_find(STR("abcabd"), STR("abd")), 3);
    assert_int_equal(str_find(STR("aaab"), STR("aab")), 1);
    assert_true(str_find(STR("ab"), STR("abc")) == SIZE_MAX);
    assert_int_equal(str_find(STR(""), STR("")), 0);
    assert_true(str_split(&rest, ',', &part) && str_is(part, "a"));
    assert_true(str_split(&rest, ',', &part) && str_is(part, ""));
    assert_true(str_split(&rest, ',', &part) && str_is(part, "b"));
    assert_false(str_split(&rest, ',', &part));
    assert_true(str_is(str_trim(STR(" \t x y\r\n")), "x y"));
    assert_true(str_compare(STR("ab"), STR("abc")) < 0);
    assert_true(str_equal_nocase(STR("Content-Length"), STR("content-lengtH")));
}

static void test_numbers(void **state)
{
    uint64_t u = 7;
    double d = 7;
    (void)state;
    assert_true(str_to_u64(STR("18446744073709551615"), &u) && u == UINT64_MAX);
    u = 7;
    assert_false(str_to_u64(STR("18446744073709551616"), &u));
    assert_false(str_to_u64(STR(""), &u));
    assert_false(str_to_u64(STR("-1"), &u));
    assert_false(str_to_u64(STR(" 1"), &u));
    assert_int_equal(u, 7);
    assert_true(str_to_double(STR("-1.5e3"), &d) && d == -1500);
    assert_false(str_to_double(STR("nan"), &d));
    assert_false(str_to_double(STR("1e999"), &d));
    assert_false(str_to_double(STR("0x10"), &d));
    assert_false(str_to_double(STR("1 "), &d));
}

static void test_every_code_point_round_trips(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        char bytes[4];
        uint32_t back = 0;
        size_t size = utf8_write(c, bytes);
        struct str s = { bytes, size };
        bool surrogate = c >= 0xD800 && c <= 0xDFFF;
        assert_int_equal(utf8_decode(s, &back), surrogate ? 0 : size);
        if (surrogate)
            continue;
        assert_int_equal(back, c);
        for (size_t cut = 1; cut < size; cut++) {
            assert_int_equal(utf8_decode(str_slice(s, 0, cut), &back), 0);
            assert_int_equal(utf8_complete_prefix(str_slice(s, 0, cut)), 0);
        }
        assert_int_equal(utf8_complete_prefix(s), size);
    }
}

static void test_bad_utf8_is_refused(void **state)
{
    (void)state;
    assert_true(utf8_valid(STR("h\xC3\xA9\xF0\x9F\x98\x80")));
    assert_false(utf8_valid(STR("\xC0\x80")));         // overlong
    assert_false(utf8_valid(STR("\xE0\x9F\xBF")));     // overlong
    assert_false(utf8_valid(STR("\xF4\x90\x80\x80"))); // past the end
    assert_false(utf8_valid(STR("\x80")));
    assert_false(utf8_valid(STR("a\xE2\x82")));
}

static void test_prefix_holds_only_what_can_become_a_character(void **state)
{
    (void)state;
    assert_int_equal(utf8_complete_prefix(STR("ab\xE2\x82")), 2);
    assert_int_equal(utf8_complete_prefix(STR("ab\xF0\x9F\x98")), 2);
    assert_int_equal(utf8_complete_prefix(STR("ab\xE0\x9F")), 4);  // cannot: overlong
    assert_int_equal(utf8_complete_prefix(STR("ab\xED\xA0")), 4);  // cannot: surrogate
    assert_int_equal(utf8_complete_prefix(STR("ab\xC1")), 3);      // cannot
    assert_int_equal(utf8_complete_prefix(STR("ab\xE2\x82z")), 5); // broken already
    assert_int_equal(utf8_complete_prefix(STR("\x80\x80")), 2);
}

static void test_distance_counts_slips(void **state)
{
    (void)state;
    assert_int_equal(str_distance(STR("shard"), STR("shard")), 0);
    assert_int_equal(str_distance(STR("shrad"), STR("shard")), 2); // two letters changed
    assert_int_equal(str_distance(STR("shar"), STR("shard")), 1);
    assert_int_equal(str_distance(STR("sshard"), STR("shard")), 1);
    assert_int_equal(str_distance(STR(""), STR("run")), 3);
    assert_int_equal(str_distance(STR("0123456789012345678901234567890123456789"),
                                  STR("01234567890123456789012345678901")),
                     0); // what is beyond the cap does not count
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find_and_split),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_every_code_point_round_trips),
        cmocka_unit_test(test_bad_utf8_is_refused),
        cmocka_unit_test(test_prefix_holds_only_what_can_become_a_character),
        cmocka_unit_test(test_distance_counts_slips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
