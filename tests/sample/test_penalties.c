/* Penalties and bias against the NumPy reference, bit for bit. */
#include "sample/penalties.h"

#include "helpers/cm.h"
#include "helpers/sampling_golden.h"

/* Every parameter of these cases but the prompt's length asks for a change. */
static void check_case(const struct json *object)
{
    float logits[SAMPLING_GOLDEN_CAP], expected[SAMPLING_GOLDEN_CAP];
    int32_t ids[SAMPLING_GOLDEN_CAP];
    uint32_t counts[SAMPLING_GOLDEN_CAP] = { 0 };
    struct sampling_params params;
    sampling_golden_params(json_get(object, "params"), &params);
    const uint32_t n = sampling_golden_floats(json_get(object, "logits"), logits);
    const uint32_t n_ids = sampling_golden_ids(json_get(object, "ids"), ids);
    assert_int_equal(sampling_golden_floats(json_get(object, "expected"), expected), n);
    assert_int_equal(penalties_wanted(&params), json_size(json_get(object, "params")) > 0);
    penalties_apply(&params, ids, n_ids, logits, n, counts);
    assert_memory_equal(logits, expected, n * sizeof(float));
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(counts[i], 0);
}

static void test_golden(void **state)
{
    (void)state;
    struct json *golden = sampling_golden_open();
    const struct json *cases = json_get(golden, "penalties");
    assert_true(json_size(cases) >= 9);
    for (size_t i = 0; i < json_size(cases); i++)
        check_case(json_at(cases, i));
    json_free(golden);
}

/* Ids of a larger vocabulary (padding, a wrong peer) touch nothing. */
static void test_foreign_ids(void **state)
{
    (void)state;
    struct sampling_params params;
    sampling_params_init(&params);
    params.repetition_penalty = 2.0f;
    params.presence_penalty = 1.0f;
    params.n_bias = 1;
    params.bias[0] = (struct sampling_bias){ 4, 9.0f };
    const int32_t ids[] = { -1, 4, INT32_MAX, INT32_MIN, 0 };
    float logits[5] = { 1.0f, 1.0f, 1.0f, 1.0f, 77.0f };
    uint32_t counts[5] = { 0 };
    penalties_apply(&params, ids, 5, logits, 4, counts);
    const float expected[5] = { -0.5f, 1.0f, 1.0f, 1.0f, 77.0f };
    assert_memory_equal(logits, expected, sizeof(expected));
    for (int i = 0; i < 5; i++)
        assert_int_equal(counts[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_foreign_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
