#include "helpers/sampling_golden.h"

#include "helpers/cm.h"

struct json *sampling_golden_open(void)
{
    struct err err = { 0 };
    struct json *golden =
        json_parse_file(SOURCE_DIR "/tests/golden/sampling/sampling.json", 1 << 20, &err);
    if (golden == NULL)
        fail_msg("%s", err.text);
    return golden;
}

uint32_t sampling_golden_floats(const struct json *array, float out[SAMPLING_GOLDEN_CAP])
{
    const size_t n = json_size(array);
    assert_in_range(n, 1, SAMPLING_GOLDEN_CAP);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)json_number(json_at(array, i), 0.0);
    return (uint32_t)n;
}

uint32_t sampling_golden_ids(const struct json *array, int32_t out[SAMPLING_GOLDEN_CAP])
{
    const size_t n = json_size(array);
    assert_in_range(n, 1, SAMPLING_GOLDEN_CAP);
    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)json_int(json_at(array, i), -1);
    return (uint32_t)n;
}

static float number(const struct json *object, const char *key, float otherwise)
{
    return (float)json_number(json_get(object, key), (double)otherwise);
}

void sampling_golden_params(const struct json *object, struct sampling_params *out)
{
    sampling_params_init(out);
    out->temperature = number(object, "temperature", 0.0f);
    out->top_k = (uint32_t)json_int(json_get(object, "top_k"), 0);
    out->top_p = number(object, "top_p", 1.0f);
    out->min_p = number(object, "min_p", 0.0f);
    out->repetition_penalty = number(object, "repetition_penalty", 1.0f);
    out->presence_penalty = number(object, "presence_penalty", 0.0f);
    out->frequency_penalty = number(object, "frequency_penalty", 0.0f);
    out->prompt_rows = (uint32_t)json_int(json_get(object, "prompt_rows"), 0);
    out->token_cap = (uint32_t)json_int(json_get(object, "token_cap"), 0);
    const struct json *bias = json_get(object, "bias");
    out->n_bias = (uint32_t)json_size(bias);
    for (size_t i = 0; i < out->n_bias; i++) {
        const struct json *pair = json_at(bias, i);
        out->bias[i].token = (int32_t)json_int(json_at(pair, 0), -1);
        out->bias[i].bias = (float)json_number(json_at(pair, 1), 0.0);
    }
}
