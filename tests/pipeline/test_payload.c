#include "base/memory.h"
#include "helpers/cm.h"
#include "pipeline/bytes.h"
#include "pipeline/payload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COLS 3

static void fill_batch(struct batch *batch, struct row *rows)
{
    *batch = (struct batch){ .id = 77, .n_rows = 2, .rows_cap = 2, .rows = rows };
    rows[0] = (struct row){ .sequence = 3, .position = 9, .token = -1, .flags = ROW_CHECKPOINT };
    rows[1] = (struct row){ 4, 0, 65, ROW_SAMPLE | ROW_LOGITS };
}

/* A STEP with parameters of two sequences and values. */
static void write_step(struct frame *frame)
{
    static const float values[2 * COLS] = { 1, 2, 3, -4, 5.5f, 1e-40f };
    struct sampling_params params;
    struct batch batch;
    struct row rows[2];
    struct buf encoded;
    buf_init(&encoded, 1 << 16);
    sampling_params_init(&params);
    params.seed = 5;
    payload_add_params(&encoded, 3, &params);
    params.seed = 6;
    params.n_bias = 2;
    params.bias[1].token = 9;
    payload_add_params(&encoded, 4, &params);
    fill_batch(&batch, rows);
    frame_start(frame, FRAME_STEP, 1);
    payload_write_step(frame, &batch, 2, buf_view(&encoded), values, COLS);
    buf_release(&encoded);
}

static void test_a_step_survives_a_round_trip(void **state)
{
    struct frame frame;
    struct row rows[2], expected_rows[2];
    struct batch batch = { .rows_cap = 2, .rows = rows }, expected;
    struct payload_step step;
    struct sampling_params params;
    struct err err;
    uint32_t sequence;
    (void)state;
    frame_init(&frame);
    write_step(&frame);
    fill_batch(&expected, expected_rows);
    assert_true(payload_read_step(&frame, &batch, &step, &err));
    assert_true(batch.id == 77 && batch.n_rows == 2);
    assert_memory_equal(rows, expected_rows, sizeof rows);
    assert_int_equal(step.n_params, 2);
    assert_true(payload_next_params(&step.params, &sequence, &params, &err));
    assert_true(sequence == 3 && params.seed == 5 && params.n_bias == 0);
    assert_true(payload_next_params(&step.params, &sequence, &params, &err));
    assert_true(sequence == 4 && params.seed == 6 && params.n_bias == 2);
    assert_int_equal(params.bias[1].token, 9);
    assert_int_equal(step.params.size, 0);
    assert_int_equal(step.values.size, 2 * COLS * sizeof(float));
    assert_true(bytes_get_f32(step.values.data + 4 * sizeof(float)) == 5.5f);
    frame_release(&frame);
}

static void test_a_step_with_a_wrong_count_of_parameters(void **state)
{
    struct frame frame;
    struct row rows[2];
    struct batch batch = { .rows_cap = 2, .rows = rows };
    struct payload_step step;
    struct sampling_params params;
    struct err err;
    uint32_t sequence;
    (void)state;
    frame_init(&frame);
    write_step(&frame);
    bytes_put_u32(frame.payload.data + 2 * PAYLOAD_ROW_BYTES, 3);
    assert_false(payload_read_step(&frame, &batch, &step, &err));
    assert_int_equal(err.code, ERR_FORMAT);
    bytes_put_u32(frame.payload.data + 2 * PAYLOAD_ROW_BYTES, 0);
    assert_false(payload_read_step(&frame, &batch, &step, &err));
    bytes_put_u32(frame.payload.data + 2 * PAYLOAD_ROW_BYTES, 2);
    assert_true(payload_read_step(&frame, &batch, &step, &err));
    step.params.size = 3; // cut within the first one
    assert_false(payload_next_params(&step.params, &sequence, &params, &err));
    assert_int_equal(err.code, ERR_FORMAT);
    frame_release(&frame);
}

static void test_a_result_survives_a_round_trip(void **state)
{
    static const float logits[2][4] = { { 1, 2, 3, 4 }, { 5, 6, 7, -INFINITY } };
    struct sampled_token token = { .token = 12, .logprob = -0.5f, .n_top = 2 }, again;
    struct payload_result result;
    struct frame frame;
    struct err err;
    uint32_t row;
    (void)state;
    token.top_tokens[1] = 99;
    token.top_logprobs[1] = -3;
    frame_init(&frame);
    frame_start(&frame, FRAME_RESULT, 1);
    payload_start_result(&frame, 8, 2);
    payload_add_token(&frame, 5, &token);
    token.n_top = 0;
    payload_add_token(&frame, 6, &token);
    payload_add_logits(&frame, logits[0], 4);
    payload_add_logits(&frame, logits[1], 4);
    assert_true(frame.header.batch == 8 && frame.header.rows == 2 && frame.header.cols == 4);
    assert_true(payload_read_result(&frame, &result, &err));
    assert_true(result.n_tokens == 2 && result.n_logits == 2);
    assert_memory_equal(result.logits, logits, sizeof logits);
    assert_true(payload_next_token(&result.tokens, &row, &again, &err));
    assert_true(row == 5 && again.token == 12 && again.logprob == -0.5f && again.n_top == 2);
    assert_true(again.top_tokens[1] == 99 && again.top_logprobs[1] == -3);
    assert_true(payload_next_token(&result.tokens, &row, &again, &err));
    assert_true(row == 6 && again.n_top == 0);
    assert_int_equal(result.tokens.size, 0);
    frame_release(&frame);
}

