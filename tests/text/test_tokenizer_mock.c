#include "text/tokenizer_mock.h"

#include "helpers/cm.h"
#include "helpers/small_tokenizer.h"
#include "text/tokenizer.h"

static void test_bytes_and_marks(void **state)
{
    struct tokenizer *mock = tokenizer_load_mock();
    size_t n;
    uint32_t id;
    (void)state;
    assert_int_equal(tokenizer_n_tokens(mock), TOKENIZER_MOCK_N_TOKENS);
    assert_small_ids(mock, "<|user|>hi\xc3\xa9<|end|><|assistant|><|system|>", true,
                     "256 104 105 195 169 259 257 258");
    assert_small_ids(mock, "<|end|>", false, "60 124 101 110 100 124 62");
    assert_int_equal(*tokenizer_end_ids(mock, &n), TOKENIZER_MOCK_END);
    assert_int_equal(n, 1);
    assert_false(tokenizer_bos(mock, &id));
    for (id = 0; id < 256; id++) {
        const struct str text = tokenizer_token_bytes(mock, id);
        assert_true(text.size == 1 && (uint8_t)text.data[0] == id);
        assert_false(tokenizer_is_special(mock, id));
    }
    for (; id < TOKENIZER_MOCK_N_TOKENS; id++)
        assert_true(tokenizer_is_special(mock, id) && tokenizer_is_control(mock, id));
    tokenizer_free(mock);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bytes_and_marks) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
