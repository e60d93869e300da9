/* The wire form goes there and back, and nothing else gets through. */
#include "sample/sampling_params.h"

#include <math.h>
#include <stdlib.h>

#include "helpers/cm.h"

static struct sampling_params everything(void)
{
    struct sampling_params params;
    sampling_params_init(&params);
    params.temperature = 0.7f;
    params.top_k = 40;
    params.top_p = 0.95f;
    params.min_p = 0.05f;
    params.repetition_penalty = 1.1f;
    params.presence_penalty = -0.5f;
    params.frequency_penalty = 0.25f;
    params.seed = 0x0123456789abcdefull;
    params.prompt_rows = 70000;
    params.token_cap = 151669;
    params.n_top = SAMPLING_TOP_CAP;
    params.want_logprob = true;
    params.n_bias = SAMPLING_BIAS_CAP;
    for (uint32_t i = 0; i < params.n_bias; i++)
        params.bias[i] = (struct sampling_bias){ (int32_t)(i * 517), (float)i / 3.0f - 50.0f };
    params.grammar = (struct sampling_grammar){ SAMPLING_GRAMMAR_GBNF, STR("root ::= \"\\x00\"") };
    return params;
}

static void check_equal(const struct sampling_params *a, const struct sampling_params *b)
{
    assert_true(a->temperature == b->temperature && a->top_k == b->top_k);
    assert_true(a->top_p == b->top_p && a->min_p == b->min_p);
    assert_true(a->repetition_penalty == b->repetition_penalty);
    assert_true(a->presence_penalty == b->presence_penalty);
    assert_true(a->frequency_penalty == b->frequency_penalty);
    assert_true(a->seed == b->seed && a->prompt_rows == b->prompt_rows);
    assert_true(a->token_cap == b->token_cap && a->n_top == b->n_top);
    assert_true(a->want_logprob == b->want_logprob && a->n_bias == b->n_bias);
    assert_memory_equal(a->bias, b->bias, a->n_bias * sizeof(a->bias[0]));
    assert_true(a->grammar.language == b->grammar.language);
    assert_true(str_equal(a->grammar.text, b->grammar.text));
}

static void test_round_trip(void **state)
{
    (void)state;
    struct sampling_params cases[2] = { everything() };
    sampling_params_init(&cases[1]);
    struct buf bytes;
    buf_init(&bytes, 1 << 16);
    for (int i = 0; i < 2; i++) {
        buf_clear(&bytes);
        sampling_params_encode(&cases[i], &bytes);
        const size_t size = bytes.size;
        buf_add_text(&bytes, "what follows is somebody else's");
        struct sampling_params decoded;
        size_t used = 0;
        struct err err;
        assert_true(sampling_params_decode(buf_view(&bytes), &decoded, &used, &err));
        assert_int_equal(used, size);
        check_equal(&cases[i], &decoded);
    }
    buf_release(&bytes);
}

/* The form is part of the protocol: these bytes are pinned. */
static void test_bytes(void **state)
{
    (void)state;
    static const uint8_t expected[] = {
        0x00, 0x00, 0x80, 0x3f, 5,  0, 0, 0,    0, 0, 0x80, 0x3f, 0, 0, 0, 0, // 1.0, 5, 1.0, 0.0
        0x00, 0x00, 0x80, 0x3f, 0,  0, 0, 0,    0, 0, 0,    0,                // 1.0, 0.0, 0.0
        8,    7,    6,    5,    4,  3, 2, 1,                                  // seed
        9,    0,    0,    0,    10, 0, 0, 0,    2, 1, // rows, cap, top, flag
        1,    0,                                      // biases
        3,    3,    0,    0,    0,                    // regex, its bytes
        0x44, 0x33, 0x22, 0,    0,  0, 0, 0xbf,       // bias -0.5
        'a',  '|',  'b'
    };
    struct sampling_params params;
    sampling_params_init(&params);
    params.temperature = 1.0f;
    params.top_k = 5;
    params.seed = 0x0102030405060708ull;
    params.prompt_rows = 9;
    params.token_cap = 10;
    params.n_top = 2;
    params.want_logprob = true;
    params.n_bias = 1;
    params.bias[0] = (struct sampling_bias){ 0x223344, -0.5f };
    params.grammar = (struct sampling_grammar){ SAMPLING_GRAMMAR_REGEX, STR("a|b") };
    struct buf bytes;
    buf_init(&bytes, 1 << 16);
    sampling_params_encode(&params, &bytes);
    assert_int_equal(bytes.size, sizeof(expected));
    assert_memory_equal(bytes.data, expected, sizeof(expected));
    buf_release(&bytes);
}

