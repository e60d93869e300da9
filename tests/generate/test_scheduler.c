/* Requests through the scheduler over a made-up pipeline (scheduler_fake.h), which also holds it to
 * the pipeline's contract. Nothing waits for luck: the fake answers when it is told to. */
#include "generate/scheduler.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "generate/scheduler_bench.h"
#include "generate/scheduler_fake.h"
#include "helpers/cm.h"
#include "text/tokenizer_mock.h"

static const struct engine_info roomy = { .max_rows = 64,
                                          .max_sequences = 6,
                                          .n_pages = 256,
                                          .page_rows = 64,
                                          .ctx_size = 1024,
                                          .step_read_ns = 1000000 };

static bool has_six_running(const struct scheduler *scheduler)
{
    struct scheduler_stats stats;
    scheduler_stats(scheduler, &stats);
    return stats.running == 6;
}

static bool is_not_ready(const struct scheduler *scheduler)
{
    return !scheduler_ready(scheduler);
}

/* ---- one request ---- */

static void test_length(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, true);
    for (uint32_t n_tokens = 1; n_tokens <= 16; n_tokens += n_tokens == 1 ? 7 : 8) {
        struct client client;
        client_start(&client, bench, "hello", n_tokens);
        client_wait(bench, &client);
        client_check_done(&client, "hello", 0, n_tokens);
        assert_int_equal(client.end.finish, REQUEST_FINISH_LENGTH);
        assert_int_equal(client.end.usage.prompt_rows, 5);
        assert_int_equal(client.end.usage.generated, n_tokens);
        assert_true(client.end.usage.first_token_ms >=
                    client.end.usage.queue_ms + client.end.usage.prefill_ms - 1e-6);
        assert_true((client.end.usage.read_share > 0) == (n_tokens > 1)); // there are steps
        client_finish(&client);
    }
    struct scheduler_stats stats;
    scheduler_stats(bench->scheduler, &stats);
    assert_true(stats.inter_token_s.sum >= 0 && stats.read_limit_s == 1e-3);
    assert_int_equal(stats.generated_total, 1 + 8 + 16);
    assert_int_equal(stats.prompt_rows_total, 15);
    assert_int_equal(stats.done_total, 3);
    bench_close(bench);
}

static void test_end_id(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, true);
    struct client client;
    client_start(&client, bench, "q5 and then", 0);
    client_wait(bench, &client);
    client_check_done(&client, "q5 and then", 0, 5);
    assert_int_equal(client.end.finish, REQUEST_FINISH_STOP);
    assert_int_equal(client.end.usage.generated, 6); // with the end itself
    client_finish(&client);

    struct request_options options = { .has_seed = true, .max_tokens = 20, .ignore_eos = true };
    sampling_params_init(&options.sampling);
    client_init(&client, bench_submit(bench, "q5 and then", &options));
    client_wait(bench, &client);
    assert_int_equal(client.end.finish, REQUEST_FINISH_LENGTH);
    assert_int_equal(client.end.usage.generated, 20);
    assert_int_equal(client.text.size, 19); // the end has no text
    client_finish(&client);
    bench_close(bench);
}

/* A prompt of many chunks, and the end of the context. */
static void test_context_end(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, true);
    char prompt[1024];
    memset(prompt, 'x', sizeof(prompt));
    prompt[1000] = '\0';
    const uint32_t wishes[] = { 0, 24, 5000 };
    for (int i = 0; i < 3; i++) {
        struct client client;
        client_start(&client, bench, prompt, wishes[i]);
        client_wait(bench, &client);
        client_check_done(&client, prompt, 0, 24);
        assert_int_equal(client.end.finish, REQUEST_FINISH_LENGTH);
        client_finish(&client);
    }
    assert_int_equal(fake_counts(bench->fake).rows_max, 64);
    bench_close(bench);
}

static void test_stop_text(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, true);
    char *text = client_expected_text("tell", 3, 30);
    struct request_options options = { .has_seed = true, .max_tokens = 30 };
    sampling_params_init(&options.sampling);
    options.sampling.seed = 3;
    const struct str stop = { text + 17, 4 }; // over token borders: each token is a byte
    options.stops = &stop;
    options.n_stops = 1;
    struct client client;
    client_init(&client, bench_submit(bench, "tell", &options));
    client_wait(bench, &client);
    client_check_done(&client, "tell", 3, 17);
    assert_int_equal(client.end.finish, REQUEST_FINISH_STOP);
    assert_int_equal(client.end.usage.generated, 21);
    client_finish(&client);
    free(text);
    bench_close(bench);
}

