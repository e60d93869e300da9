#include "generate/scheduler_bench.h"

#include <stdlib.h>

#include "base/memory.h"
#include "helpers/cm.h"
#include "text/tokenizer.h"
#include "text/tokenizer_mock.h"

#define TEXT_BYTES_CAP ((size_t)1 << 20)
#define LOOK_MS 5u // conditions that no wake tells of are looked at so often

static void on_wake(void *context)
{
    struct bench *bench = context;
    mutex_lock(&bench->mutex);
    bench->n_wakes++;
    condition_broadcast(&bench->woken);
    mutex_unlock(&bench->mutex);
}

struct bench *bench_open(const struct engine_info *info, const struct scheduler_options *wishes,
                         bool ready)
{
    struct bench *bench = xcalloc(1, sizeof(*bench));
    mutex_init(&bench->mutex);
    condition_init(&bench->woken);
    bench->tokenizer = tokenizer_load_mock();
    struct scheduler_options options = { 0 };
    if (wishes != NULL)
        options = *wishes;
    const uint32_t n_stages = options.n_stages > 0 ? options.n_stages : 1;
    bench->fake = fake_open(info, n_stages + 1, ready);
    options.pipeline = bench->fake;
    options.tokenizer = bench->tokenizer;
    options.wake = on_wake;
    options.wake_context = bench;
    struct err err;
    bench->scheduler = scheduler_start(&options, &err);
    assert_non_null(bench->scheduler);
    return bench;
}

void bench_close(struct bench *bench)
{
    scheduler_free(bench->scheduler);
    fake_close(bench->fake);
    tokenizer_free(bench->tokenizer);
    condition_release(&bench->woken);
    mutex_release(&bench->mutex);
    free(bench);
}

void bench_wait(struct bench *bench, bool (*holds)(const struct scheduler *scheduler))
{
    mutex_lock(&bench->mutex);
    while (!holds(bench->scheduler))
        condition_wait_for(&bench->woken, &bench->mutex, LOOK_MS);
    mutex_unlock(&bench->mutex);
}

struct request *bench_submit(struct bench *bench, const char *prompt,
                             const struct request_options *options)
{
    int32_t ids[FAKE_ROWS_CAP];
    struct request_options mine = { .has_seed = true };
    sampling_params_init(&mine.sampling);
    if (options != NULL)
        mine = *options;
    mine.prompt = ids;
    mine.n_prompt = (uint32_t)strlen(prompt);
    for (uint32_t i = 0; i < mine.n_prompt; i++)
        ids[i] = (uint8_t)prompt[i];
    struct err err;
    struct request *request = request_submit(bench->scheduler, &mine, &err);
    if (request == NULL)
        fail_msg("%s", err.text);
    return request;
}

void client_init(struct client *client, struct request *request)
{
    *client = (struct client){ .request = request };
    buf_init(&client->text, TEXT_BYTES_CAP);
}

void client_start(struct client *client, struct bench *bench, const char *prompt,
                  uint32_t max_tokens)
{
    struct request_options options = { .has_seed = true, .max_tokens = max_tokens };
    sampling_params_init(&options.sampling);
    client_init(client, bench_submit(bench, prompt, &options));
}

bool client_take(struct client *client)
{
    struct request_event event;
    while (request_poll(client->request, &event)) {
        assert_int_equal(client->n_ends, 0); // nothing after the end
        if (event.kind == REQUEST_TEXT) {
            assert_true(event.text.size > 0 || event.n_tokens > 0);
            buf_add_str(&client->text, event.text);
        } else {
            client->end = event;
            client->n_ends++;
        }
    }
    return client->n_ends == 1;
}

void client_wait(struct bench *bench, struct client *client)
{
    for (;;) {
        mutex_lock(&bench->mutex);
        const uint64_t n_wakes = bench->n_wakes;
        mutex_unlock(&bench->mutex);
        if (client_take(client))
            return;
        mutex_lock(&bench->mutex); // a wake since then is news
        while (bench->n_wakes == n_wakes)
            condition_wait(&bench->woken, &bench->mutex);
        mutex_unlock(&bench->mutex);
    }
}

void client_leave(struct client *client)
{
    request_free(client->request);
    buf_release(&client->text);
}

void client_finish(struct client *client)
{
    assert_int_equal(client->n_ends, 1);
    client_take(client);
    client_leave(client);
}

char *client_expected_text(const char *prompt, uint64_t seed, uint32_t n_tokens)
{
    int32_t ids[FAKE_ROWS_CAP];
    const uint32_t n_prompt = (uint32_t)strlen(prompt);
    char *text = xcalloc(n_tokens + 1, 1);
    for (uint32_t i = 0; i < n_prompt; i++)
        ids[i] = (uint8_t)prompt[i];
    for (uint32_t i = 0; i < n_tokens; i++) {
        ids[n_prompt + i] = fake_next_token(ids, n_prompt + i, n_prompt, seed);
        text[i] = (char)ids[n_prompt + i];
    }
    return text;
}

void client_check_done(const struct client *client, const char *prompt, uint64_t seed,
                       uint32_t n_tokens)
{
    if (client->end.kind == REQUEST_FAILED)
        fail_msg("%s", client->end.err.text);
    assert_int_equal(client->end.kind, REQUEST_DONE);
    char *text = client_expected_text(prompt, seed, n_tokens);
    assert_string_equal(client->text.data != NULL ? client->text.data : "", text);
    free(text);
}
