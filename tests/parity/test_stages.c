/* The law of stages as users meet it: ranks in processes of their own, joined by TCP, give the bits
 * that one process gives. A small model of the native engine; logits of every row by memcmp, and
 * the tokens of greedy and sampled sequences that are fed back. */
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "helpers/cm.h"
#include "helpers/echo.h"
#include "helpers/golden.h"
#include "helpers/ranks.h"

#include <stdlib.h>
#include <string.h>

#define N_LAYERS 3u
#define VOCAB 272u
#define N_SEQUENCES 4u
#define N_PROMPT 90u // of each sequence, in batches of MAX_ROWS
#define N_DECODE 40u
#define MAX_ROWS 64u
#define N_ROWS ((N_PROMPT + N_DECODE) * N_SEQUENCES)

static char *directory, *shard;

/* All that a run gives. */
struct outcome {
    float logits[N_ROWS][VOCAB];
    int32_t tokens[N_DECODE][N_SEQUENCES];
    uint32_t n_logits;
};

static struct outcome reference, outcome;

/* --- one run -----------------------------------------------------------------------------------
 */

struct run {
    struct pipeline *pipeline;
    struct outcome *outcome;
    struct sampling_params params[N_SEQUENCES];
    struct batch batch;
    struct row rows[MAX_ROWS];
};

/* Submits the batch and takes its logits; tokens, if there are some, go to `tokens`. */
static void step(struct run *run, int32_t tokens[N_SEQUENCES])
{
    static const uint32_t sequences[N_SEQUENCES] = { 0, 1, 2, 3 };
    const struct sampling_params *params[N_SEQUENCES];
    const struct pipeline_result *result;
    const uint64_t started = clock_ms();
    struct err err;
    for (uint32_t i = 0; i < N_SEQUENCES; i++)
        params[i] = &run->params[i];
    run->batch.id++;
    if (!pipeline_submit(run->pipeline, &run->batch, sequences, params, N_SEQUENCES, &err))
        fail_msg("%s", err.text);
    while (!pipeline_poll(run->pipeline, 1000, &result))
        assert_true(clock_ms() - started < 60000);
    if (result->failed)
        fail_msg("%s", result->err.text);
    assert_int_equal(result->n_logits, run->batch.n_rows);
    memcpy(run->outcome->logits[run->outcome->n_logits], result->logits,
           (size_t)result->n_logits * VOCAB * sizeof(float));
    run->outcome->n_logits += result->n_logits;
    for (uint32_t i = 0; i < result->n_tokens; i++)
        tokens[run->rows[result->rows[i]].sequence] = result->tokens[i].token;
}

/* Prompts one after the other, each in two batches; the last row of each gives the first token. */
static void prefill(struct run *run, int32_t tokens[N_SEQUENCES])
{
    for (uint32_t sequence = 0; sequence < N_SEQUENCES; sequence++) {
        run->batch.n_rows = 0;
        for (uint32_t position = 0; position < N_PROMPT; position++) {
            const bool is_last = position + 1 == N_PROMPT;
            run->rows[run->batch.n_rows++] = (struct row){
                .sequence = sequence,
                .position = position,
                .token = (int32_t)((sequence * 131 + position * 29) % VOCAB),
                .flags = ROW_LOGITS | (is_last ? ROW_SAMPLE | ROW_LAST_OF_PROMPT : 0),
            };
            if (is_last || run->batch.n_rows == MAX_ROWS) {
                step(run, tokens);
                run->batch.n_rows = 0;
            }
        }
    }
}

static void decode(struct run *run, int32_t tokens[N_SEQUENCES])
{
    for (uint32_t i = 0; i < N_DECODE; i++) {
        memcpy(run->outcome->tokens[i], tokens, sizeof run->outcome->tokens[i]);
        run->batch.n_rows = N_SEQUENCES;
        for (uint32_t sequence = 0; sequence < N_SEQUENCES; sequence++)
            run->rows[sequence] =
                (struct row){ sequence, N_PROMPT + i, tokens[sequence], ROW_SAMPLE | ROW_LOGITS };
        step(run, tokens);
    }
}

