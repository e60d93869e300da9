#include "helpers/cm.h"
#include "net/address.h"

static void check_same(const char *text)
{
    struct address address;
    struct err err;
    char again[ADDRESS_TEXT_CAP];
    assert_true(address_parse(str_from(text), &address, &err));
    address_format(&address, again);
    assert_string_equal(again, text);
}

static void test_forms_survive_a_round_trip(void **state)
{
    (void)state;
    check_same("127.0.0.1:9000");
    check_same("localhost:1");
    check_same("node-3.lan:65535");
    check_same("[::1]:9000");
    check_same("[fe80::1%eth0]:9000");
    check_same("unix:/tmp/a:b");
    check_same("0.0.0.0:0");
}

static void test_what_is_no_address(void **state)
{
    static const char *const bad[] = { "",         "9000",       "host",      ":9000",
                                       "host:",    "host:65536", "host:-1",   "host:12x",
                                       "::1:9000", "[::1]",      "[::1]9000", "[::1:9000",
                                       "[]:9000",  "unix:",      "a:b:9000",  "host: 1" };
    char long_path[ADDRESS_PATH_CAP + 8] = "unix:";
    char long_host[ADDRESS_HOST_CAP + 8];
    struct address address;
    struct err err;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(address_parse(str_from(bad[i]), &address, &err));
        assert_int_equal(err.code, ERR_ARGUMENT);
    }
    memset(long_path + 5, 'p', ADDRESS_PATH_CAP);
    assert_false(address_parse((struct str){ long_path, 5 + ADDRESS_PATH_CAP }, &address, &err));
    assert_true(address_parse((struct str){ long_path, 4 + ADDRESS_PATH_CAP }, &address, &err));
    memset(long_host, 'h', sizeof long_host);
    memcpy(long_host + ADDRESS_HOST_CAP, ":1", 2);
    assert_false(address_parse((struct str){ long_host, ADDRESS_HOST_CAP + 2 }, &address, &err));
    assert_true(address_parse((struct str){ long_host + 1, ADDRESS_HOST_CAP + 1 }, &address, &err));
    assert_false(address_parse(STR("a\0b:1"), &address, &err));
}

static void test_loopback_and_wildcard(void **state)
{
    static const struct {
        const char *text;
        bool loopback, wildcard;
    } rows[] = {
        { "127.0.0.1:1", true, false },
        { "127.9.8.7:1", true, false },
        { "128.0.0.1:1", false, false },
        { "[::1]:1", true, false },
        { "[::ffff:127.0.0.1]:1", true, false },
        { "[::ffff:10.0.0.1]:1", false, false },
        { "localhost:1", true, false },
        { "LocalHost:1", true, false },
        { "localhost.example.org:1", false, false },
        { "127.0.0.1.example.org:1", false, false },
        { "0.0.0.0:1", false, true },
        { "[::]:1", false, true },
        { "192.168.1.4:1", false, false },
        { "unix:/tmp/x", true, false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct address address;
        struct err err;
        assert_true(address_parse(str_from(rows[i].text), &address, &err));
        assert_int_equal(address_is_loopback(&address), rows[i].loopback);
        assert_int_equal(address_is_wildcard(&address), rows[i].wildcard);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms_survive_a_round_trip),
        cmocka_unit_test(test_what_is_no_address),
        cmocka_unit_test(test_loopback_and_wildcard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
