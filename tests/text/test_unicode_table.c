#include "text/unicode_table.h"

#include "helpers/cm.h"

static void test_samples(void **state)
{
    static const struct {
        uint32_t code;
        unsigned properties;
    } samples[] = {
        { 'A', UNICODE_UPPER | UNICODE_WORD },
        { 'z', UNICODE_LOWER | UNICODE_WORD },
        { '_', UNICODE_PUNCTUATION | UNICODE_WORD },
        { '$', UNICODE_SYMBOL },
        { '\n', UNICODE_SPACE },
        { 0x180e, 0 },
        { 0x3000, UNICODE_SPACE | UNICODE_DECOMPOSES },
        { 0x1c5, UNICODE_UPPER | UNICODE_WORD | UNICODE_DECOMPOSES }, // titlecase
        { 0x301, UNICODE_MARK | UNICODE_WORD | UNICODE_UNSTABLE },
        { 0x4e2d, UNICODE_CASELESS | UNICODE_WORD },
        { 0xbd, UNICODE_NUMBER | UNICODE_DECOMPOSES },
        { 0x663, UNICODE_NUMBER | UNICODE_WORD },
        { 0x2160, UNICODE_NUMBER | UNICODE_WORD | UNICODE_DECOMPOSES }, // alphabetic, too
        { 0xac00, UNICODE_CASELESS | UNICODE_WORD | UNICODE_DECOMPOSES },
        { 0x1161, UNICODE_CASELESS | UNICODE_WORD | UNICODE_UNSTABLE },
        { 0x200d, UNICODE_WORD },                     // a joiner
        { 0xeba, UNICODE_MARK | UNICODE_WORD },       // came after Unicode 9: stable
        { 0x105c0, UNICODE_CASELESS | UNICODE_WORD }, // of Unicode 16
        { 0xd800, 0 },
        { 0x10ffff, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        const unsigned have = unicode_properties(samples[i].code);
        if (have != samples[i].properties)
            fail_msg("U+%04X: %x instead of %x", samples[i].code, have, samples[i].properties);
    }
}

/* Counts of code points, as Unicode 16's own files give them. */
static void test_counts(void **state)
{
    size_t n_space = 0, n_marks = 0, n_numbers = 0;
    (void)state;
    for (uint32_t code = 0; code < 0x110000; code++) {
        const unsigned properties = unicode_properties(code);
        n_space += (properties & UNICODE_SPACE) != 0;
        n_marks += (properties & UNICODE_MARK) != 0;
        n_numbers += (properties & UNICODE_NUMBER) != 0;
    }
    assert_int_equal(n_space, 25);
    assert_int_equal(n_marks, 2501);
    assert_int_equal(n_numbers, 1911);
}

static void test_next(void **state)
{
    unsigned size;
    (void)state;
    assert_true(unicode_next("\x7f", &size) == 0x7f && size == 1);
    assert_true(unicode_next("\xdf\xbf", &size) == 0x7ff && size == 2);
    assert_true(unicode_next("\xef\xbf\xbd", &size) == 0xfffd && size == 3);
    assert_true(unicode_next("\xf4\x8f\xbf\xbf", &size) == 0x10ffff && size == 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