/* Records of tokens cover the text, each once, whatever was held back; none of what was cut. */
static void test_token_records(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, true);
    char *text = client_expected_text("tell", 0, 30);
    struct request_options options = { .has_seed = true, .max_tokens = 30 };
    sampling_params_init(&options.sampling);
    options.sampling.want_logprob = true;
    const struct str stops[2] = { { text + 17, 4 }, STR("0123456789") };
    options.stops = stops;
    for (uint32_t n_stops = 0; n_stops <= 2; n_stops += 2) {
        options.n_stops = n_stops;
        struct request *request = bench_submit(bench, "tell", &options);
        uint32_t n_tokens = 0;
        struct request_event event = { .kind = REQUEST_TEXT };
        while (event.kind == REQUEST_TEXT) {
            if (!request_poll(request, &event))
                continue;
            for (uint32_t i = 0; i < event.n_tokens; i++, n_tokens++) {
                const struct request_token *token = &event.tokens[i];
                assert_int_equal(token->sampled.token, text[n_tokens]);
                assert_true(token->sampled.logprob == -(float)(4 + n_tokens));
                assert_int_equal(token->text_first, n_tokens);
                assert_int_equal(token->text_size, 1);
            }
        }
        assert_int_equal(event.kind, REQUEST_DONE);
        assert_int_equal(n_tokens, n_stops > 0 ? 17 : 30);
        request_free(request);
    }
    free(text);
    bench_close(bench);
}

static void test_seed(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, true);
    struct request_options options = { .max_tokens = 10 };
    sampling_params_init(&options.sampling);
    uint64_t seeds[2];
    for (int i = 0; i < 2; i++) {
        struct client client;
        client_init(&client, bench_submit(bench, "dice", &options));
        seeds[i] = request_seed(client.request);
        client_wait(bench, &client);
        client_check_done(&client, "dice", seeds[i], 10);
        client_finish(&client);
    }
    assert_true(seeds[0] != seeds[1]);
    bench_close(bench);
}

static void check_refused(struct bench *bench, const struct request_options *options,
                          const char *words)
{
    struct err err = { 0 };
    assert_null(request_submit(bench->scheduler, options, &err));
    assert_int_equal(err.code, ERR_ARGUMENT);
    if (strstr(err.text, words) == NULL)
        fail_msg("'%s' lacks '%s'", err.text, words);
}

static void test_bad_requests(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, true);
    int32_t ids[1100] = { 0 };
    struct request_options options = { .prompt = ids };
    sampling_params_init(&options.sampling);
    check_refused(bench, &options, "empty");
    options.n_prompt = 1024;
    check_refused(bench, &options, "1024 tokens");
    check_refused(bench, &options, "1023");
    options.n_prompt = 2;
    ids[1] = TOKENIZER_MOCK_N_TOKENS;
    check_refused(bench, &options, "260");
    ids[1] = -1;
    check_refused(bench, &options, "-1");
    ids[1] = 0;
    options.sampling.top_p = 2.0f;
    check_refused(bench, &options, "top_p");
    options.sampling.top_p = 1.0f;
    options.stops = &STR_NONE;
    options.n_stops = 1;
    check_refused(bench, &options, "stop");
    struct scheduler_stats stats;
    scheduler_stats(bench->scheduler, &stats);
    assert_int_equal(stats.waiting, 0);
    assert_int_equal(stats.prompt_rows_cap, 1023);
    bench_close(bench);
}

/* ---- many requests ---- */

