#include "text/tokenizer_gguf.h"

#include <math.h>
#include <string.h>

#include "helpers/cm.h"
#include "helpers/small_tokenizer.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

#define MARK "\xe2\x96\x81"
#define TOKEN(text)                                                                                \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    } // STR, in a static table
#define N_SCORED 14

/* A SentencePiece vocabulary: the types and scores decide what is merged with what, and when. */
static const struct str scored_tokens[N_SCORED] = {
    TOKEN("<unk>"),  TOKEN("<s>"), TOKEN("</s>"), TOKEN("<0x41>"), TOKEN(MARK),
    TOKEN("a"),      TOKEN("b"),   TOKEN("ab"),   TOKEN("ba"),     TOKEN(MARK "a"),
    TOKEN("<user>"), TOKEN("aba"), TOKEN("<"),    TOKEN("unused"),
};
static const int32_t scored_types[N_SCORED] = { 2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 4, 1, 1, 5 };
static const float scores[N_SCORED] = { 0, 0, 0, 0, -9, -9, -9, -2, -2, -5, 0, -3, -9, 0 };

static struct tokenizer_gguf scored(void)
{
    struct tokenizer_gguf gguf;
    tokenizer_gguf_init(&gguf);
    gguf.model = STR("llama");
    gguf.tokens = scored_tokens;
    gguf.n_tokens = N_SCORED;
    gguf.token_types = scored_types;
    gguf.scores = scores;
    gguf.bos_id = 1;
    gguf.eos_id = 2;
    gguf.unknown_id = 0;
    return gguf;
}

static struct tokenizer *load(const struct tokenizer_gguf *gguf)
{
    struct err err = { 0 };
    struct tokenizer *tokenizer = tokenizer_load_gguf(gguf, &err);
    if (!tokenizer)
        fail_msg("%s", err.text);
    return tokenizer;
}

static void test_scores_decide(void **state)
{
    struct tokenizer_gguf gguf = scored();
    struct tokenizer *tokenizer = load(&gguf);
    (void)state;
    assert_small_ids(tokenizer, "a", true, "9");
    assert_small_ids(tokenizer, "ab", true, "4 7");    // ab has the better score than the marked a
    assert_small_ids(tokenizer, "bab", true, "4 8 6"); // equal scores: the left pair first
    assert_small_ids(tokenizer, "aba", true, "4 11");
    assert_small_ids(tokenizer, "A", true, "4 3");         // a byte
    assert_small_ids(tokenizer, "c\xc3\xa9", true, "4 0"); // unknown ones are one
    assert_small_ids(tokenizer, "<user>a", false, "10 9");
    assert_small_ids(tokenizer, "a<s>a", true, "9 1 9");
    assert_small_ids(tokenizer, "</s>", false, "4 12 0");
    tokenizer_free(tokenizer);
    gguf.add_space_prefix = TOKENIZER_GGUF_NO;
    tokenizer = load(&gguf);
    assert_small_ids(tokenizer, "a", true, "5");
    tokenizer_free(tokenizer);
}

static void test_decoding_takes_the_prefix_back(void **state)
{
    static const uint32_t ids[] = { 1, 9, 3, 9, 10, 2 };
    struct tokenizer_gguf gguf = scored();
    struct tokenizer *tokenizer = load(&gguf);
    struct detokenizer detokenizer;
    struct buf out;
    (void)state;
    buf_init(&out, 1000);
    detokenizer_init(&detokenizer, tokenizer, true, NULL, 0);
    for (size_t i = 0; i < 6; i++)
        detokenizer_push(&detokenizer, ids[i], &out);
    assert_string_equal(out.data, "aA a<user>");
    buf_release(&out);
    tokenizer_free(tokenizer);
}

static void assert_around(const struct tokenizer_gguf *gguf, const char *expected)
{
    struct tokenizer *tokenizer = load(gguf);
    const struct tokenizer_segment segment = { STR("a"), true };
    struct token_list ids;
    struct err err;
    struct buf out;
    token_list_init(&ids, 100);
    buf_init(&out, 1000);
    assert_true(tokenizer_encode(tokenizer, &segment, 1,
                                 &(struct tokenizer_encode_options){ .add_special = true }, &ids,
                                 &err));
    for (size_t i = 0; i < ids.n_ids; i++)
        buf_printf(&out, "%u ", ids.ids[i]);
    assert_string_equal(out.data, expected);
    buf_release(&out);
    token_list_release(&ids);
    tokenizer_free(tokenizer);
}

