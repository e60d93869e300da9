/* The chain in one process, with the mock engine: what goes in comes out, whatever the number of
 * stages. Faults of links and processes: test_faults.c. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "helpers/cm.h"
#include "pipeline/crew.h"
#include "text/tokenizer.h"
#include "text/tokenizer_mock.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 64u
#define MAX_SEQUENCES 8u
#define USER 256
#define ASSISTANT 257
#define END 259
#define VOCAB 260

static const uint32_t ends_of[4][4] = { { 8 }, { 3, 8 }, { 2, 5, 8 }, { 1, 2, 7, 8 } };

static struct crew *open_crew_with(uint32_t n_stages, uint64_t kv_memory_bytes,
                                   const struct tokenizer *tokenizer)
{
    const struct crew_options options = {
        .engine = { .model = "mock-model",
                    .engine = "mock",
                    .ctx_size = 1024,
                    .max_rows = MAX_ROWS,
                    .max_sequences = MAX_SEQUENCES,
                    .kv_memory_bytes = kv_memory_bytes },
        .n_stages = n_stages,
        .layer_ends = ends_of[n_stages - 1],
        .tokenizer = tokenizer,
    };
    struct err err;
    struct crew *crew = crew_open(&options, &err);
    if (!crew)
        fail_msg("%s", err.text);
    return crew;
}

static struct crew *open_crew(uint32_t n_stages, uint64_t kv_memory_bytes)
{
    return open_crew_with(n_stages, kv_memory_bytes, NULL);
}

/* A batch under construction. */
struct maker {
    struct batch batch;
    struct row rows[MAX_ROWS];
};

static struct maker *start(struct maker *maker, uint64_t id)
{
    maker->batch = (struct batch){ .id = id, .rows_cap = MAX_ROWS, .rows = maker->rows };
    return maker;
}

static void add_row(struct maker *maker, uint32_t sequence, uint32_t position, int32_t token,
                    uint32_t flags)
{
    assert_true(maker->batch.n_rows < MAX_ROWS);
    maker->rows[maker->batch.n_rows++] = (struct row){ sequence, position, token, flags };
}

/* "<user>text<end><assistant>", the last row sampled; returns its length. */
static uint32_t add_prompt(struct maker *maker, uint32_t sequence, const char *text)
{
    uint32_t position = 0;
    add_row(maker, sequence, position++, USER, 0);
    for (const char *at = text; *at; at++)
        add_row(maker, sequence, position++, *at, 0);
    add_row(maker, sequence, position++, END, 0);
    add_row(maker, sequence, position++, ASSISTANT, ROW_SAMPLE | ROW_LAST_OF_PROMPT);
    return position;
}

static const struct sampling_params *greedy(void)
{
    static struct sampling_params params;
    static bool made;
    if (!made)
        sampling_params_init(&params);
    made = true;
    return &params;
}

static void submit(struct pipeline *pipeline, const struct maker *maker)
{
    uint32_t sequences[MAX_ROWS], n = 0;
    const struct sampling_params *params[MAX_ROWS];
    struct err err;
    for (uint32_t i = 0; i < maker->batch.n_rows; i++) {
        if (maker->rows[i].flags & ROW_SAMPLE) {
            sequences[n] = maker->rows[i].sequence;
            params[n++] = greedy();
        }
    }
    if (!pipeline_submit(pipeline, &maker->batch, sequences, params, n, &err))
        fail_msg("%s", err.text);
}

static const struct pipeline_result *next(struct pipeline *pipeline)
{
    const struct pipeline_result *result = NULL;
    uint64_t started = clock_ms();
    while (!pipeline_poll(pipeline, 1000, &result))
        assert_true(clock_ms() - started < 20000);
    return result;
}