/* Prompts of many lengths, more of them than slots; each text is the one it gets alone. */
static void run_many(const struct engine_info *info, uint32_t n_stages, uint32_t n_clients,
                     struct scheduler_stats *stats, struct fake_counts *counts)
{
    const struct scheduler_options wishes = { .n_stages = n_stages };
    struct bench *bench = bench_open(info, &wishes, true);
    struct client *clients = xcalloc(n_clients, sizeof(*clients));
    char prompt[256];
    fake_answer(bench->fake, 0); // all are there before the first is done
    for (uint32_t i = 0; i < n_clients; i++) {
        memset(prompt, 'a' + (int)(i % 26), sizeof(prompt));
        prompt[1 + i * 37 % 200] = '\0';
        client_start(&clients[i], bench, prompt, 20 + i % 50);
    }
    fake_answer(bench->fake, UINT64_MAX);
    for (uint32_t i = 0; i < n_clients; i++) {
        memset(prompt, 'a' + (int)(i % 26), sizeof(prompt));
        prompt[1 + i * 37 % 200] = '\0';
        client_wait(bench, &clients[i]);
        if (prompt[0] != 'q') // those end when the model likes
            client_check_done(&clients[i], prompt, 0, 20 + i % 50);
        client_finish(&clients[i]);
    }
    scheduler_stats(bench->scheduler, stats);
    *counts = fake_counts(bench->fake);
    free(clients);
    bench_close(bench);
}

static void test_many(void **state)
{
    (void)state;
    struct scheduler_stats stats;
    struct fake_counts counts;
    run_many(&roomy, 1, 40, &stats, &counts);
    assert_int_equal(stats.preempted_total, 0);
    assert_int_equal(stats.done_total, 40);
    assert_true(counts.sequences_max > 1); // they did share batches
}

static void test_many_over_stages(void **state)
{
    (void)state;
    struct scheduler_stats stats;
    struct fake_counts counts;
    run_many(&roomy, 3, 40, &stats, &counts);
    assert_int_equal(stats.done_total, 40);
    assert_true(counts.flights_max > 1);
    assert_true(counts.flights_max <= 4);
}

/* Few pages: sequences give theirs back and are computed again, to the same text. */
static void test_many_with_few_pages(void **state)
{
    (void)state;
    struct engine_info info = roomy;
    info.page_rows = 16;
    info.n_pages = 18;
    info.ctx_size = 280;
    struct scheduler_stats stats;
    struct fake_counts counts;
    run_many(&info, 1, 30, &stats, &counts);
    assert_int_equal(stats.done_total, 30);
    assert_true(stats.preempted_total > 0);
    assert_true(counts.pages_max <= 18); // the fake aborts above
    run_many(&info, 3, 30, &stats, &counts);
    assert_int_equal(stats.done_total, 30);
}

static void test_queue_is_bounded(void **state)
{
    (void)state;
    const struct scheduler_options wishes = { .queue_cap = 3 };
    struct bench *bench = bench_open(&roomy, &wishes, false); // nothing is admitted
    struct client clients[3];
    struct scheduler_stats stats;
    for (uint32_t i = 0; i < 3; i++) {
        client_start(&clients[i], bench, "wait", 4);
        scheduler_stats(bench->scheduler, &stats);
        assert_int_equal(stats.waiting, i + 1); // at once, not when the scheduler looks next
    }
    int32_t id = 'x';
    struct request_options options = { .prompt = &id, .n_prompt = 1 };
    sampling_params_init(&options.sampling);
    struct err err = { 0 };
    assert_null(request_submit(bench->scheduler, &options, &err));
    assert_int_equal(err.code, ERR_BUSY);
    scheduler_stats(bench->scheduler, &stats);
    assert_int_equal(stats.waiting, 3);
    assert_int_equal(stats.refused_total, 1);
    fake_connect(bench->fake);
    for (int i = 0; i < 3; i++) {
        client_wait(bench, &clients[i]);
        client_check_done(&clients[i], "wait", 0, 4);
        client_finish(&clients[i]);
    }
    struct request *again = request_submit(bench->scheduler, &options, &err); // there is room
    assert_non_null(again);
    request_free(again);
    bench_close(bench);
}

/* Nobody polls: the scheduler goes on, and all is there in the end. */
static void test_slow_client(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, true);
    struct client slow, other;
    client_start(&slow, bench, "slow", 900);
    client_start(&other, bench, "other", 950);
    client_wait(bench, &other);
    struct scheduler_stats stats;
    do
        scheduler_stats(bench->scheduler, &stats);
    while (stats.done_total < 2);
    struct request_event event;
    assert_true(request_poll(slow.request, &event));
    assert_int_equal(event.kind, REQUEST_TEXT);
    assert_int_equal(event.text.size, 900);
    buf_add_str(&slow.text, event.text);
    client_wait(bench, &slow);
    client_check_done(&slow, "slow", 0, 900);
    client_finish(&slow);
    client_finish(&other);
    bench_close(bench);
}