static void test_flags_say_what_is_added(void **state)
{
    struct tokenizer_gguf gguf = scored();
    (void)state;
    assert_around(&gguf, "1 9 "); // the model's default
    gguf.add_bos = TOKENIZER_GGUF_NO;
    assert_around(&gguf, "9 ");
    gguf.add_eos = TOKENIZER_GGUF_YES;
    assert_around(&gguf, "9 2 ");
}

/* A vocabulary of merges: "a", "b", "ab", the letter of the blank, a control token. */
static const struct str letters[] = { TOKEN("a"), TOKEN("b"), TOKEN("ab"), TOKEN("\xc4\xa0"),
                                      TOKEN("<|im_end|>") };
static const int32_t letter_types[] = { 1, 1, 1, 1, 3 };
static const struct str merges[] = { TOKEN("a b") };

static struct tokenizer_gguf merged(struct str pre)
{
    struct tokenizer_gguf gguf;
    tokenizer_gguf_init(&gguf);
    gguf.model = STR("gpt2");
    gguf.pre = pre;
    gguf.tokens = letters;
    gguf.n_tokens = 5;
    gguf.token_types = letter_types;
    gguf.merges = merges;
    gguf.n_merges = 1;
    return gguf;
}

static void test_merges_and_end(void **state)
{
    struct tokenizer_gguf gguf = merged(STR("qwen2"));
    (void)state;
    struct tokenizer *tokenizer = load(&gguf);
    assert_small_ids(tokenizer, "ab ab<|im_end|>", true, "2 3 2 4");
    assert_small_ids(tokenizer, "a1b", true, "0 1"); // no byte: dropped, and the digit parts them
    assert_true(tokenizer_is_end(tokenizer, 4));     // by name
    tokenizer_free(tokenizer);
}

static void assert_refused(const struct tokenizer_gguf *gguf, enum err_code code, const char *words)
{
    struct err err = { 0 };
    assert_null(tokenizer_load_gguf(gguf, &err));
    if (err.code != code || !strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

static void test_refuses_by_name(void **state)
{
    struct tokenizer_gguf gguf = merged(STR("new-model"));
    (void)state;
    assert_refused(&gguf, ERR_UNSUPPORTED, "new-model");
    gguf.pre = STR("");
    assert_refused(&gguf, ERR_UNSUPPORTED, "tokenizer.ggml.pre");
    gguf = merged(STR("gpt-2"));
    gguf.model = STR("rwkv");
    assert_refused(&gguf, ERR_UNSUPPORTED, "rwkv");
    gguf = merged(STR("gpt-2"));
    gguf.eos_id = 5;
    assert_refused(&gguf, ERR_FORMAT, "special token 5");
    gguf = merged(STR("gpt-2"));
    gguf.merges = (struct str[]){ STR("a c") };
    assert_refused(&gguf, ERR_FORMAT, "a c");
    gguf.merges = (struct str[]){ STR("ab") };
    assert_refused(&gguf, ERR_FORMAT, "no pair");
    gguf = merged(STR("gpt-2"));
    gguf.token_types = (int32_t[]){ 1, 1, 1, 9, 1 };
    assert_refused(&gguf, ERR_FORMAT, "token 3");
    gguf = scored();
    gguf.scores = NULL;
    assert_refused(&gguf, ERR_FORMAT, "scores");
    gguf = scored();
    gguf.n_tokens = 0;
    assert_refused(&gguf, ERR_FORMAT, "0 tokens");
    float bad[N_SCORED] = { 0 };
    bad[3] = NAN;
    gguf = scored();
    gguf.scores = bad;
    assert_refused(&gguf, ERR_FORMAT, "token 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores_decide),
        cmocka_unit_test(test_decoding_takes_the_prefix_back),
        cmocka_unit_test(test_flags_say_what_is_added),
        cmocka_unit_test(test_merges_and_end),
        cmocka_unit_test(test_refuses_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
