/* Known answers of Philox4x32-10 from the Random123 distribution's kat_vectors, and what the
 * program builds on it. */
#include "sample/rng.h"

#include "helpers/cm.h"

static void check_block(const uint32_t counter[4], const uint32_t key[2],
                        const uint32_t expected[4])
{
    uint32_t out[4];
    rng_philox(counter, key, out);
    for (int i = 0; i < 4; i++)
        assert_int_equal(out[i], expected[i]);
}

static void test_known_answers(void **state)
{
    (void)state;
    check_block((uint32_t[4]){ 0, 0, 0, 0 }, (uint32_t[2]){ 0, 0 },
                (uint32_t[4]){ 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 });
    check_block((uint32_t[4]){ UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX },
                (uint32_t[2]){ UINT32_MAX, UINT32_MAX },
                (uint32_t[4]){ 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd });
    check_block((uint32_t[4]){ 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
                (uint32_t[2]){ 0xa4093822, 0x299f31d0 },
                (uint32_t[4]){ 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 });
}

/* 100 bins over neighbouring positions and over neighbouring seeds: chi-square with 99 degrees of
 * freedom is below 148.2 with probability 0.999; the numbers are fixed, so the test is too. */
static void test_uniform(void **state)
{
    (void)state;
    for (int by_seed = 0; by_seed < 2; by_seed++) {
        uint32_t bins[100] = { 0 };
        const uint64_t n = 100000;
        for (uint64_t i = 0; i < n; i++) {
            const double u = by_seed ? rng_uniform(i, 17) : rng_uniform(1, i);
            assert_true(u >= 0.0 && u < 1.0);
            bins[(int)(u * 100.0)]++;
        }
        double chi_square = 0.0;
        for (int bin = 0; bin < 100; bin++) {
            const double off = (double)bins[bin] - (double)n / 100.0;
            chi_square += off * off / ((double)n / 100.0);
        }
        assert_true(chi_square < 148.2);
        assert_true(chi_square > 56.0); // too even would be no randomness either
    }
}

static void test_all_bits_count(void **state)
{
    (void)state;
    const double base = rng_uniform(0, 0);
    for (int bit = 0; bit < 64; bit++) {
        assert_true(rng_uniform((uint64_t)1 << bit, 0) != base);
        assert_true(rng_uniform(0, (uint64_t)1 << bit) != base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_all_bits_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