/* ---- cancellation ---- */

static void test_cancel_running(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, true);
    bench_wait(bench, scheduler_ready);
    const uint64_t drops = fake_counts(bench->fake).n_drops;
    fake_answer(bench->fake, 3);
    struct client client;
    client_start(&client, bench, "endless", 500);
    while (fake_counts(bench->fake).n_answers < 4) // the probe and three tokens
        clock_sleep_ms(1);
    fake_wait_flights(bench->fake, 1); // the fourth is being computed, and no answer comes
    request_cancel(client.request);
    client_wait(bench, &client);
    assert_int_equal(client.end.kind, REQUEST_CANCELLED);
    assert_int_equal(client.end.usage.generated, 3);
    assert_int_equal(fake_counts(bench->fake).n_drops, drops + 1); // the stages know
    client_finish(&client);
    /* Its late answer reaches nobody, and its slot is used again. */
    fake_answer(bench->fake, UINT64_MAX);
    struct client next[8];
    for (int i = 0; i < 8; i++)
        client_start(&next[i], bench, "next", 30);
    for (int i = 0; i < 8; i++) {
        client_wait(bench, &next[i]);
        client_check_done(&next[i], "next", 0, 30);
        client_finish(&next[i]);
    }
    bench_close(bench);
}

static void test_cancel_in_prefill(void **state)
{
    (void)state;
    const struct scheduler_options wishes = { .n_stages = 2, .prefill_rows = 10 };
    struct bench *bench = bench_open(&roomy, &wishes, true);
    bench_wait(bench, scheduler_ready);
    fake_answer(bench->fake, 1);
    struct client client, other;
    char prompt[200];
    memset(prompt, 'p', sizeof(prompt));
    prompt[150] = '\0';
    client_start(&client, bench, prompt, 10);
    fake_wait_flights(bench->fake, 3);
    request_cancel(client.request);
    client_wait(bench, &client);
    assert_int_equal(client.end.kind, REQUEST_CANCELLED);
    assert_int_equal(client.end.usage.generated, 0);
    assert_true(fake_counts(bench->fake).n_rows < 60); // far from the whole prompt
    client_finish(&client);
    fake_answer(bench->fake, UINT64_MAX);
    client_start(&other, bench, "other", 10);
    client_wait(bench, &other);
    client_check_done(&other, "other", 0, 10);
    client_finish(&other);
    bench_close(bench);
}

static void test_cancel_waiting(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, false);
    struct client clients[3];
    for (int i = 0; i < 3; i++)
        client_start(&clients[i], bench, "wait", 5);
    request_cancel(clients[1].request);
    client_wait(bench, &clients[1]);
    assert_int_equal(clients[1].end.kind, REQUEST_CANCELLED);
    client_leave(&clients[0]); // a client that goes away cancels
    fake_connect(bench->fake);
    client_wait(bench, &clients[2]);
    client_check_done(&clients[2], "wait", 0, 5);
    client_finish(&clients[1]);
    client_finish(&clients[2]);
    struct scheduler_stats stats;
    scheduler_stats(bench->scheduler, &stats);
    assert_int_equal(stats.cancelled_total, 2);
    bench_close(bench);
}

/* ---- failures ---- */

static void test_batch_lost(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, true);
    bench_wait(bench, scheduler_ready);
    fake_answer(bench->fake, 0);
    fake_fail_batch(bench->fake, 3, ERR_BATCH_LOST); // the one after the first prompt's
    struct client first, second;
    client_start(&first, bench, "first", 10);
    fake_wait_flights(bench->fake, 1);
    fake_answer(bench->fake, UINT64_MAX);
    client_wait(bench, &first);
    assert_int_equal(first.end.kind, REQUEST_FAILED);
    assert_int_equal(first.end.err.code, ERR_BATCH_LOST);
    assert_int_equal(first.end.usage.generated, 1);
    client_start(&second, bench, "second", 10);
    client_wait(bench, &second);
    client_check_done(&second, "second", 0, 10);
    assert_true(scheduler_ready(bench->scheduler));
    client_finish(&first);
    client_finish(&second);
    bench_close(bench);
}

