/* Figures of a row against sums in double, and of many rows against values worked out by hand. */
#include "cli/divergence.h"

#include "helpers/cm.h"
#include "helpers/random_bits.h"

#include <math.h>
#include <string.h>

enum { N = 1003 }; // not a multiple of any lane count

/* ln p and p of logits, in double. */
static void distribution(const float *logits, double *ln_p)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += exp((double)logits[i]);
    for (int i = 0; i < N; i++)
        ln_p[i] = (double)logits[i] - log(sum);
}

static void fill(float *logits, float spread, uint64_t *seed)
{
    for (int i = 0; i < N; i++)
        logits[i] = spread * random_normal(seed);
}

static void test_a_row_against_sums_in_double(void **state)
{
    static float reference[N], logits[N], ln_p[N], p[N];
    static double wide_p[N], wide_q[N];
    (void)state;
    for (uint64_t seed = 1; seed < 20; seed++) {
        uint64_t random = seed;
        fill(reference, 3, &random);
        fill(logits, 1, &random);
        for (int i = 0; i < N; i++) // from close by to far away
            logits[i] = reference[i] + logits[i] * 0.3f * (float)(seed % 5);
        distribution(reference, wide_p);
        distribution(logits, wide_q);
        double wanted = 0;
        uint32_t top = 0;
        for (uint32_t i = 0; i < N; i++) {
            ln_p[i] = (float)wide_p[i];
            p[i] = (float)exp(wide_p[i]);
            wanted += exp(wide_p[i]) * (wide_p[i] - wide_q[i]);
            top = reference[i] > reference[top] ? i : top;
        }
        const struct divergence_input input = {
            .ln_p = ln_p,
            .p = p,
            .top = top,
            .logits = logits,
            .n = N,
            .next = (uint32_t)seed,
        };
        struct divergence_row row;
        assert_true(divergence_measure(kernel_best()->vec, &input, &row));
        assert_true(fabs(row.divergence - wanted) < 2e-6 + 1e-5 * wanted);
        assert_true(fabs(row.loss + wide_q[seed]) < 1e-5);
        assert_true(fabs(row.reference_loss + wide_p[seed]) < 1e-5);
        if (seed % 5 == 0)
            assert_true(row.is_same_top);
    }
}

static void test_what_is_not_finite_is_told(void **state)
{
    static float logits[N], ln_p[N], p[N];
    struct divergence_row row;
    (void)state;
    for (int i = 0; i < N; i++) {
        ln_p[i] = -logf((float)N);
        p[i] = 1.0f / (float)N;
    }
    const struct divergence_input input = { ln_p, p, 0, logits, N, 5 };
    assert_true(divergence_measure(kernel_best()->vec, &input, &row));
    logits[17] = NAN;
    assert_false(divergence_measure(kernel_best()->vec, &input, &row));
    logits[17] = INFINITY;
    assert_false(divergence_measure(kernel_best()->vec, &input, &row));
    logits[17] = -INFINITY;
    assert_false(divergence_measure(kernel_best()->vec, &input, &row));
}

static void test_another_first_choice(void **state)
{
    static float logits[N], ln_p[N], p[N];
    struct divergence_row row;
    (void)state;
    for (int i = 0; i < N; i++) {
        ln_p[i] = -logf((float)N);
        p[i] = 1.0f / (float)N;
    }
    const struct divergence_input input = { ln_p, p, 7, logits, N, 5 };
    logits[7] = 1;
    assert_true(divergence_measure(kernel_best()->vec, &input, &row) && row.is_same_top);
    logits[6] = 1; // the lowest among equals is first
    assert_true(divergence_measure(kernel_best()->vec, &input, &row) && !row.is_same_top);
}

static void assert_near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-9 * (1 + fabs(wanted))))
        fail_msg("%.12f instead of %.12f", value, wanted);
}

static void test_a_summary_by_hand(void **state)
{
    struct divergence_row rows[] = {
        { .divergence = 0.3, .loss = 2, .reference_loss = 1, .is_same_top = true },
        { .divergence = 0.1, .loss = 1, .reference_loss = 1, .is_same_top = true },
        { .divergence = 0.2, .loss = 3, .reference_loss = 1, .is_same_top = false },
        { .divergence = 1.4, .loss = 2, .reference_loss = 1, .is_same_top = true },
    };
    struct divergence_summary summary;
    (void)state;
    divergence_summarise(rows, 4, &summary);
    assert_int_equal(summary.n_rows, 4);
    assert_near(summary.divergence.value, 0.5);
    /* squares of -0.2, -0.4, -0.3, 0.9: 1.1; over 3, over 4 */
    assert_near(summary.divergence.error, sqrt(1.1 / 12));
    assert_near(summary.divergence_median, 0.2);
    assert_near(summary.divergence_99, 1.4);
    assert_near(summary.divergence_max, 1.4);
    assert_near(summary.same_top.value, 0.75);
    assert_near(summary.perplexity.value, exp(2));
    assert_near(summary.perplexity.error, exp(2) * sqrt(2.0 / 12));
    assert_near(summary.reference_perplexity.value, exp(1));
    assert_near(summary.reference_perplexity.error, 0);
    assert_near(summary.ratio.value, exp(1));
    assert_near(summary.ratio.error, exp(1) * sqrt(2.0 / 12));
}

static void test_quantiles(void **state)
{
    static struct divergence_row rows[1000];
    struct divergence_summary summary;
    (void)state;
    for (int i = 0; i < 1000; i++)
        rows[i] = (struct divergence_row){ .divergence = (i * 7 + 3) % 1000 }; // 0 .. 999 shuffled
    divergence_summarise(rows, 1000, &summary);
    assert_near(summary.divergence_median, 499);
    assert_near(summary.divergence_99, 990);
    divergence_summarise(rows, 1, &summary);
    assert_near(summary.divergence_99, 0);
    assert_near(summary.divergence.error, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_row_against_sums_in_double),
        cmocka_unit_test(test_what_is_not_finite_is_told),
        cmocka_unit_test(test_another_first_choice),
        cmocka_unit_test(test_a_summary_by_hand),
        cmocka_unit_test(test_quantiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
