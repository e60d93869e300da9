/* The lazy order against a sort of everything. */
#include "sample/candidates.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "helpers/cm.h"
#include "sample/rng.h"

#define N_CAP 700u

static uint32_t sorted[N_CAP]; // all candidates in order, by the plainest of sorts
static uint32_t n_sorted;

static void sort_all(const float *logits, uint32_t n)
{
    n_sorted = 0;
    for (uint32_t id = 0; id < n; id++) {
        if (logits[id] == -INFINITY)
            continue;
        uint32_t at = n_sorted++;
        for (; at > 0 && logits[sorted[at - 1]] < logits[id]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = id;
    }
}

/* Any sequence of steps gives the sorted order. */
static void check_steps(const float *logits, uint32_t n, uint32_t step, uint32_t growth)
{
    sort_all(logits, n);
    uint32_t *order = xcalloc(n, sizeof(*order)); // exactly n: asan sees a step beyond
    uint32_t n_ready = 0;
    for (;;) {
        const uint32_t before = n_ready;
        n_ready = candidates_extend(logits, n, order, n_ready, step);
        assert_true(n_ready - before <= step);
        if (n_ready == before)
            break;
        step *= growth;
    }
    assert_int_equal(n_ready, n_sorted);
    assert_memory_equal(order, sorted, n_sorted * sizeof(*order));
    free(order);
}

static void check_sizes(void (*fill)(float *logits, uint32_t n))
{
    float logits[N_CAP];
    for (uint32_t n = 1; n <= N_CAP; n += n < 70 ? 1 : 105) {
        fill(logits, n);
        check_steps(logits, n, 1, 1);
        check_steps(logits, n, 7, 1);
        check_steps(logits, n, 3, 4);
        check_steps(logits, n, n, 1);
        check_steps(logits, n, n + 5, 1);
    }
}

static void fill_random(float *logits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        logits[i] = (float)rng_uniform(n, i) * 8.0f - 4.0f;
}

static void fill_ties(float *logits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        logits[i] = (float)(int)(rng_uniform(n, i) * 3.0);
}

static void fill_equal(float *logits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        logits[i] = 0.0f;
}

static void fill_rising(float *logits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        logits[i] = (float)i;
}

static void fill_masked(float *logits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        logits[i] = rng_uniform(n, i) < 0.5 ? -INFINITY : (float)(i % 5);
}

static void test_random(void **state)
{
    (void)state;
    check_sizes(fill_random);
}

static void test_ties(void **state)
{
    (void)state;
    check_sizes(fill_ties);
    check_sizes(fill_equal);
}

static void test_rising(void **state)
{
    (void)state;
    check_sizes(fill_rising);
}

static void test_masked(void **state)
{
    (void)state;
    check_sizes(fill_masked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_rising),
        cmocka_unit_test(test_masked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