/* The first chunk of a prompt is lost; the second, already under way, takes a decoding sequence
 * down with it, which is not to blame: it is computed again. */
static void test_batch_lost_by_another(void **state)
{
    (void)state;
    const struct scheduler_options wishes = { .n_stages = 2, .prefill_rows = 10 };
    struct bench *bench = bench_open(&roomy, &wishes, true);
    bench_wait(bench, scheduler_ready); // batch 1
    fake_answer(bench->fake, 0);
    struct client innocent, guilty;
    client_start(&innocent, bench, "innocent", 40);
    fake_wait_flights(bench->fake, 1); // batch 2: its prompt, first token to come
    fake_fail_batch(bench->fake, 3, ERR_BATCH_LOST);
    client_start(&guilty, bench, "a prompt of more than two chunks of ten", 10);
    fake_wait_flights(bench->fake, 3); // batches 3 and 4: two chunks
    fake_answer(bench->fake, 1); // 2: the first token of the innocent, which joins chunk three
    while (fake_counts(bench->fake).n_batches < 5)
        clock_sleep_ms(1);
    fake_answer(bench->fake, UINT64_MAX);
    client_wait(bench, &guilty);
    assert_int_equal(guilty.end.kind, REQUEST_FAILED);
    assert_int_equal(guilty.end.err.code, ERR_BATCH_LOST);
    client_wait(bench, &innocent);
    client_check_done(&innocent, "innocent", 0, 40);
    struct scheduler_stats stats;
    scheduler_stats(bench->scheduler, &stats);
    assert_int_equal(stats.preempted_total, 1);
    client_finish(&guilty);
    client_finish(&innocent);
    bench_close(bench);
}

static void test_chain_lost(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, true);
    bench_wait(bench, scheduler_ready);
    fake_answer(bench->fake, 0);
    struct client clients[9]; // six run, three wait
    for (int i = 0; i < 9; i++)
        client_start(&clients[i], bench, "stream", 300);
    bench_wait(bench, has_six_running);
    fake_answer(bench->fake, 5);
    while (fake_counts(bench->fake).n_answers < 6)
        clock_sleep_ms(1);
    fake_wait_flights(bench->fake, 1);
    fake_lose(bench->fake);
    for (int i = 0; i < 6; i++) {
        client_wait(bench, &clients[i]);
        assert_int_equal(clients[i].end.kind, REQUEST_FAILED);
        assert_int_equal(clients[i].end.err.code, ERR_PEER_LOST);
        client_finish(&clients[i]);
    }
    bench_wait(bench, is_not_ready);
    fake_connect(bench->fake);
    for (int i = 6; i < 9; i++) { // the same requests, no restart
        client_wait(bench, &clients[i]);
        client_check_done(&clients[i], "stream", 0, 300);
        client_finish(&clients[i]);
    }
    assert_true(scheduler_ready(bench->scheduler));
    bench_close(bench);
}

/* Lost and rebuilt between two looks, with nothing in flight to tell: the state tells. */
static void test_chain_lost_when_idle(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, true);
    bench_wait(bench, scheduler_ready);
    fake_lose(bench->fake);
    bench_wait(bench, is_not_ready);
    fake_connect(bench->fake);
    bench_wait(bench, scheduler_ready);
    const uint64_t answers = fake_counts(bench->fake).n_answers;
    fake_lose(bench->fake);
    fake_connect(bench->fake);
    while (fake_counts(bench->fake).n_answers == answers) // probed again in the new epoch
        clock_sleep_ms(1);
    struct client client;
    client_start(&client, bench, "after", 5);
    client_wait(bench, &client);
    client_check_done(&client, "after", 0, 5);
    client_finish(&client);
    bench_close(bench);
}

static void test_waiting_is_bounded(void **state)
{
    (void)state;
    const struct scheduler_options wishes = { .reconnect_ms = 150 };
    struct bench *bench = bench_open(&roomy, &wishes, false);
    struct client client;
    const uint64_t start_ms = clock_ms();
    client_start(&client, bench, "anybody there", 5);
    client_wait(bench, &client);
    assert_int_equal(client.end.kind, REQUEST_FAILED);
    assert_int_equal(client.end.err.code, ERR_PEER_LOST);
    assert_true(clock_ms() - start_ms >= 150);
    client_finish(&client);
    bench_close(bench);
}