/* Asks `text` on a sequence and checks that it comes back. */
static void check_echo(struct pipeline *pipeline, uint32_t sequence, const char *text, uint64_t id)
{
    struct maker maker;
    uint32_t position = add_prompt(start(&maker, id), sequence, text);
    for (size_t i = 0; i <= strlen(text); i++) {
        submit(pipeline, &maker);
        const struct pipeline_result *result = next(pipeline);
        if (result->failed)
            fail_msg("%s", result->err.text);
        assert_true(result->batch == id);
        assert_int_equal(result->n_tokens, 1);
        assert_int_equal(result->rows[0], maker.batch.n_rows - 1);
        assert_int_equal(result->tokens[0].token, text[i] ? text[i] : END);
        add_row(start(&maker, ++id), sequence, position++, result->tokens[0].token, ROW_SAMPLE);
    }
}

static void test_the_mock_echoes_over_any_number_of_stages(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        struct crew *crew = open_crew(n, 0);
        struct pipeline *pipeline = crew_pipeline(crew);
        assert_int_equal(pipeline_state(pipeline), PIPELINE_READY);
        assert_true(pipeline_epoch(pipeline) > 0);
        assert_int_equal(pipeline_info(pipeline)->max_rows, MAX_ROWS);
        check_echo(pipeline, 3, "hello, chain", 1);
        pipeline_drop(pipeline, 3);
        check_echo(pipeline, 3, "again", 100);
        crew_close(crew);
    }
}

/* Eight sequences in one batch, three batches in flight. */
static void test_several_batches_in_flight_come_back_in_order(void **state)
{
    struct crew *crew = open_crew(3, 0);
    struct pipeline *pipeline = crew_pipeline(crew);
    struct maker maker;
    uint64_t submitted = 0, answered = 0;
    uint32_t length = 0;
    struct err err;
    (void)state;
    for (; submitted < 4; submitted++) { // each its own two sequences
        start(&maker, submitted);
        length = add_prompt(&maker, 2 * (uint32_t)submitted, "ab");
        add_prompt(&maker, 2 * (uint32_t)submitted + 1, "xy");
        submit(pipeline, &maker);
    }
    assert_false(pipeline_submit(pipeline, &maker.batch, NULL, NULL, 0, &err));
    assert_int_equal(err.code, ERR_BUSY);
    while (answered < 12) {
        const struct pipeline_result *result = next(pipeline);
        assert_false(result->failed);
        assert_true(result->batch == answered);
        assert_int_equal(result->n_tokens, 2);
        uint32_t round = (uint32_t)answered / 4, pair = 2 * ((uint32_t)answered % 4);
        static const int32_t expected[3][2] = { { 'a', 'x' }, { 'b', 'y' }, { END, END } };
        assert_int_equal(result->tokens[0].token, expected[round][0]);
        assert_int_equal(result->tokens[1].token, expected[round][1]);
        answered++;
        if (round < 2) {
            start(&maker, submitted++);
            add_row(&maker, pair, length + round, result->tokens[0].token, ROW_SAMPLE);
            add_row(&maker, pair + 1, length + round, result->tokens[1].token, ROW_SAMPLE);
            submit(pipeline, &maker);
        }
    }
    crew_close(crew);
}

static void test_whole_rows_of_logits_come_back_when_asked(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 3; n += 2) {
        struct crew *crew = open_crew(n, 0);
        struct pipeline *pipeline = crew_pipeline(crew);
        struct maker maker;
        start(&maker, 5);
        for (uint32_t i = 0; i < 4; i++)
            add_row(&maker, 0, i, 'a' + (int32_t)i, i == 2 ? ROW_SAMPLE : ROW_LOGITS);
        submit(pipeline, &maker);
        const struct pipeline_result *result = next(pipeline);
        assert_false(result->failed);
        assert_int_equal(result->n_tokens, 1);
        assert_int_equal(result->rows[0], 2);
        assert_int_equal(result->n_logits, 3);
        static const int32_t tokens[3] = { 'a', 'b', 'd' }; // without a user the mock says the last
        for (uint32_t i = 0; i < 3; i++) {
            for (int32_t id = 0; id < VOCAB; id++)
                assert_true(result->logits[i * VOCAB + (uint32_t)id] ==
                            (id == tokens[i] ? 100.0f : 0.0f));
        }
        crew_close(crew);
    }
}