static void test_a_result_that_does_not_add_up(void **state)
{
    struct sampled_token token = { .token = 1, .n_top = 1 };
    struct payload_result result;
    struct frame frame;
    struct err err;
    uint32_t row;
    (void)state;
    frame_init(&frame);
    frame_start(&frame, FRAME_RESULT, 1);
    payload_start_result(&frame, 8, 1);
    payload_add_token(&frame, 0, &token);
    bytes_put_u32(frame.payload.data, 2); // two tokens in the room of one
    assert_false(payload_read_result(&frame, &result, &err));
    bytes_put_u32(frame.payload.data, 0); // none in the room of one
    assert_false(payload_read_result(&frame, &result, &err));
    bytes_put_u32(frame.payload.data, UINT32_MAX);
    assert_false(payload_read_result(&frame, &result, &err));
    bytes_put_u32(frame.payload.data, 1);
    bytes_put_u32(frame.payload.data + 16, SAMPLING_TOP_CAP + 1); // more than there may be
    assert_true(payload_read_result(&frame, &result, &err));
    assert_false(payload_next_token(&result.tokens, &row, &token, &err));
    bytes_put_u32(frame.payload.data + 16, 2); // more than there is
    assert_true(payload_read_result(&frame, &result, &err));
    assert_false(payload_next_token(&result.tokens, &row, &token, &err));
    assert_int_equal(err.code, ERR_FORMAT);
    frame_release(&frame);
}

static void test_failures_travel_by_name(void **state)
{
    struct frame frame;
    struct err reason = { 0 }, again;
    (void)state;
    frame_init(&frame);
    for (int code = ERR_NONE + 1; code < ERR_CODE_COUNT; code++) {
        err_set(&reason, (enum err_code)code, "rank %d: sorry, \xc3\xa4", code);
        frame_start(&frame, FRAME_FAIL, 1);
        payload_write_fail(&frame, &reason);
        payload_read_fail(&frame, &again);
        assert_int_equal(again.code, code);
        assert_string_equal(again.text, reason.text);
    }
    frame_start(&frame, FRAME_FAIL, 1);
    buf_add(&frame.payload, "\x07unheard\033[2Jbad\xff", 16);
    payload_read_fail(&frame, &again);
    assert_int_equal(again.code, ERR_BATCH_LOST);
    assert_string_equal(again.text, "?[2Jbad?");
    frame.header.flags = FRAME_FLAG_EPOCH;
    payload_read_fail(&frame, &again);
    assert_int_equal(again.code, ERR_PEER_LOST);
    frame_start(&frame, FRAME_FAIL, 1);
    buf_add(&frame.payload, "\xffx", 2); // a name longer than the payload
    payload_read_fail(&frame, &again);
    assert_int_equal(again.code, ERR_BATCH_LOST);
    frame_release(&frame);
}

static void test_a_long_sentence_is_cut_between_characters(void **state)
{
    struct frame frame;
    char out[16];
    (void)state;
    frame_init(&frame);
    frame_start(&frame, FRAME_AWAIT, 1);
    payload_write_await(&frame, "0123456789a\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac");
    payload_read_await(&frame, out, sizeof out);
    assert_true(utf8_valid(str_from(out)));
    assert_string_equal(out, "0123456789a\xe2\x82\xac");
    frame_release(&frame);
}

static void test_keep_and_drop(void **state)
{
    struct payload_keep keep = { 1, 2, 300 }, again;
    struct frame frame;
    (void)state;
    frame_init(&frame);
    frame_start(&frame, FRAME_KEEP, 1);
    payload_write_keep(&frame, &keep);
    payload_read_keep(&frame, &again);
    assert_memory_equal(&keep, &again, sizeof keep);
    frame_start(&frame, FRAME_DROP, 1);
    payload_write_drop(&frame, 7);
    assert_int_equal(payload_read_drop(&frame), 7);
    frame_release(&frame);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_survives_a_round_trip),
        cmocka_unit_test(test_a_step_with_a_wrong_count_of_parameters),
        cmocka_unit_test(test_a_result_survives_a_round_trip),
        cmocka_unit_test(test_a_result_that_does_not_add_up),
        cmocka_unit_test(test_failures_travel_by_name),
        cmocka_unit_test(test_a_long_sentence_is_cut_between_characters),
        cmocka_unit_test(test_keep_and_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