/* The other stages come with a shorter context than stage 0 promised. */
static void test_context_shrinks(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, false);
    char prompt[400];
    memset(prompt, 'x', sizeof(prompt));
    prompt[300] = '\0';
    struct client long_one, short_one;
    client_start(&long_one, bench, prompt, 5);
    client_start(&short_one, bench, "short", 0);
    fake_shrink(bench->fake, 100);
    fake_connect(bench->fake);
    client_wait(bench, &long_one);
    assert_int_equal(long_one.end.kind, REQUEST_FAILED);
    assert_int_equal(long_one.end.err.code, ERR_ARGUMENT);
    client_wait(bench, &short_one);
    client_check_done(&short_one, "short", 0, 95);
    assert_int_equal(short_one.end.finish, REQUEST_FINISH_LENGTH);
    client_finish(&long_one);
    client_finish(&short_one);
    bench_close(bench);
}

static void test_probe(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, false);
    fake_answer(bench->fake, 0);
    fake_fail_batch(bench->fake, 1, ERR_BATCH_LOST);
    struct client client;
    client_start(&client, bench, "early", 5);
    fake_connect(bench->fake);
    fake_wait_flights(bench->fake, 1);
    assert_false(scheduler_ready(bench->scheduler));      // connected is not ready
    assert_int_equal(fake_counts(bench->fake).n_rows, 1); // and the request waits
    fake_answer(bench->fake, 1);
    fake_wait_flights(bench->fake, 0);
    while (fake_counts(bench->fake).n_batches < 2) // it failed, and is tried again
        clock_sleep_ms(5);
    assert_false(scheduler_ready(bench->scheduler));
    fake_answer(bench->fake, UINT64_MAX);
    client_wait(bench, &client);
    client_check_done(&client, "early", 0, 5);
    assert_true(scheduler_ready(bench->scheduler));
    client_finish(&client);
    struct buf text;
    buf_init(&text, 1000);
    scheduler_describe(bench->scheduler, &text);
    assert_string_equal(text.data, "{\"epoch\":1}");
    buf_release(&text);
    bench_close(bench);
}

/* ---- the end ---- */

static void test_drain(void **state)
{
    (void)state;
    struct engine_info info = roomy;
    info.max_sequences = 1;
    struct bench *bench = bench_open(&info, NULL, true);
    bench_wait(bench, scheduler_ready);
    fake_answer(bench->fake, 2);
    struct client running, waiting;
    client_start(&running, bench, "running", 20);
    client_start(&waiting, bench, "waiting", 20);
    while (fake_counts(bench->fake).n_answers < 3)
        clock_sleep_ms(1);
    scheduler_drain(bench->scheduler, 60000);
    client_wait(bench, &waiting);
    assert_int_equal(waiting.end.kind, REQUEST_FAILED);
    assert_int_equal(waiting.end.err.code, ERR_BUSY);
    assert_false(scheduler_drained(bench->scheduler));
    int32_t id = 'x';
    struct request_options options = { .prompt = &id, .n_prompt = 1 };
    sampling_params_init(&options.sampling);
    struct err err = { 0 };
    assert_null(request_submit(bench->scheduler, &options, &err));
    assert_int_equal(err.code, ERR_BUSY);
    fake_answer(bench->fake, UINT64_MAX);
    client_wait(bench, &running);
    client_check_done(&running, "running", 0, 20);
    bench_wait(bench, scheduler_drained);
    client_finish(&running);
    client_finish(&waiting);
    bench_close(bench);
}

static void test_drain_deadline(void **state)
{
    (void)state;
    struct bench *bench = bench_open(&roomy, NULL, true);
    bench_wait(bench, scheduler_ready);
    fake_answer(bench->fake, 2);
    struct client client;
    client_start(&client, bench, "running", 20);
    while (fake_counts(bench->fake).n_answers < 3)
        clock_sleep_ms(1);
    scheduler_drain(bench->scheduler, 20);
    client_wait(bench, &client);
    assert_int_equal(client.end.kind, REQUEST_FAILED); // never an answer cut short as a success
    assert_int_equal(client.end.err.code, ERR_BUSY);
    assert_non_null(strstr(client.end.err.text, "shutting down"));
    assert_int_equal(client.end.usage.generated, 2);
    bench_wait(bench, scheduler_drained);
    client_finish(&client);
    bench_close(bench);
}