/* A kept beginning, on all stages: the answer continues the first sequence's prompt. */
static void test_keep_shares_a_beginning(void **state)
{
    struct crew *crew = open_crew(3, 0);
    struct pipeline *pipeline = crew_pipeline(crew);
    struct maker maker;
    (void)state;
    uint32_t length = add_prompt(start(&maker, 1), 0, "abc");
    submit(pipeline, &maker);
    assert_int_equal(next(pipeline)->tokens[0].token, 'a');
    pipeline_keep(pipeline, 0, 5, length - 2);
    pipeline_drop(pipeline, 0);
    start(&maker, 2); // ... another end of the user's turn
    add_row(&maker, 5, length - 2, 'd', 0);
    add_row(&maker, 5, length - 1, END, 0);
    add_row(&maker, 5, length, ASSISTANT, 0);
    for (uint32_t i = 0; i < 3; i++)
        add_row(&maker, 5, length + 1 + i, "abc"[i], i == 2 ? ROW_SAMPLE : 0);
    submit(pipeline, &maker);
    const struct pipeline_result *result = next(pipeline);
    assert_false(result->failed);
    assert_int_equal(result->tokens[0].token, 'd');
    crew_close(crew);
}

/* The parameters of a kept sequence travel anew, and those that changed do too. */
static void test_parameters_travel_when_they_change(void **state)
{
    struct crew *crew = open_crew(2, 0);
    struct pipeline *pipeline = crew_pipeline(crew);
    struct sampling_params biased = *greedy();
    const struct sampling_params *params = &biased;
    const uint32_t sequence = 1;
    struct maker maker;
    struct err err;
    (void)state;
    biased.n_bias = 1;
    biased.bias[0] = (struct sampling_bias){ 'z', 100 };
    biased.token_cap = VOCAB;
    add_row(start(&maker, 1), 1, 0, 'a', ROW_SAMPLE);
    submit(pipeline, &maker);
    assert_int_equal(next(pipeline)->tokens[0].token, 'a');
    biased.bias[0].bias =
        100; // 'z' at 100 ties with 'a' at 100: the lower id; so lower 'a' as well
    biased.n_bias = 2;
    biased.bias[1] = (struct sampling_bias){ 'a', -100 };
    add_row(start(&maker, 2), 1, 1, 'a', ROW_SAMPLE);
    assert_true(pipeline_submit(pipeline, &maker.batch, &sequence, &params, 1, &err));
    assert_int_equal(next(pipeline)->tokens[0].token, 'z');
    add_row(start(&maker, 3), 1, 2, 'a', ROW_SAMPLE); // nothing new: the last stage remembers
    assert_true(pipeline_submit(pipeline, &maker.batch, NULL, NULL, 0, &err));
    assert_int_equal(next(pipeline)->tokens[0].token, 'z');
    pipeline_keep(pipeline, 1, 2, 3);
    add_row(start(&maker, 4), 2, 3, 'a', ROW_SAMPLE); // kept ids, no parameters
    assert_true(pipeline_submit(pipeline, &maker.batch, NULL, NULL, 0, &err));
    const struct pipeline_result *result = next(pipeline);
    assert_true(result->failed);
    assert_int_equal(result->err.code, ERR_BATCH_LOST);
    crew_close(crew);
}

/* One batch fails on its way, by a hole in its positions: it is answered in its place, its sequence
 * is gone everywhere, and the next batches do not notice. */
