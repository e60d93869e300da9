/* Frequencies against values computed with NumPy in float64 from transformers' formulas, and tables
 * against libm. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/rope.h"

static const double short_list[4] = { 1, 1.1, 1.5, 2.5 };
static const double long_list[4] = { 1.5, 2, 4, 8 };

static struct rope_config base(enum rope_type type)
{
    return (struct rope_config){
        .type = type,
        .theta = 10000,
        .factor = 4,
        .original_positions = 64,
        .low_freq_factor = 1,
        .high_freq_factor = 4,
        .beta_fast = 4,
        .beta_slow = 1,
        .truncate = true,
        .short_divisors = short_list,
        .long_divisors = long_list,
        .divisors = long_list,
    };
}

static void assert_frequencies(const struct rope_config *config, uint32_t ctx_size,
                               const double expected[4], double expected_factor)
{
    double frequencies[4], factor;
    rope_frequencies(config, 8, 256, ctx_size, frequencies, &factor);
    for (uint32_t i = 0; i < 4; i++) {
        if (fabs(frequencies[i] - expected[i]) > 1e-12 * expected[i])
            fail_msg("pair %u: %.17g, not %.17g", i, frequencies[i], expected[i]);
    }
    assert_true(fabs(factor - expected_factor) < 1e-12);
}

static void test_frequencies(void **state)
{
    (void)state;
    struct rope_config config = base(ROPE_DEFAULT);
    assert_frequencies(&config, 300, (const double[4]){ 1, 0.1, 0.01, 0.001 }, 1);
    config = base(ROPE_LINEAR);
    assert_frequencies(&config, 300, (const double[4]){ 0.25, 0.025, 0.0025, 0.00025 }, 1);
    config = base(ROPE_DIVISORS);
    assert_frequencies(&config, 300, (const double[4]){ 1 / 1.5, 0.05, 0.0025, 0.000125 }, 1);
    /* 64 positions make 10.2, 1.02, 0.1, 0.01 turns: kept, between, stretched, stretched. */
    config = base(ROPE_LLAMA3);
    const double turns = 64 * 0.1 / (2 * acos(-1.0)), smooth = (turns - 1) / 3;
    assert_frequencies(
        &config, 300,
        (const double[4]){ 1, (1 - smooth) * 0.1 / 4 + smooth * 0.1, 0.0025, 0.00025 }, 1);
}

static void test_lengths(void **state)
{
    (void)state;
    struct rope_config config = base(ROPE_DYNAMIC);
    /* Up to max_positions nothing changes; at twice that theta x (4 * 2 - 3)^(8/6). */
    assert_frequencies(&config, 256, (const double[4]){ 1, 0.1, 0.01, 0.001 }, 1);
    const double theta = 10000 * pow(5, 8.0 / 6);
    assert_frequencies(
        &config, 512,
        (const double[4]){ 1, pow(theta, -0.25), pow(theta, -0.5), pow(theta, -0.75) }, 1);
    config = base(ROPE_LONGROPE);
    const double factor = sqrt(1 + log(4) / log(64));
    assert_frequencies(&config, 64, (const double[4]){ 1, 0.1 / 1.1, 0.01 / 1.5, 0.001 / 2.5 },
                       factor);
    assert_frequencies(&config, 65, (const double[4]){ 1 / 1.5, 0.05, 0.0025, 0.000125 }, factor);
    config.factor = 0; // then max_positions / original: 4 again
    assert_frequencies(&config, 64, (const double[4]){ 1, 0.1 / 1.1, 0.01 / 1.5, 0.001 / 2.5 },
                       factor);
    config.attention_factor = 1.25;
    assert_frequencies(&config, 64, (const double[4]){ 1, 0.1 / 1.1, 0.01 / 1.5, 0.001 / 2.5 },
                       1.25);
}

static void test_yarn(void **state)
{
    (void)state;
    struct rope_config config = base(ROPE_YARN);
    /* corr(4) = 8 ln(64 / (8 pi)) / (2 ln 10000) = 0.406, corr(1) = 1.008: rounded 0 and 2. */
    const double factor = 0.1 * log(4) + 1;
    assert_frequencies(&config, 300, (const double[4]){ 1, 0.1 * 0.625, 0.0025, 0.00025 }, factor);
    config.truncate = false;
    const double low = 8 * log(64 / (8 * acos(-1.0))) / (2 * log(10000));
    const double high = 8 * log(64 / (2 * acos(-1.0))) / (2 * log(10000));
    const double ramp = (1 - low) / (high - low);
    config.mscale = 2;
    config.mscale_all_dim = 1;
    assert_frequencies(&config, 300,
                       (const double[4]){ 1, 0.1 / 4 * ramp + 0.1 * (1 - ramp), 0.0025, 0.00025 },
                       (0.2 * log(4) + 1) / factor);
    config.attention_factor = 1.4;
    assert_frequencies(&config, 300,
                       (const double[4]){ 1, 0.1 / 4 * ramp + 0.1 * (1 - ramp), 0.0025, 0.00025 },
                       1.4);
}

static void test_tables(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct team *team = team_new(2, &err);
    struct rope_table table;
    const struct rope_config config = base(ROPE_DEFAULT);
    assert_non_null(team);
    assert_true(rope_table_init(&table, &config, 8, 256, 5000, team, &err));
    assert_int_equal(table.n_pairs, 4);
    for (uint32_t position = 0; position < 5000; position += 7) {
        for (uint32_t i = 0; i < 4; i++) {
            const double angle = position * pow(10000, -0.25 * i);
            assert_true(fabs(rope_cos(&table, position)[i] - cos(angle)) < 1e-7);
            assert_true(fabs(rope_sin(&table, position)[i] - sin(angle)) < 1e-7);
        }
    }
    rope_table_release(&table);
    rope_table_release(&table);
    struct rope_config fast = base(ROPE_DIVISORS);
    const double tiny[4] = { 1, 1e-9, 1, 1 };
    fast.divisors = tiny;
    assert_false(rope_table_init(&table, &fast, 8, 256, 5000, team, &err));
    assert_int_equal(err.code, ERR_FORMAT);
    team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_tables),
    };
    return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
