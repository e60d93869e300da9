/* The best few against a sort of everything. */
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

static void check_count(const float *logits, uint32_t n, uint32_t count)
{
    uint32_t *best = xcalloc(count, sizeof(*best)); // exactly: asan sees a step beyond
    const uint32_t n_best = candidates_best(logits, n, count, best);
    assert_int_equal(n_best, count < n_sorted ? count : n_sorted);
    assert_memory_equal(best, sorted, n_best * sizeof(*best));
    free(best);
}

static void check_sizes(void (*fill)(float *logits, uint32_t n))
{
    float logits[N_CAP];
    for (uint32_t n = 1; n <= N_CAP; n += n < 70 ? 1 : 105) {
        fill(logits, n);
        sort_all(logits, n);
        check_count(logits, n, 1);
        check_count(logits, n, 1 + n / 7);
        check_count(logits, n, n);
        check_count(logits, n, n + 5);
        uint32_t backwards[N_CAP];
        for (uint32_t i = 0; i < n_sorted; i++)
            backwards[i] = sorted[n_sorted - 1 - i];
        candidates_sort(logits, backwards, n_sorted);
        assert_memory_equal(backwards, sorted, n_sorted * sizeof(*sorted));
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