/* Submits one row of each sequence, with its parameters, and gives out their tokens. */
static void step_pair(struct pipeline *pipeline, uint64_t id, const uint32_t positions[2],
                      const int32_t tokens[2], const struct sampling_params *const params[2],
                      int32_t out[2])
{
    static const uint32_t sequences[2] = { 0, 1 };
    struct maker maker;
    struct err err;
    start(&maker, id);
    for (uint32_t i = 0; i < 2; i++)
        add_row(&maker, i, positions[i], tokens[i], ROW_SAMPLE);
    if (!pipeline_submit(pipeline, &maker.batch, sequences, params, 2, &err))
        fail_msg("%s", err.text);
    const struct pipeline_result *result = next(pipeline);
    if (result->failed)
        fail_msg("%s", result->err.text);
    assert_int_equal(result->n_tokens, 2);
    out[0] = result->tokens[0].token;
    out[1] = result->tokens[1].token;
}

/* A sequence with a grammar beside one without: the first obeys, the second echoes. In the middle
 * the first is dropped and its ids are fed again, as after a lost stage: it goes on as it would
 * have. */
static void check_grammar_on(uint32_t n_stages)
{
    struct tokenizer *tokenizer = tokenizer_load_mock();
    struct crew *crew = open_crew_with(n_stages, 0, tokenizer);
    struct pipeline *pipeline = crew_pipeline(crew);
    struct sampling_params bound;
    sampling_params_init(&bound);
    bound.prompt_rows = 2;
    bound.grammar = (struct sampling_grammar){ SAMPLING_GRAMMAR_REGEX, STR("[b-d]{3}e+x") };
    const struct sampling_params *const params[2] = { &bound, greedy() };
    int32_t ids[16] = { USER, ASSISTANT }, tokens[2] = { ASSISTANT, ASSISTANT }, out[2];
    uint32_t n_ids = 2;
    struct maker maker;
    uint32_t echo_rows = add_prompt(start(&maker, 1), 1, "xyxyxyxyxyxy") - 1;
    add_row(&maker, 0, 0, USER, 0);
    maker.batch.n_rows--; // ASSISTANT is fed by the first step
    maker.rows[maker.batch.n_rows - 1] = (struct row){ 0, 0, USER, 0 };
    submit(pipeline, &maker);
    assert_false(next(pipeline)->failed);
    for (uint64_t id = 2; ids[n_ids - 1] != END && n_ids < 14; id++) {
        if (n_ids == 5) {
            pipeline_drop(pipeline, 0);
            start(&maker, 100);
            for (uint32_t i = 0; i + 1 < n_ids; i++)
                add_row(&maker, 0, i, ids[i], 0);
            submit(pipeline, &maker);
            assert_false(next(pipeline)->failed);
        }
        const uint32_t positions[2] = { n_ids - 1, echo_rows };
        step_pair(pipeline, id, positions, tokens, params, out);
        assert_int_equal(out[1], "xy"[(n_ids - 2) % 2]);
        ids[n_ids++] = tokens[0] = out[0];
        tokens[1] = out[1];
        echo_rows++;
        bound.seed = n_ids == 7; // parameters that travel again change nothing
    }
    assert_true(n_ids > 6);
    for (uint32_t i = 2; i < 5; i++)
        assert_in_range(ids[i], 'b', 'd');
    for (uint32_t i = 5; i + 2 < n_ids; i++)
        assert_int_equal(ids[i], 'e');
    crew_close(crew);
    tokenizer_free(tokenizer);
}

static void test_grammars_are_obeyed_on_the_last_stage(void **state)
{
    (void)state;
    check_grammar_on(1);
    check_grammar_on(3);
}

/* Without a vocabulary the one row gets no token; its neighbour is not concerned. */
static void test_a_grammar_that_cannot_be_obeyed(void **state)
{
    (void)state;
    struct crew *crew = open_crew(2, 0);
    struct sampling_params bound;
    sampling_params_init(&bound);
    bound.grammar = (struct sampling_grammar){ SAMPLING_GRAMMAR_REGEX, STR("a") };
    const struct sampling_params *const params[2] = { &bound, greedy() };
    const uint32_t positions[2] = { 0, 0 };
    const int32_t tokens[2] = { USER, USER };
    int32_t out[2];
    step_pair(crew_pipeline(crew), 1, positions, tokens, params, out);
    assert_int_equal(out[0], -1);
    assert_true(out[1] >= 0);
    crew_close(crew);
}