static void test_cut_short(void **state)
{
    (void)state;
    const struct sampling_params params = everything();
    struct buf bytes;
    buf_init(&bytes, 1 << 16);
    sampling_params_encode(&params, &bytes);
    for (size_t size = 0; size < bytes.size; size++) {
        struct sampling_params decoded = { .top_k = 77 };
        size_t used = 77;
        struct err err = { 0 };
        assert_false(
            sampling_params_decode((struct str){ bytes.data, size }, &decoded, &used, &err));
        assert_int_equal(err.code, ERR_FORMAT);
        assert_int_equal(decoded.top_k, 77);
        assert_int_equal(used, 77);
    }
    buf_release(&bytes);
}

static void check_refused(const struct sampling_params *params, const char *name)
{
    struct err err = { 0 };
    assert_false(sampling_params_check(params, 100, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    assert_non_null(strstr(err.text, name));
    struct buf bytes;
    buf_init(&bytes, 1 << 16);
    sampling_params_encode(params, &bytes);
    struct sampling_params decoded;
    size_t used;
    assert_false(sampling_params_decode(buf_view(&bytes), &decoded, &used, &err));
    assert_int_equal(err.code, ERR_FORMAT);
    buf_release(&bytes);
}

static void test_ranges(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        const char *name;
        float low, high;
    } rows[] = {
        { offsetof(struct sampling_params, temperature), "temperature", 0.0f, 100.0f },
        { offsetof(struct sampling_params, top_p), "top_p", 0.0f, 1.0f },
        { offsetof(struct sampling_params, min_p), "min_p", 0.0f, 1.0f },
        { offsetof(struct sampling_params, repetition_penalty), "repetition_penalty", 0.01f,
          100.0f },
        { offsetof(struct sampling_params, presence_penalty), "presence_penalty", -100.0f, 100.0f },
        { offsetof(struct sampling_params, frequency_penalty), "frequency_penalty", -100.0f,
          100.0f },
    };
    struct err err;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sampling_params params;
        sampling_params_init(&params);
        float *field = (float *)(void *)((char *)&params + rows[i].offset);
        const float good[] = { rows[i].low, rows[i].high };
        const float bad[] = { nextafterf(rows[i].low, -INFINITY),
                              nextafterf(rows[i].high, INFINITY), NAN, INFINITY, -INFINITY };
        for (size_t j = 0; j < 2; j++) {
            *field = good[j];
            assert_true(sampling_params_check(&params, 100, &err));
        }
        for (size_t j = 0; j < sizeof(bad) / sizeof(bad[0]); j++) {
            *field = bad[j];
            check_refused(&params, rows[i].name);
        }
    }
}

static void test_counts_and_tokens(void **state)
{
    (void)state;
    struct sampling_params params;
    sampling_params_init(&params);
    params.n_top = SAMPLING_TOP_CAP + 1;
    check_refused(&params, "top_logprobs");
    params.n_top = 0;
    params.n_bias = 1;
    params.bias[0].token = -1;
    check_refused(&params, "token -1");
    params.bias[0] = (struct sampling_bias){ 3, NAN };
    check_refused(&params, "logit_bias");

    struct err err;
    params.bias[0] = (struct sampling_bias){ 99, 1.0f };
    assert_true(sampling_params_check(&params, 100, &err));
    params.bias[0].token = 100; // known where the vocabulary is known
    assert_false(sampling_params_check(&params, 100, &err));
    assert_true(sampling_params_check(&params, 0, &err));
    params.n_bias = SAMPLING_BIAS_CAP + 1;
    assert_false(sampling_params_check(&params, 0, &err));
}

static void test_grammars(void **state)
{
    (void)state;
    const size_t size = SAMPLING_GRAMMAR_BYTES_CAP + 1;
    char *text = calloc(size, 1);
    struct sampling_params params;
    sampling_params_init(&params);
    params.grammar = (struct sampling_grammar){ SAMPLING_GRAMMAR_GBNF, { text, size - 1 } };
    struct err err;
    assert_true(sampling_params_check(&params, 0, &err));
    params.grammar.text.size = size;
    assert_false(sampling_params_check(&params, 0, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    params.grammar = (struct sampling_grammar){ SAMPLING_GRAMMAR_NONE, STR("x") };
    assert_false(sampling_params_check(&params, 0, &err));
    params.grammar = (struct sampling_grammar){ (enum sampling_language)9, STR("x") };
    assert_false(sampling_params_check(&params, 0, &err));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_cut_short),  cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_grammars),   cmocka_unit_test(test_counts_and_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
