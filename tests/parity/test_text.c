/* The law that people see: the answer to a request does not depend on who else is served, in which
 * batches, over how many stages, on which instruction set, or whether its rows were computed twice.
 * A small model, greedy and sampled requests, the real pipeline and scheduler. Tokens and
 * log-probabilities are compared bit for bit, and their hash is pinned for other machines. */
#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "generate/scheduler.h"
#include "helpers/cm.h"
#include "helpers/golden.h"
#include "pipeline/crew.h"
#include "sample/rng.h"
#include "text/tokenizer.h"
#include "text/tokenizer_mock.h"

#define N_REQUESTS 10u
#define N_TOKENS 110u
#define PROMPT_CAP 140u
#define PAGE_BYTES (3u * 2u * 2u * 64u * 16u * 2u) // layers, K and V, heads, rows, dimensions, f16

static char *directory, *shard;
static uint64_t reference[N_REQUESTS];

struct setting {
    const char *name;
    uint32_t n_stages;
    uint32_t layer_ends[4];
    const char *isa;
    bool alone;               // one request after the other
    uint32_t prefill_rows;    // 0: the default
    uint64_t kv_memory_bytes; // 0: the default
    bool preempts;
};

static struct crew *open_crew(const struct setting *setting)
{
    const struct crew_options options = {
        .engine = { .model = shard,
                    .engine = "native",
                    .isa = setting->isa,
                    .threads = 1,
                    .ctx_size = 256,
                    .max_rows = 64,
                    .max_sequences = 6,
                    .kv_memory_bytes = setting->kv_memory_bytes },
        .n_stages = setting->n_stages,
        .layer_ends = setting->layer_ends,
    };
    struct err err;
    struct crew *crew = crew_open(&options, &err);
    if (crew == NULL)
        fail_msg("%s: %s", setting->name, err.text);
    return crew;
}

static struct request *submit(struct scheduler *scheduler, uint32_t number)
{
    int32_t prompt[PROMPT_CAP];
    struct request_options options = { .prompt = prompt,
                                       .n_prompt = 3 + number * 53 % (PROMPT_CAP - 3),
                                       .has_seed = true,
                                       .max_tokens = N_TOKENS,
                                       .ignore_eos = true };
    for (uint32_t i = 0; i < options.n_prompt; i++)
        prompt[i] = (int32_t)(rng_uniform(number, i) * TOKENIZER_MOCK_N_TOKENS);
    struct sampling_params *params = &options.sampling;
    sampling_params_init(params);
    params->seed = number;
    params->want_logprob = true;
    params->n_top = 2;
    if (number % 3 > 0)
        params->temperature = 0.9f;
    if (number % 3 == 1)
        params->top_p = 0.95f;
    if (number % 4 == 2)
        params->top_k = 40;
    if (number % 5 == 3)
        params->repetition_penalty = 1.1f;
    if (number % 5 == 4)
        params->frequency_penalty = 0.4f;
    struct err err;
    struct request *request = request_submit(scheduler, &options, &err);
    if (request == NULL)
        fail_msg("%s", err.text);
    return request;
}

/* Reads an answer to its end; returns the hash of tokens, log-probabilities and text. How they are
 * cut into events is a matter of time and has no part in it. */
static uint64_t collect(struct request *request)
{
    struct hash_stream *hash = hash_stream_new();
    struct buf text;
    buf_init(&text, 1 << 20);
    struct request_event event = { .kind = REQUEST_TEXT };
    uint32_t n_tokens = 0;
    while (event.kind == REQUEST_TEXT) {
        if (!request_poll(request, &event)) {
            clock_sleep_ms(1);
            continue;
        }
        for (uint32_t i = 0; i < event.n_tokens; i++) {
            const struct sampled_token *token = &event.tokens[i].sampled;
            assert_int_equal(token->n_top, 2);
            hash_stream_add(hash, &token->token, sizeof(token->token));
            hash_stream_add(hash, &token->logprob, sizeof(token->logprob));
            hash_stream_add(hash, token->top_tokens, 2 * sizeof(token->top_tokens[0]));
            hash_stream_add(hash, token->top_logprobs, 2 * sizeof(token->top_logprobs[0]));
        }
        if (event.kind == REQUEST_TEXT)
            buf_add_str(&text, event.text);
        n_tokens += event.n_tokens;
    }
    if (event.kind == REQUEST_FAILED)
        fail_msg("%s", event.err.text);
    assert_int_equal(event.kind, REQUEST_DONE);
    assert_int_equal(event.finish, REQUEST_FINISH_LENGTH);
    assert_int_equal(event.usage.generated, N_TOKENS);
    assert_int_equal(n_tokens, N_TOKENS);
    hash_stream_add(hash, text.data, text.size);
    const uint64_t value = hash_stream_value(hash);
    buf_release(&text);
    hash_stream_free(hash);
    request_free(request);
    return value;
}