static void test_a_failed_batch_is_answered_in_its_place(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 3; n++) {
        struct crew *crew = open_crew(n, 0);
        struct pipeline *pipeline = crew_pipeline(crew);
        struct maker maker;
        add_prompt(start(&maker, 1), 0, "ab");
        submit(pipeline, &maker);
        assert_false(next(pipeline)->failed);
        add_row(start(&maker, 2), 0, 100, 'x', ROW_SAMPLE); // the hole
        submit(pipeline, &maker);
        add_prompt(start(&maker, 3), 1, "cd");
        if (n > 1) // two in flight
            submit(pipeline, &maker);
        const struct pipeline_result *result = next(pipeline);
        assert_true(result->failed && result->batch == 2);
        assert_int_equal(result->err.code, ERR_BATCH_LOST);
        assert_non_null(strstr(result->err.text, "rank 0"));
        if (n == 1)
            submit(pipeline, &maker);
        result = next(pipeline);
        assert_true(!result->failed && result->batch == 3);
        assert_int_equal(result->tokens[0].token, 'c');
        add_row(start(&maker, 4), 0, 5, 'x', ROW_SAMPLE); // dropped: position 5 is a hole now
        submit(pipeline, &maker);
        assert_true(next(pipeline)->failed);
        check_echo(pipeline, 0, "anew", 5);
        crew_close(crew);
    }
}

/* A batch that fails after its sequence was begun anew does not take the new one along. */
static void test_a_late_failure_spares_the_sequence_begun_anew(void **state)
{
    struct crew *crew = open_crew(3, 0);
    struct pipeline *pipeline = crew_pipeline(crew);
    struct maker maker;
    (void)state;
    add_row(start(&maker, 1), 0, 100, 'x', ROW_SAMPLE);
    submit(pipeline, &maker);
    add_row(start(&maker, 2), 0, 101, 'x', ROW_SAMPLE);
    submit(pipeline, &maker);
    assert_true(next(pipeline)->failed); // 1: sequence 0 is dropped
    uint32_t length = add_prompt(start(&maker, 3), 0, "new");
    submit(pipeline, &maker);
    assert_true(next(pipeline)->failed); // 2, of the life before
    const struct pipeline_result *result = next(pipeline);
    assert_true(!result->failed && result->batch == 3);
    add_row(start(&maker, 4), 0, length, 'n', ROW_SAMPLE);
    submit(pipeline, &maker);
    result = next(pipeline);
    assert_false(result->failed);
    assert_int_equal(result->tokens[0].token, 'e');
    crew_close(crew);
}

static void test_pages_that_run_out_fail_the_batch_with_busy(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 2; n++) {
        struct crew *crew = open_crew(n, 2 * 64 * sizeof(int32_t)); // two pages
        struct pipeline *pipeline = crew_pipeline(crew);
        struct maker maker;
        assert_int_equal(pipeline_info(pipeline)->n_pages, 2);
        for (uint32_t i = 0; i < 3; i++) {
            add_prompt(start(&maker, i), i, "x");
            submit(pipeline, &maker);
            const struct pipeline_result *result = next(pipeline);
            assert_int_equal(result->failed, i == 2);
            if (i == 2)
                assert_int_equal(result->err.code, ERR_BUSY);
        }
        pipeline_drop(pipeline, 1);
        check_echo(pipeline, 2, "room", 10);
        crew_close(crew);
    }
}

