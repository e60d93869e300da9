#include "model/kv_cache.h"

#include "base/memory.h"
#include "helpers/cm.h"

#include <string.h>

static struct kv_cache_options options_of(uint32_t ctx_size, uint64_t memory_bytes)
{
    return (struct kv_cache_options){
        .shape = { .n_kv_heads = 2, .head_dim = 16, .type = KV_F16 },
        .n_layers = 3,
        .ctx_size = ctx_size,
        .max_rows = 8,
        .max_sequences = 2,
        .memory_bytes = memory_bytes,
    };
}

static void test_pool_holds_no_more_than_sequences_fill(void **state)
{
    const struct kv_cache_options options = options_of(128, UINT64_C(1) << 40);
    struct kv_cache cache;
    struct err err = { 0 };
    (void)state;
    assert_true(kv_cache_init(&cache, &options, &err));
    assert_int_equal(cache.pool_bytes, 2 * 3 * cache.page_bytes); // two full, and one to copy
    kv_cache_release(&cache);
    kv_cache_release(&cache);
}

static void test_more_than_the_machine_has_is_refused_with_the_sums(void **state)
{
    const struct kv_cache_options options = options_of(1u << 28, UINT64_C(1) << 46);
    struct kv_cache cache;
    struct err err = { 0 };
    (void)state;
    assert_false(kv_cache_init(&cache, &options, &err));
    assert_int_equal(err.code, ERR_NO_MEMORY);
    assert_non_null(strstr(err.text, "GiB free"));
}

static void test_too_little_for_a_page(void **state)
{
    const struct kv_cache_options options = options_of(128, 100);
    struct kv_cache cache;
    struct err err = { 0 };
    (void)state;
    assert_false(kv_cache_init(&cache, &options, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_holds_no_more_than_sequences_fill),
        cmocka_unit_test(test_more_than_the_machine_has_is_refused_with_the_sums),
        cmocka_unit_test(test_too_little_for_a_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