static void run(const struct setting *setting, uint64_t results[N_REQUESTS])
{
    struct crew *crew = open_crew(setting);
    struct tokenizer *tokenizer =
        tokenizer_load_mock(); // 260 of the model's 272: the rest is padding
    const struct scheduler_options options = { .pipeline = crew_pipeline(crew),
                                               .n_stages = setting->n_stages,
                                               .tokenizer = tokenizer,
                                               .prefill_rows = setting->prefill_rows };
    struct err err;
    struct scheduler *scheduler = scheduler_start(&options, &err);
    assert_non_null(scheduler);
    struct request *requests[N_REQUESTS];
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        requests[i] = submit(scheduler, i);
        if (setting->alone)
            results[i] = collect(requests[i]);
    }
    for (uint32_t i = 0; i < N_REQUESTS && !setting->alone; i++)
        results[i] = collect(requests[i]);
    struct scheduler_stats stats;
    scheduler_stats(scheduler, &stats);
    assert_int_equal(stats.done_total, N_REQUESTS);
    if (setting->preempts)
        assert_true(stats.preempted_total > 0);
    scheduler_free(scheduler);
    tokenizer_free(tokenizer);
    crew_close(crew);
}

static void test_reference(void **state)
{
    (void)state;
    const struct setting setting = {
        .name = "alone", .n_stages = 1, .layer_ends = { 3 }, .isa = "scalar", .alone = true
    };
    run(&setting, reference);
    for (uint32_t i = 1; i < N_REQUESTS; i++)
        assert_true(reference[i] != reference[0]);
    char hex[17];
    hash_hex(hash_xxh3(reference, sizeof(reference)), hex);
    assert_string_equal(hex, "87ab973d8f7f8315");
}

static void check_setting(const struct setting *setting)
{
    uint64_t results[N_REQUESTS];
    run(setting, results);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        if (results[i] != reference[i])
            fail_msg("%s: request %u has another text", setting->name, i);
    }
}

static void test_in_company(void **state)
{
    (void)state;
    check_setting(&(struct setting){ .name = "together", .n_stages = 1, .layer_ends = { 3 } });
}

static void test_few_pages(void **state)
{
    (void)state;
    check_setting(&(struct setting){ .name = "few pages",
                                     .n_stages = 1,
                                     .layer_ends = { 3 },
                                     .kv_memory_bytes = 8 * PAGE_BYTES,
                                     .preempts = true });
}

static void test_two_stages(void **state)
{
    (void)state;
    check_setting(&(struct setting){ .name = "two stages", .n_stages = 2, .layer_ends = { 1, 3 } });
}

static void test_three_stages_in_small_chunks(void **state)
{
    (void)state;
    check_setting(&(struct setting){ .name = "three stages, chunks of 7",
                                     .n_stages = 3,
                                     .layer_ends = { 1, 2, 3 },
                                     .prefill_rows = 7 });
}

static int make_shard(void **state)
{
    (void)state;
    directory = golden_make_directory();
    shard = path_join(directory, "shard");
    struct err err;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_in_company),
        cmocka_unit_test(test_few_pages),
        cmocka_unit_test(test_two_stages),
        cmocka_unit_test(test_three_stages_in_small_chunks),
    };
    return cmocka_run_group_tests(tests, make_shard, remove_shard);
}