static void test_free_ends_everything(void **state)
{
    (void)state;
    struct engine_info info = roomy;
    info.max_sequences = 2;
    struct bench *bench = bench_open(&info, NULL, true);
    bench_wait(bench, scheduler_ready);
    fake_answer(bench->fake, 1);
    struct client clients[4];
    for (int i = 0; i < 4; i++)
        client_start(&clients[i], bench, "cut off", 50);
    fake_wait_flights(bench->fake, 1);
    bench_close(bench);
    for (int i = 0; i < 4; i++) { // handles outlive the scheduler
        assert_true(client_take(&clients[i]));
        assert_int_equal(clients[i].end.kind, REQUEST_FAILED);
        assert_int_equal(clients[i].end.err.code, ERR_BUSY);
        client_finish(&clients[i]);
    }
}

/* ---- threads ---- */

struct crowd {
    struct bench *bench;
    uint32_t number;
    struct thread thread;
    uint32_t n_done, n_cancelled;
};

/* A client thread: submits, reads, cancels some in mid-answer, walks away from others. */
static void crowd_run(void *context)
{
    struct crowd *crowd = context;
    for (uint32_t i = 0; i < 30; i++) {
        struct client client;
        char prompt[40];
        const uint32_t n = crowd->number * 30 + i;
        snprintf(prompt, sizeof(prompt), "client %u says %u", crowd->number, i);
        client_start(&client, crowd->bench, prompt, 5 + n % 60);
        if (n % 7 == 3) {
            client_leave(&client);
            continue;
        }
        if (n % 5 == 2) {
            client_take(&client);
            request_cancel(client.request);
        }
        client_wait(crowd->bench, &client);
        if (client.end.kind == REQUEST_DONE)
            client_check_done(&client, prompt, 0, 5 + n % 60);
        else
            assert_int_equal(client.end.kind, REQUEST_CANCELLED);
        crowd->n_done += client.end.kind == REQUEST_DONE;
        crowd->n_cancelled += client.end.kind == REQUEST_CANCELLED;
        client_finish(&client);
    }
}

static void test_crowd(void **state)
{
    (void)state;
    struct engine_info info = roomy;
    info.page_rows = 16;
    info.n_pages = 20;
    info.ctx_size = 300;
    const struct scheduler_options wishes = { .n_stages = 2 };
    struct bench *bench = bench_open(&info, &wishes, true);
    struct crowd crowds[4] = { 0 };
    for (uint32_t i = 0; i < 4; i++) {
        struct err err;
        crowds[i].bench = bench;
        crowds[i].number = i;
        assert_true(thread_start(&crowds[i].thread, "client", crowd_run, &crowds[i], &err));
    }
    uint32_t n_done = 0;
    for (uint32_t i = 0; i < 4; i++) {
        thread_join(&crowds[i].thread);
        n_done += crowds[i].n_done;
    }
    assert_true(n_done >= 60);
    struct scheduler_stats stats;
    do
        scheduler_stats(bench->scheduler, &stats);
    while (stats.done_total + stats.cancelled_total < 120);
    assert_int_equal(stats.requests_total, 120);
    assert_int_equal(stats.failed_total, 0);
    bench_close(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_end_id),
        cmocka_unit_test(test_context_end),
        cmocka_unit_test(test_stop_text),
        cmocka_unit_test(test_token_records),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_many_over_stages),
        cmocka_unit_test(test_many_with_few_pages),
        cmocka_unit_test(test_queue_is_bounded),
        cmocka_unit_test(test_slow_client),
        cmocka_unit_test(test_cancel_running),
        cmocka_unit_test(test_cancel_in_prefill),
        cmocka_unit_test(test_cancel_waiting),
        cmocka_unit_test(test_batch_lost),
        cmocka_unit_test(test_batch_lost_by_another),
        cmocka_unit_test(test_chain_lost),
        cmocka_unit_test(test_chain_lost_when_idle),
        cmocka_unit_test(test_waiting_is_bounded),
        cmocka_unit_test(test_context_shrinks),
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_deadline),
        cmocka_unit_test(test_free_ends_everything),
        cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
