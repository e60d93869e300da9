#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "helpers/cm.h"

#define N_SLOTS 4096u
#define N_IDS 40u

static struct bpe_merge slots[N_SLOTS];
static const struct bpe table = { slots, N_SLOTS - 1 };

/* Merges by the definition: the lowest rank, leftmost, one at a time. */
static size_t merge_by_definition(uint32_t *ids, size_t n)
{
    for (;;) {
        const struct bpe_merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const struct bpe_merge *merge = bpe_find(&table, ids[i], ids[i + 1]);
            if (merge && (!best || merge->rank < best->rank)) {
                best = merge;
                at = i;
            }
        }
        if (!best)
            return n;
        ids[at] = best->id;
        memmove(&ids[at + 1], &ids[at + 2], (n - at - 2) * sizeof ids[0]);
        n--;
    }
}

/* A table of random merges over N_IDS symbols, several pairs of one rank among them. */
static void fill_table(unsigned seed)
{
    struct bpe_merge merges[300];
    uint32_t state = seed;
    for (size_t i = 0; i < 300; i++) {
        state = state * 1664525u + 1013904223u;
        merges[i] = (struct bpe_merge){ .left = state >> 8 & 31,
                                        .right = state >> 16 & 31,
                                        .rank = (uint32_t)i / 3,
                                        .id = (state >> 24) % N_IDS };
    }
    bpe_index(merges, 300, slots, N_SLOTS - 1);
}

static void test_all_lengths_merge_as_defined(void **state)
{
    struct bpe_scratch scratch = { 0 };
    struct err err;
    uint32_t random = 7;
    (void)state;
    for (unsigned round = 0; round < 400; round++) {
        uint32_t ids[300], expected[300];
        const size_t n = round % 300;
        size_t n_left;
        fill_table(round);
        for (size_t i = 0; i < n; i++) {
            random = random * 1664525u + 1013904223u;
            ids[i] = expected[i] = random >> 20 & (round % 2 ? 31 : 1);
        }
        assert_true(bpe_apply(&table, &scratch, ids, n, &n_left, &err));
        assert_int_equal(n_left, merge_by_definition(expected, n));
        assert_memory_equal(ids, expected, n_left * sizeof ids[0]);
    }
    bpe_scratch_release(&scratch);
}

static void test_the_last_of_equal_pairs_counts(void **state)
{
    const struct bpe_merge merges[] = { { 1, 2, 0, 3 }, { 4, 5, 1, 6 }, { 1, 2, 2, 7 } };
    (void)state;
    bpe_index(merges, 3, slots, N_SLOTS - 1);
    assert_int_equal(bpe_find(&table, 1, 2)->id, 7);
    assert_int_equal(bpe_find(&table, 1, 2)->rank, 2);
    assert_null(bpe_find(&table, 2, 1));
}

/* A quadratic way takes minutes for this and runs into the test's time limit. */
static void test_a_million_of_one_symbol(void **state)
{
    const struct bpe_merge merges[] = { { 0, 0, 0, 1 }, { 1, 1, 1, 2 }, { 2, 2, 2, 3 } };
    const size_t n = 1000003;
    uint32_t *ids = calloc(n, sizeof ids[0]);
    struct bpe_scratch scratch = { 0 };
    struct err err;
    size_t n_left;
    (void)state;
    assert_non_null(ids);
    bpe_index(merges, 3, slots, N_SLOTS - 1);
    assert_true(bpe_apply(&table, &scratch, ids, n, &n_left, &err));
    assert_int_equal(n_left, n / 8 + 2); // 3 are left over: a 1 and a 0
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[n_left - 2], 1);
    assert_int_equal(ids[n_left - 1], 0);
    bpe_scratch_release(&scratch);
    free(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_lengths_merge_as_defined),
        cmocka_unit_test(test_the_last_of_equal_pairs_counts),
        cmocka_unit_test(test_a_million_of_one_symbol),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
