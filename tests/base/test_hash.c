#include "base/hash.h"
#include "helpers/cm.h"

static void test_known_values(void **state)
{
    (void)state;
    assert_true(hash_xxh3("", 0) == UINT64_C(0x2d06800538d394c2)); // xxHash's published test vector
    assert_int_equal(hash_xxh32("", 0), 0x02cc5d05);
}

static void test_pieces_equal_the_whole(void **state)
{
    char text[1000];
    struct hash_stream *stream = hash_stream_new();
    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7);
    for (size_t at = 0; at < sizeof text; at += 100)
        hash_stream_add(stream, text + at, 100);
    assert_true(hash_stream_value(stream) == hash_xxh3(text, sizeof text));
    hash_stream_free(stream);
}

static void test_hex_round_trips(void **state)
{
    char hex[17];
    uint64_t back = 0;
    (void)state;
    hash_hex(UINT64_C(0x0123456789abcdef), hex);
    assert_string_equal(hex, "0123456789abcdef");
    assert_true(hash_from_hex(str_from(hex), &back) && back == UINT64_C(0x0123456789abcdef));
    assert_false(hash_from_hex(STR("0123456789ABCDEF"), &back));
    assert_false(hash_from_hex(STR("0123"), &back));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_pieces_equal_the_whole),
        cmocka_unit_test(test_hex_round_trips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
