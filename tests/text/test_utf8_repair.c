#include "text/utf8_repair.h"

#include "helpers/cm.h"

#define BAD "\xef\xbf\xbd"

static void assert_repaired(struct str in, const char *expected)
{
    struct buf out;
    buf_init(&out, 1000);
    buf_add(&out, "", 0);
    utf8_repair(in, &out);
    assert_string_equal(out.data, expected);
    buf_release(&out);
}

/* The table of the Unicode standard, section 3.9, and its borders. */
static void test_maximal_parts(void **state)
{
    (void)state;
    assert_repaired(STR("a\xf1\x80\x80\xe1\x80\xc2"
                        "b\x80"
                        "c\x80\xbf"
                        "d"),
                    "a" BAD BAD BAD "b" BAD "c" BAD BAD "d");
    assert_repaired(STR("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82"
                        "A"),
                    BAD BAD BAD BAD BAD BAD BAD BAD "A");
    assert_repaired(STR("\xed\xa0\x80\xed\xbf\xbf\xed\xaf"
                        "A"),
                    BAD BAD BAD BAD BAD BAD BAD BAD "A");
    assert_repaired(STR("\xf4\x91\x92\x93\xff"
                        "A\x80\xbf"
                        "B"),
                    BAD BAD BAD BAD BAD "A" BAD BAD "B");
    assert_repaired(STR("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
                        "A"),
                    BAD BAD BAD BAD "A");
    assert_repaired(STR("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80"),
                    "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80");
    assert_repaired(STR("\xc3"), BAD);
    assert_repaired(STR(""), "");
}

static void test_valid_prefix(void **state)
{
    (void)state;
    assert_int_equal(utf8_valid_prefix(STR("plain text of sixteen and more")), 30);
    assert_int_equal(utf8_valid_prefix(STR("12345678\xff"
                                           "1234567890")),
                     8);
    assert_int_equal(utf8_valid_prefix(STR("1234567\xe4\xb8\xad\xe4\xb8")), 10);
    assert_int_equal(utf8_valid_prefix(STR("\x80")), 0);
    assert_int_equal(utf8_valid_prefix(STR_NONE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maximal_parts),
        cmocka_unit_test(test_valid_prefix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
