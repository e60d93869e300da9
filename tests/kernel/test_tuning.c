/* Which walk a core gets: the table's, or one that the probe measured. */
#include "helpers/cm.h"

#include <stdlib.h>
#include <string.h>

#include "kernel/tuning.h"

static void test_table(void **state)
{
    (void)state;
    struct matmul_tuning tuning = { .n_panels = 77 };
    assert_false(tuning_find(CPU_MICROARCH_UNKNOWN, &tuning));
    assert_int_equal(tuning.n_panels, 77);
    assert_true(tuning_find(CPU_ZEN4, &tuning));
    assert_int_equal(tuning.prefetch_bytes, 0);
    assert_string_equal(tuning_hint_name(&tuning), "none");
    assert_true(tuning_find(CPU_EMERALD_RAPIDS, &tuning));
    assert_int_equal(tuning.n_panels, 4);
    assert_string_equal(tuning_hint_name(&tuning), "T0");
    for (int core = 0; core < CPU_MICROARCH_COUNT; core++) {
        if (tuning_find((enum cpu_microarch)core, &tuning))
            assert_true(tuning.n_panels == 1 || tuning.n_panels == 2 || tuning.n_panels == 4);
    }
}

static void test_probe(void **state)
{
    (void)state;
    uint8_t *const memory = aligned_alloc(64, TUNING_PROBE_BYTES);
    assert_non_null(memory);
    memset(memory, 0, TUNING_PROBE_BYTES);
    const struct matmul_tuning found = tuning_probe(kernel_best(), memory);
    bool is_candidate = false;
    for (uint32_t i = 0; i < TUNING_CANDIDATES; i++)
        is_candidate |= memcmp(&found, &tuning_candidates[i], sizeof(found)) == 0;
    assert_true(is_candidate);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_probe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