static void run_all(struct pipeline *pipeline, struct outcome *out)
{
    int32_t tokens[N_SEQUENCES] = { 0 };
    struct run *run = xcalloc(1, sizeof *run);
    run->pipeline = pipeline;
    run->outcome = out;
    run->batch.rows = run->rows;
    run->batch.rows_cap = MAX_ROWS;
    out->n_logits = 0;
    for (uint32_t i = 0; i < N_SEQUENCES; i++) { // two greedy, two sampled
        sampling_params_init(&run->params[i]);
        run->params[i].seed = 7 + i;
        run->params[i].prompt_rows = N_PROMPT;
        run->params[i].temperature = i % 2 ? 0.8f : 0.0f;
        run->params[i].top_p = i == 3 ? 0.9f : 1.0f;
        run->params[i].repetition_penalty = i >= 2 ? 1.1f : 1.0f;
    }
    prefill(run, tokens);
    decode(run, tokens);
    assert_int_equal(out->n_logits, N_ROWS);
    free(run);
}

/* --- chains ------------------------------------------------------------------------------------
 */

static struct pipeline_options options_of(uint32_t rank, uint32_t total, const uint32_t *ends,
                                          char addresses[][RANKS_ADDRESS_CAP])
{
    return (struct pipeline_options){
        .engine = { .model = shard,
                    .engine = "native",
                    .ctx_size = 256,
                    .max_rows = MAX_ROWS,
                    .max_sequences = N_SEQUENCES,
                    .threads = 1,
                    .layer_first = rank ? ends[rank - 1] : 0,
                    .layer_end = ends[rank] },
        .rank = rank,
        .total = total,
        .listen = addresses[rank],
        .next = rank + 1 < total ? addresses[rank + 1] : NULL,
    };
}

static void run_chain(uint32_t total, const uint32_t *ends, struct outcome *out)
{
    char addresses[N_LAYERS][RANKS_ADDRESS_CAP];
    pid_t ranks[N_LAYERS] = { 0 };
    struct err err;
    ranks_choose_addresses(addresses, total);
    for (uint32_t rank = 1; rank < total; rank++) {
        const struct pipeline_options options = options_of(rank, total, ends, addresses);
        ranks[rank] = ranks_start(&options, -1);
    }
    const struct pipeline_options options = options_of(0, total, ends, addresses);
    struct pipeline *pipeline = pipeline_open(&options, &err);
    if (!pipeline)
        fail_msg("%s", err.text);
    assert_true(echo_wait_ready(pipeline, 60000));
    run_all(pipeline, out);
    pipeline_close(pipeline);
    for (uint32_t rank = 1; rank < total; rank++)
        ranks_end(ranks[rank]);
}

static void check_cut(uint32_t total, const uint32_t *ends)
{
    memset(&outcome, 0, sizeof outcome);
    run_chain(total, ends, &outcome);
    assert_memory_equal(outcome.tokens, reference.tokens, sizeof reference.tokens);
    assert_int_equal(memcmp(outcome.logits, reference.logits, sizeof reference.logits), 0);
}

static void test_one_stage_is_the_reference(void **state)
{
    static const uint32_t ends[] = { N_LAYERS };
    (void)state;
    run_chain(1, ends, &reference);
    /* Something was said: tokens differ between sequences, logits are not all alike. */
    assert_memory_not_equal(reference.logits[0], reference.logits[1], sizeof reference.logits[0]);
    bool differ = false;
    for (uint32_t i = 0; i < N_DECODE; i++)
        differ = differ || reference.tokens[i][0] != reference.tokens[i][1];
    assert_true(differ);
}

static void test_two_stages(void **state)
{
    static const uint32_t early[] = { 1, N_LAYERS }, late[] = { 2, N_LAYERS };
    (void)state;
    check_cut(2, early);
    check_cut(2, late);
}

static void test_three_stages(void **state)
{
    static const uint32_t ends[] = { 1, 2, N_LAYERS };
    (void)state;
    check_cut(3, ends);
}

static int make_shard(void **state)
{
    struct err err;
    (void)state;
    directory = golden_make_directory();
    shard = path_join(directory, "shard");
    if (!golden_export(SOURCE_DIR "/tests/golden/llama", "int4", shard, &err))
        fail_msg("%s", err.text);
    return 0;
}

static int remove_shard(void **state)
{
    (void)state;
    golden_remove_directory(directory);
    free(shard);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_stage_is_the_reference),
        cmocka_unit_test(test_two_stages),
        cmocka_unit_test(test_three_stages),
    };
    int status;
    log_setup(LOG_ERROR, false);
    if (ranks_main(argc, argv, NULL, &status))
        return status;
    return cmocka_run_group_tests(tests, make_shard, remove_shard);
}