static void test_what_cannot_be_submitted(void **state)
{
    struct crew *crew = open_crew(2, 0);
    struct pipeline *pipeline = crew_pipeline(crew);
    const struct row bad[] = {
        { MAX_SEQUENCES, 0, 'a', 0 }, { 0, 1024, 'a', 0 }, { 0, 0, VOCAB, 0 }, { 0, 0, -1, 0 }
    };
    const struct sampling_params *params = greedy();
    const uint32_t beyond = MAX_SEQUENCES;
    struct maker maker;
    struct err err;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        start(&maker, 1);
        add_row(&maker, bad[i].sequence, bad[i].position, bad[i].token, bad[i].flags);
        assert_false(pipeline_submit(pipeline, &maker.batch, NULL, NULL, 0, &err));
        assert_int_equal(err.code, ERR_ARGUMENT);
    }
    start(&maker, 1);
    assert_false(pipeline_submit(pipeline, &maker.batch, NULL, NULL, 0, &err));
    add_row(&maker, 0, 0, 'a', 0);
    assert_false(pipeline_submit(pipeline, &maker.batch, &beyond, &params, 1, &err));
    maker.batch.n_rows = MAX_ROWS + 1;
    assert_false(pipeline_submit(pipeline, &maker.batch, NULL, NULL, 0, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    check_echo(pipeline, 0, "still here", 2);
    crew_close(crew);
}

static void test_a_wake_ends_a_poll_and_describe_says_ready(void **state)
{
    struct crew *crew = open_crew(2, 0);
    struct pipeline *pipeline = crew_pipeline(crew);
    const struct pipeline_result *result;
    struct buf text;
    (void)state;
    uint64_t started = clock_ms();
    assert_false(pipeline_poll(pipeline, 30, &result));
    assert_true(clock_ms() - started >= 29);
    pipeline_wake(pipeline);
    pipeline_wake(pipeline);
    assert_false(pipeline_poll(pipeline, 60000, &result));
    started = clock_ms();
    assert_false(pipeline_poll(pipeline, 30, &result)); // two wakes in a row are one
    assert_true(clock_ms() - started >= 29);
    buf_init(&text, 4096);
    pipeline_describe(pipeline, &text);
    assert_non_null(strstr(text.data, "\"state\":\"ready\""));
    assert_non_null(strstr(text.data, "\"stages\":2"));
    buf_release(&text);
    crew_close(crew);
}

static void test_crews_that_cannot_be(void **state)
{
    const uint32_t short_ends[2] = { 3, 7 }, back[3] = { 5, 4, 8 };
    struct crew_options options = { .engine = { .model = "mock-model", .engine = "mock" },
                                    .n_stages = 2,
                                    .layer_ends = short_ends };
    struct err err;
    (void)state;
    assert_null(crew_open(&options, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "last"));
    options.n_stages = 3;
    options.layer_ends = back;
    assert_null(crew_open(&options, &err));
    options.n_stages = 0;
    assert_null(crew_open(&options, &err));
    options.n_stages = 1;
    options.engine.engine = "steam";
    assert_null(crew_open(&options, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_mock_echoes_over_any_number_of_stages),
        cmocka_unit_test(test_several_batches_in_flight_come_back_in_order),
        cmocka_unit_test(test_whole_rows_of_logits_come_back_when_asked),
        cmocka_unit_test(test_keep_shares_a_beginning),
        cmocka_unit_test(test_parameters_travel_when_they_change),
        cmocka_unit_test(test_grammars_are_obeyed_on_the_last_stage),
        cmocka_unit_test(test_a_grammar_that_cannot_be_obeyed),
        cmocka_unit_test(test_a_failed_batch_is_answered_in_its_place),
        cmocka_unit_test(test_a_late_failure_spares_the_sequence_begun_anew),
        cmocka_unit_test(test_pages_that_run_out_fail_the_batch_with_busy),
        cmocka_unit_test(test_what_cannot_be_submitted),
        cmocka_unit_test(test_a_wake_ends_a_poll_and_describe_says_ready),
        cmocka_unit_test(test_crews_that_cannot_be),
    };
    log_setup(LOG_ERROR, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
