/* Text comes out as soon as it is certain and never sooner. The vocabulary is the mock's: bytes. */
#include "generate/completion.h"

#include "helpers/cm.h"
#include "text/tokenizer.h"
#include "text/tokenizer_mock.h"

static struct tokenizer *tokenizer;

struct run {
    struct completion completion;
    struct buf out;
    enum completion_state state;
};

static void begin(struct run *run, uint32_t max_tokens, const struct str *stops, uint32_t n_stops)
{
    const struct completion_options options = {
        .tokenizer = tokenizer, .stops = stops, .n_stops = n_stops, .max_tokens = max_tokens
    };
    struct err err;
    assert_true(completion_init(&run->completion, &options, &err));
    buf_init(&run->out, 1 << 20);
    run->state = COMPLETION_GOES_ON;
}

/* Pushes bytes until the end; the text given out so far must then be `expected`. */
static void push(struct run *run, const char *bytes, const char *expected)
{
    for (; *bytes != '\0' && run->state == COMPLETION_GOES_ON; bytes++)
        run->state = completion_push(&run->completion, (uint8_t)*bytes, &run->out);
    assert_string_equal(run->out.data ? run->out.data : "", expected);
    assert_int_equal(run->completion.given_bytes, run->out.size);
}

static void finish(struct run *run)
{
    buf_release(&run->out);
    completion_release(&run->completion);
}

static void test_plain(void **state)
{
    (void)state;
    struct run run;
    begin(&run, 100, NULL, 0);
    push(&run, "word", "word");
    assert_int_equal(run.state, COMPLETION_GOES_ON);
    run.state = completion_push(&run.completion, TOKENIZER_MOCK_END, &run.out);
    assert_int_equal(run.state, COMPLETION_STOP);
    push(&run, "", "word");
    assert_true(run.completion.ended_without_text);
    assert_int_equal(run.completion.n_tokens, 5);
    finish(&run);
}

static void test_length(void **state)
{
    (void)state;
    struct run run;
    begin(&run, 3, NULL, 0);
    push(&run, "ab", "ab");
    assert_int_equal(run.state, COMPLETION_GOES_ON);
    push(&run, "cd", "abc");
    assert_int_equal(run.state, COMPLETION_LENGTH);
    finish(&run);
}

/* The last token allowed may also be an end or complete a stop text: then that is the reason. */
static void test_length_and_stop(void **state)
{
    (void)state;
    struct run run;
    begin(&run, 1, NULL, 0);
    assert_int_equal(completion_push(&run.completion, TOKENIZER_MOCK_END, &run.out),
                     COMPLETION_STOP);
    finish(&run);
    begin(&run, 3, &STR("c"), 1);
    push(&run, "abc", "ab");
    assert_int_equal(run.state, COMPLETION_STOP);
    finish(&run);
}

static void test_characters_are_whole(void **state)
{
    (void)state;
    struct run run;
    begin(&run, 100, NULL, 0);
    push(&run, "a\xf0\x9f\x98", "a");
    push(&run, "\x80", "a\xf0\x9f\x98\x80");
    push(&run, "\xe2\x82", "a\xf0\x9f\x98\x80");
    run.state = completion_push(&run.completion, TOKENIZER_MOCK_END, &run.out);
    push(&run, "", "a\xf0\x9f\x98\x80\xef\xbf\xbd"); // what never ended is U+FFFD
    finish(&run);
}

static void test_stop_is_held_back(void **state)
{
    (void)state;
    struct run run;
    begin(&run, 100, (struct str[]){ STR("\nUser:"), STR("END") }, 2);
    push(&run, "one\nUs", "one");
    push(&run, "ual", "one\nUsual"); // it was none
    push(&run, " EN\n", "one\nUsual EN");
    push(&run, "User", "one\nUsual EN");
    push(&run, ":more", "one\nUsual EN");
    assert_int_equal(run.state, COMPLETION_STOP);
    assert_int_equal(run.completion.n_tokens, 18);
    finish(&run);
}

/* Held text comes out when the answer ends without the stop text. */
static void test_held_at_the_end(void **state)
{
    (void)state;
    struct run run;
    begin(&run, 100, &STR("END"), 1);
    push(&run, "the EN", "the ");
    run.state = completion_push(&run.completion, TOKENIZER_MOCK_END, &run.out);
    push(&run, "", "the EN");
    assert_int_equal(run.state, COMPLETION_STOP);
    finish(&run);
    begin(&run, 6, &STR("END"), 1);
    push(&run, "the EN", "the EN");
    assert_int_equal(run.state, COMPLETION_LENGTH);
    finish(&run);
}

static void test_stop_of_many_bytes(void **state)
{
    (void)state;
    struct run run;
    begin(&run, 100, (struct str[]){ STR("\xe2\x82\xac!"), STR("\xe2\x82\xacx") }, 2);
    push(&run, "5\xe2\x82\xac", "5");
    push(&run, "\xe2\x82\xac", "5\xe2\x82\xac"); // whole characters also when held back
    push(&run, "x", "5\xe2\x82\xac");
    assert_int_equal(run.state, COMPLETION_STOP);
    finish(&run);
}

static void test_ignore_eos_and_special(void **state)
{
    (void)state;
    struct completion completion;
    struct buf out;
    struct err err;
    buf_init(&out, 1 << 20);
    struct completion_options options = { .tokenizer = tokenizer,
                                          .max_tokens = 3,
                                          .ignore_eos = true };
    assert_true(completion_init(&completion, &options, &err));
    assert_int_equal(completion_push(&completion, TOKENIZER_MOCK_END, &out), COMPLETION_GOES_ON);
    assert_int_equal(completion_push(&completion, 'x', &out), COMPLETION_GOES_ON);
    assert_int_equal(completion_push(&completion, TOKENIZER_MOCK_USER, &out), COMPLETION_LENGTH);
    assert_string_equal(out.data, "x");
    completion_release(&completion);
    buf_clear(&out);
    options.keep_special = true;
    assert_true(completion_init(&completion, &options, &err));
    completion_push(&completion, TOKENIZER_MOCK_END, &out);
    completion_push(&completion, TOKENIZER_MOCK_USER, &out);
    assert_string_equal(out.data, "<|end|><|user|>");
    completion_release(&completion);
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_length_and_stop),
        cmocka_unit_test(test_characters_are_whole),
        cmocka_unit_test(test_stop_is_held_back),
        cmocka_unit_test(test_held_at_the_end),
        cmocka_unit_test(test_stop_of_many_bytes),
        cmocka_unit_test(test_ignore_eos_and_special),
    };
    tokenizer = tokenizer_load_mock();
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    tokenizer_free(tokenizer);
    return n_failed;
}
