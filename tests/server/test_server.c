/* The API from socket to socket, over a scheduler that plays scripts: what is asked of it, what is
 * answered, and what happens when either side ends first. */
#include "server/server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/thread.h"
#include "helpers/cm.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "text/tokenizer_mock.h"

#include "fake_scheduler.h"

/* The mock model's, and a message that it refuses. */
static const char template_text[] =
    "{% for message in messages %}"
    "{% if message.content == 'raise' %}{{ raise_exception('the template says no') }}{% endif %}"
    "{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";

/* One server on a thread, for one test. */
struct bench {
    struct tokenizer *tokenizer;
    struct chat *chat;
    struct server *server;
    struct scheduler scheduler;
    struct server_model model;
    struct sampling_params defaults;
    struct thread thread;
    bool drained; // what server_run returned
};

static void run_server(void *context)
{
    struct bench *const bench = context;

    bench->drained = server_run(bench->server, &bench->model, &bench->scheduler);
}

static struct bench *bench_open(struct server_options options)
{
    struct bench *const bench = xcalloc(1, sizeof *bench);
    struct err err = { 0 };

    bench->tokenizer = tokenizer_load_mock();
    bench->chat =
        chat_open(&(struct chat_options){ .template_text = str_from(template_text) }, &err);
    if (bench->chat == NULL)
        fail_msg("%s", err.text);
    sampling_params_init(&bench->defaults);
    bench->defaults.temperature = 1;
    bench->model = (struct server_model){ .id = "tiny/model",
                                          .created = 1700000000,
                                          .ctx_size = FAKE_PROMPT_ROWS_CAP + 1,
                                          .vocab_size = 260,
                                          .fingerprint = "fp_0123",
                                          .tokenizer = bench->tokenizer,
                                          .chat = bench->chat,
                                          .defaults = &bench->defaults };
    bench->server = server_open(&options, &err);
    assert_non_null(bench->server);
    bench->scheduler.server = bench->server;
    atomic_store(&bench->scheduler.ready, true);
    assert_true(thread_start(&bench->thread, "server", run_server, bench, &err));
    return bench;
}

static void bench_close(struct bench *bench)
{
    if (bench->thread.running) {
        server_stop(bench->server);
        server_stop(bench->server);
        thread_join(&bench->thread);
    }
    server_close(bench->server);
    assert_int_equal(atomic_load(&bench->scheduler.n_live), 0);
    chat_close(bench->chat);
    tokenizer_free(bench->tokenizer);
    free(bench);
}

static int dial(const struct bench *bench)
{
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_port = htons(server_port(bench->server)),
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const struct timeval patience = { .tv_sec = 10 };
    const int client = socket(AF_INET, SOCK_STREAM, 0);

    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(client, (const struct sockaddr *)&address, sizeof address), 0);
    return client;
}

static void send_request(int client, const char *method, const char *path, const char *body)
{
    struct buf out;

    buf_init(&out, 1u << 20);
    buf_printf(&out, "%s %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n", method, path);
    buf_printf(&out, "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
    assert_int_equal(send(client, out.data, out.size, MSG_NOSIGNAL), (ssize_t)out.size);
    buf_release(&out);
}

/* Reads up to the end of input, or until `needle` has come (NULL: the end only). */
static void receive(int client, const char *needle, struct buf *in)
{
    char piece[65536];
    ssize_t n;

    while (needle == NULL || str_find(buf_view(in), str_from(needle)) == SIZE_MAX) {
        n = recv(client, piece, sizeof piece, 0);
        if (n < 0)
            fail_msg("no answer within 10 s; so far: %s", in->data ? in->data : "");
        if (n == 0)
            break;
        buf_add(in, piece, (size_t)n);
    }
}

/* The answer to one request. `body` is what follows the head, chunks joined. */
struct answer {
    int status;
    struct buf all, body;
};

static void join_chunks(struct answer *answer, struct str rest)
{
    struct str line;

    while (str_split(&rest, '\n', &line) && rest.data != NULL) {
        const size_t size = strtoul(line.data, NULL, 16);

        if (size == 0)
            return;
        buf_add(&answer->body, rest.data, size);
        rest = str_slice(rest, size + 2, rest.size);
    }
    fail_msg("the chunks do not end");
}

static void call(const struct bench *bench, const char *method, const char *path, const char *body,
                 struct answer *answer)
{
    const int client = dial(bench);

    buf_init(&answer->all, 1u << 20);
    buf_init(&answer->body, 1u << 20);
    send_request(client, method, path, body);
    receive(client, NULL, &answer->all);
    close(client);
    const struct str all = buf_view(&answer->all);
    const size_t blank = str_find(all, STR("\r\n\r\n"));
    assert_true(str_starts(all, STR("HTTP/1.1 ")) && blank != SIZE_MAX);
    answer->status = atoi(all.data + 9);
    const struct str head = str_slice(all, 0, blank), rest = str_slice(all, blank + 4, all.size);
    if (str_find(head, STR("chunked")) != SIZE_MAX)
        join_chunks(answer, rest);
    else
        buf_add_str(&answer->body, rest);
}

static void answer_release(struct answer *answer)
{
    buf_release(&answer->all);
    buf_release(&answer->body);
}

static void assert_has(const struct buf *text, const char *needle)
{
    if (str_find(buf_view(text), str_from(needle)) == SIZE_MAX)
        fail_msg("no %s in %s", needle, text->data ? text->data : "");
}

static void assert_text(const struct buf *text, const char *expected)
{
    if (!str_is(buf_view(text), expected))
        fail_msg("%s\n  is not\n%s", text->data ? text->data : "", expected);
}

/* Replaces the id and the time of creation, which differ from run to run. */
static void blank_out(struct buf *text)
{
    static const struct {
        const char *before;
        size_t size;
    } rows[] = { { "\"id\":\"chatcmpl-", 24 }, { "\"id\":\"cmpl-", 24 }, { "\"created\":", 10 } };

    for (size_t i = 0; i < 3; i++) {
        size_t at = 0, found;

        while ((found = str_find(str_slice(buf_view(text), at, text->size),
                                 str_from(rows[i].before))) != SIZE_MAX) {
            at += found + strlen(rows[i].before);
            memset(text->data + at, '0', rows[i].size);
        }
    }
}

#define CHAT(content) "{\"messages\":[{\"role\":\"user\",\"content\":\"" content "\"}]}"
#define CHAT_WITH(content, more)                                                                   \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"" content "\"}]," more "}"
#define ID "\"id\":\"chatcmpl-000000000000000000000000\""
#define CHUNK                                                                                      \
    "data: {" ID ",\"object\":\"chat.completion.chunk\",\"created\":0000000000,"                   \
    "\"model\":\"tiny/model\",\"system_fingerprint\":\"fp_0123\",\"choices\":["
#define TIMINGS                                                                                    \
    "\"timings\":{\"queue_ms\":1.000,\"first_token_ms\":101.000,\"prompt_n\":%d,"                  \
    "\"prompt_ms\":100.000,\"prompt_per_second\":%d.000,\"predicted_n\":5,"                        \
    "\"predicted_ms\":200.000,\"predicted_per_second\":20.000,\"predicted_read_share\":0.750}"

static void expect_body(const struct answer *answer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void expect_body(const struct answer *answer, const char *format, ...)
{
    va_list arguments;
    struct buf expected;

    buf_init(&expected, 1u << 20);
    va_start(arguments, format);
    buf_vprintf(&expected, format, arguments);
    va_end(arguments);
    assert_text(&answer->body, expected.data);
    buf_release(&expected);
}

static void test_chat_whole(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ 0 });
    struct answer answer;
    (void)state;

    call(bench, "POST", "/v1/chat/completions", CHAT("say Hel;say lo \\\"you\\\";stop"), &answer);
    assert_int_equal(answer.status, 200);
    blank_out(&answer.body);
    expect_body(
        &answer,
        "{" ID ",\"object\":\"chat.completion\",\"created\":0000000000,"
        "\"model\":\"tiny/model\",\"system_fingerprint\":\"fp_0123\",\"choices\":["
        "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hello \\\"you\\\"\","
        "\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":28,\"completion_tokens\":5,\"total_tokens\":33}," TIMINGS "}",
        28, 280);
    assert_has(&answer.all, "Content-Type: application/json\r\n");
    assert_int_equal(bench->scheduler.last.max_tokens, 0);
    answer_release(&answer);

    call(bench, "POST", "/v1/chat/completions", CHAT("length"), &answer);
    assert_has(&answer.body, "\"content\":\"\"");
    assert_has(&answer.body, "\"finish_reason\":\"length\"");
    answer_release(&answer);
    bench_close(bench);
}

static void test_chat_streamed(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ 0 });
    struct answer answer;
    (void)state;

    call(bench, "POST", "/v1/chat/completions",
         CHAT_WITH("say Hel;say lo;stop",
                   "\"stream\":true,\"stream_options\":{\"include_usage\":true}"),
         &answer);
    assert_int_equal(answer.status, 200);
    blank_out(&answer.body);
    expect_body(&answer,
                CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hel\"},"
                      "\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n" CHUNK
                      "{\"index\":0,\"delta\":{\"content\":\"lo\"},\"logprobs\":null,"
                      "\"finish_reason\":null}],\"usage\":null}\n\n" CHUNK
                      "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
                      "\"usage\":null," TIMINGS "}\n\n" CHUNK "],\"usage\":{\"prompt_tokens\":22,"
                      "\"completion_tokens\":5,\"total_tokens\":27}}\n\ndata: [DONE]\n\n",
                22, 220);
    assert_has(&answer.all, "Content-Type: text/event-stream; charset=utf-8\r\n");
    assert_has(&answer.all, "Cache-Control: no-cache\r\n");
    answer_release(&answer);

    /* Without include_usage there is no usage; an empty answer still has a role and an end. */
    call(bench, "POST", "/v1/chat/completions", CHAT_WITH("stop", "\"stream\":true"), &answer);
    blank_out(&answer.body);
    expect_body(&answer,
                CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                      "\"logprobs\":null,\"finish_reason\":\"stop\"}]," TIMINGS
                      "}\n\ndata: [DONE]\n\n",
                7, 70);
    answer_release(&answer);
    bench_close(bench);
}

static void test_completions(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ 0 });
    struct answer answer;
    (void)state;

    call(bench, "POST", "/v1/completions", "{\"prompt\":\">say abc;stop\"}", &answer);
    blank_out(&answer.body);
    assert_has(&answer.body,
               "\"object\":\"text_completion\",\"created\":0000000000,\"model\":\"tiny/model\","
               "\"system_fingerprint\":\"fp_0123\",\"choices\":[{\"index\":0,\"text\":\"abc\","
               "\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":13,");
    answer_release(&answer);

    call(bench, "POST", "/v1/completions",
         "{\"prompt\":[\">say abc;stop\"],\"stream\":true,\"echo\":true}", &answer);
    assert_has(&answer.body,
               "\"text\":\">say abc;stop\",\"logprobs\":null,\"finish_reason\":null}");
    assert_has(&answer.body, "\"text\":\"abc\",\"logprobs\":null,\"finish_reason\":null}");
    assert_has(&answer.body, "\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}");
    assert_has(&answer.body, "data: [DONE]\n\n");
    answer_release(&answer);

    /* ids: "stop" */
    call(bench, "POST", "/v1/completions", "{\"prompt\":[115,116,111,112],\"echo\":true}", &answer);
    assert_int_equal(answer.status, 200);
    assert_has(&answer.body, "\"text\":\"stop\"");
    answer_release(&answer);
    call(bench, "POST", "/v1/completions", "{\"prompt\":[[115,116,111,112]]}", &answer);
    assert_int_equal(answer.status, 200);
    answer_release(&answer);
    bench_close(bench);
}

static void test_logprobs(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ 0 });
    struct answer answer;
    (void)state;

    call(bench, "POST", "/v1/chat/completions",
         CHAT_WITH("say x;stop", "\"logprobs\":true,\"top_logprobs\":2"), &answer);
    assert_has(&answer.body,
               "\"logprobs\":{\"content\":[{\"token\":\"x\",\"logprob\":-0.5,\"bytes\":[120],"
               "\"top_logprobs\":[{\"token\":\"a\",\"logprob\":-0.25,\"bytes\":[97]},"
               "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-1.5,\"bytes\":[195]}]}],"
               "\"refusal\":null}");
    answer_release(&answer);
    call(bench, "POST", "/v1/chat/completions",
         CHAT_WITH("say xy;stop", "\"logprobs\":true,\"stream\":true"), &answer);
    assert_has(&answer.body,
               "\"logprobs\":{\"content\":[{\"token\":\"x\",\"logprob\":-0.5,\"bytes\":[120],"
               "\"top_logprobs\":[]},{\"token\":\"y\",\"logprob\":-0.5,\"bytes\":[121],"
               "\"top_logprobs\":[]}],\"refusal\":null},\"finish_reason\":null}");
    assert_has(&answer.body, "\"logprobs\":null,\"finish_reason\":\"stop\"");
    answer_release(&answer);
    call(bench, "POST", "/v1/completions", "{\"prompt\":\">say xy;stop\",\"logprobs\":2}", &answer);
    assert_has(&answer.body,
               "\"logprobs\":{\"tokens\":[\"x\",\"y\"],\"token_logprobs\":[-0.5,-0.5],"
               "\"top_logprobs\":[{\"a\":-0.25,\"\xEF\xBF\xBD\":-1.5},"
               "{\"a\":-0.25,\"\xEF\xBF\xBD\":-1.5}],\"text_offset\":[0,1]}");
    answer_release(&answer);
    call(bench, "POST", "/v1/completions", "{\"prompt\":\">say x;stop\",\"logprobs\":0}", &answer);
    assert_has(&answer.body, "\"top_logprobs\":null,\"text_offset\":[0]}");
    answer_release(&answer);
    bench_close(bench);
}

static void test_fields_reach_the_scheduler(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ 0 });
    const struct request_options *const last = &bench->scheduler.last;
    struct answer answer;
    (void)state;

    call(bench, "POST", "/v1/chat/completions",
         CHAT_WITH("stop",
                   "\"model\":\"any\",\"max_tokens\":7,\"max_completion_tokens\":9,"
                   "\"temperature\":0.5,\"top_p\":0.25,\"top_k\":40,\"min_p\":0.125,"
                   "\"repetition_penalty\":1.5,\"presence_penalty\":-1,\"frequency_penalty\":2,"
                   "\"seed\":-3,\"stop\":[\"END\",\"\\n\\n\"],\"n\":1,\"ignore_eos\":true,"
                   "\"logit_bias\":{\"7\":-100,\"259\":1.5},\"user\":\"u\",\"unknown\":{\"a\":[]},"
                   "\"response_format\":{\"type\":\"text\"},\"tools\":[],\"logprobs\":null"),
         &answer);
    assert_int_equal(answer.status, 200);
    assert_int_equal(last->max_tokens, 9);
    assert_true(last->sampling.temperature == 0.5f && last->sampling.top_p == 0.25f);
    assert_true(last->sampling.top_k == 40 && last->sampling.min_p == 0.125f);
    assert_true(last->sampling.repetition_penalty == 1.5f);
    assert_true(last->sampling.presence_penalty == -1 && last->sampling.frequency_penalty == 2);
    assert_true(last->has_seed && last->sampling.seed == (uint64_t)-3);
    assert_int_equal(last->n_stops, 2);
    assert_string_equal(bench->scheduler.stops[0], "END");
    assert_string_equal(bench->scheduler.stops[1], "\n\n");
    assert_true(last->ignore_eos);
    assert_int_equal(last->sampling.n_bias, 2);
    assert_true(last->sampling.bias[0].token == 7 && last->sampling.bias[0].bias == -100);
    answer_release(&answer);

    call(bench, "POST", "/v1/chat/completions",
         "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":"
         "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\">stop\"}]}],"
         "\"stop\":\"x\",\"top_k\":-1,\"seed\":null}",
         &answer);
    assert_int_equal(answer.status, 200);
    assert_string_equal(bench->scheduler.prompt, "sa\n>stop");
    assert_true(last->sampling.temperature == 1 && last->sampling.top_k == 0); // the defaults
    assert_true(!last->has_seed && last->n_stops == 1);
    answer_release(&answer);
    bench_close(bench);
}

#define C "/v1/chat/completions"
#define P "/v1/completions"

static void test_bad_requests_are_errors(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ 0 });
    struct answer answer;
    (void)state;

    call(bench, "POST", C, "{\"messages\":[}", &answer);
    assert_int_equal(answer.status, 400);
    assert_has(&answer.body, "{\"error\":{\"message\":\"the body is not valid JSON: ");
    assert_has(&answer.body, "\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}");
    answer_release(&answer);
    call(bench, "POST", C, "[]", &answer);
    assert_int_equal(answer.status, 400);
    answer_release(&answer);
    call(bench, "POST", C, CHAT_WITH("stop", "\"stream\":true,\"temperature\":3"), &answer);
    assert_int_equal(answer.status, 400);
    assert_text(&answer.body,
                "{\"error\":{\"message\":\"temperature must be a number from 0 to 2\",\"type\":"
                "\"invalid_request_error\",\"param\":\"temperature\",\"code\":null}}");
    answer_release(&answer);
    assert_int_equal(atomic_load(&bench->scheduler.n_live), 0);
    bench_close(bench);
}

static void test_too_long_a_prompt(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ .body_bytes_cap = 4096 });
    struct answer answer;
    struct buf body;
    (void)state;

    buf_init(&body, 1u << 20);
    buf_add_text(&body, "{\"prompt\":\"");
    for (int i = 0; i < 1001; i++)
        buf_add_char(&body, 'a');
    buf_add_text(&body, "\",\"stream\":true}");
    call(bench, "POST", P, body.data, &answer);
    assert_int_equal(answer.status, 400);
    assert_has(&answer.body, "\"code\":\"context_length_exceeded\"");
    assert_has(&answer.body, "has 1001 tokens");
    assert_has(&answer.body, "at most 1000");
    answer_release(&answer);
    while (body.size < 5000)
        buf_add_char(&body, ' ');
    call(bench, "POST", P, body.data, &answer);
    assert_int_equal(answer.status, 413);
    assert_has(&answer.body, "{\"error\":{\"message\":\"the body is larger");
    assert_has(&answer.body, "at most 4096 bytes");
    answer_release(&answer);
    buf_release(&body);
    bench_close(bench);
}

static void test_failures(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ 0 });
    struct answer answer;
    (void)state;

    /* Before the first token: a status of its own, streamed or not. */
    call(bench, "POST", C, CHAT_WITH("lost", "\"stream\":true"), &answer);
    assert_int_equal(answer.status, 503);
    assert_has(&answer.all, "Retry-After: 1\r\n");
    assert_text(&answer.body, "{\"error\":{\"message\":\"stage 1 is lost\",\"type\":"
                              "\"stage_lost_error\",\"param\":null,\"code\":\"stage_lost\"}}");
    answer_release(&answer);
    call(bench, "POST", C, CHAT("say part;lost"), &answer);
    assert_int_equal(answer.status, 503);
    answer_release(&answer);
    /* In a stream: one error event, no end mark, closed. */
    call(bench, "POST", C, CHAT_WITH("say part;lost", "\"stream\":true"), &answer);
    assert_int_equal(answer.status, 200);
    assert_has(&answer.body, "part");
    assert_has(&answer.body, "\n\ndata: {\"error\":{\"message\":\"stage 1 is lost\",\"type\":"
                             "\"stage_lost_error\",\"param\":null,\"code\":\"stage_lost\"}}\n\n");
    assert_int_equal(str_find(buf_view(&answer.body), STR("[DONE]")), SIZE_MAX);
    assert_int_equal(str_find(buf_view(&answer.body), STR("finish_reason\":\"")), SIZE_MAX);
    answer_release(&answer);
    call(bench, "POST", C, CHAT("busy"), &answer);
    assert_int_equal(answer.status, 503);
    assert_has(&answer.all, "Retry-After: 1\r\n");
    assert_has(&answer.body, "\"type\":\"overloaded_error\"");
    answer_release(&answer);
    bench_close(bench);
}

static void test_paths_and_methods(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ .insecure = true });
    struct answer answer;
    (void)state;

    call(bench, "GET", "/v1/models", "", &answer);
    assert_text(&answer.body, "{\"object\":\"list\",\"data\":[{\"id\":\"tiny/model\",\"object\":"
                              "\"model\",\"created\":1700000000,\"owned_by\":\"cascadia\","
                              "\"max_model_len\":1001}]}");
    answer_release(&answer);
    const char *const found[] = { "/v1/models/tiny/model", "/v1/models/tiny%2Fmodel",
                                  "/v1/models/tiny%2fmodel?x=1" };
    for (size_t i = 0; i < 3; i++) {
        call(bench, "GET", found[i], "", &answer);
        assert_int_equal(answer.status, 200);
        assert_has(&answer.body, "{\"id\":\"tiny/model\"");
        answer_release(&answer);
    }
    const char *const missing[] = { "/",           "/v1",         "/v1/models/other",
                                    "/v1/models/", "/v1/nothing", "/v1/completions/" };
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++) {
        call(bench, "GET", missing[i], "", &answer);
        assert_int_equal(answer.status, 404);
        assert_has(&answer.body, "\"type\":\"not_found_error\"");
        answer_release(&answer);
    }
    call(bench, "GET", C, "", &answer);
    assert_int_equal(answer.status, 405);
    assert_has(&answer.all, "\r\nAllow: POST\r\n");
    assert_has(&answer.body, "{\"error\":{");
    answer_release(&answer);
    call(bench, "DELETE", "/health", "", &answer);
    assert_int_equal(answer.status, 405);
    assert_has(&answer.all, "\r\nAllow: GET, HEAD\r\n");
    answer_release(&answer);
    call(bench, "HEAD", "/health", "", &answer);
    assert_int_equal(answer.status, 200);
    assert_int_equal(answer.body.size, 0);
    answer_release(&answer);
    bench_close(bench);
}

static void test_metrics(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ 0 });
    struct answer answer;
    (void)state;

    call(bench, "GET", "/metrics", "", &answer);
    assert_int_equal(answer.status, 200);
    assert_has(&answer.all, "text/plain; version=0.0.4; charset=utf-8");
    assert_has(&answer.body, "\n# TYPE cascadia_requests_total counter\n");
    assert_has(&answer.body, "\ncascadia_requests_total{outcome=\"failed\"} 3\n");
    assert_has(&answer.body, "\ncascadia_decode_read_share 0.5\n");
    assert_has(&answer.body, "\ncascadia_kv_pages 8\n");
    answer_release(&answer);
    bench_close(bench);
}

static void test_health(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ .insecure = true });
    struct answer answer;
    (void)state;

    call(bench, "GET", "/health", "", &answer);
    assert_int_equal(answer.status, 200);
    assert_text(&answer.body,
                "{\"status\":\"ok\",\"reasons\":[],\"model\":\"tiny/model\",\"insecure\":true,"
                "\"requests\":{\"running\":0,\"waiting\":0},\"kv_pages\":{\"used\":0,\"total\":8},"
                "\"chain\":{\"state\":\"ready\"}}");
    answer_release(&answer);
    atomic_store(&bench->scheduler.ready, false);
    call(bench, "GET", "/health", "", &answer);
    assert_int_equal(answer.status, 503);
    assert_has(&answer.body, "{\"status\":\"unavailable\",\"reasons\":[\"the chain of stages");
    answer_release(&answer);
    atomic_store(&bench->scheduler.ready, true);
    call(bench, "POST", C, CHAT("lost"), &answer); // a failed request is no reason by itself
    answer_release(&answer);
    call(bench, "GET", "/health", "", &answer);
    assert_int_equal(answer.status, 200);
    answer_release(&answer);
    bench_close(bench);
}

/* Waits for what the server's thread will do; 10 s is for a very busy machine. */
static void wait_for(const _Atomic uint32_t *value, uint32_t expected)
{
    const uint64_t end_ms = clock_ms() + 10000;

    while (atomic_load(value) != expected && clock_ms() < end_ms)
        clock_sleep_ms(1);
    assert_int_equal(atomic_load(value), expected);
}

static void test_a_leaving_client_cancels(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ 0 });
    struct buf in;
    (void)state;

    buf_init(&in, 1u << 20);
    for (uint32_t i = 0; i < 3; i++) { // not streamed, in the prompt, in the answer
        const int client = dial(bench);

        send_request(client, "POST", C,
                     i == 0   ? CHAT("hang")
                     : i == 1 ? CHAT_WITH("hang", "\"stream\":true")
                              : CHAT_WITH("say x;hang", "\"stream\":true"));
        wait_for(&bench->scheduler.n_live, 1);
        if (i == 2)
            receive(client, "\"x\"", &in);
        close(client);
        wait_for(&bench->scheduler.n_cancelled, i + 1);
        wait_for(&bench->scheduler.n_live, 0);
    }
    buf_release(&in);
    bench_close(bench);
}

static void test_a_silent_stream_begins_after_a_while(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ .heartbeat_ms = 20 });
    const int client = dial(bench);
    struct buf in;
    (void)state;

    buf_init(&in, 1u << 20);
    send_request(client, "POST", C, CHAT_WITH("hang", "\"stream\":true"));
    receive(client, ": waiting\n\n\r\nb\r\n: waiting\n\n", &in);
    assert_true(str_starts(buf_view(&in), STR("HTTP/1.1 200 OK\r\n")));
    close(client);
    buf_release(&in);
    wait_for(&bench->scheduler.n_cancelled, 1);
    bench_close(bench);
}

static void test_eight_streams_do_not_mix(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ 0 });
    int clients[8];
    (void)state;

    for (int i = 0; i < 8; i++) {
        char body[200];

        clients[i] = dial(bench);
        snprintf(body, sizeof body, CHAT_WITH("say a%d;say b%d;stop", "\"stream\":%s"), i, i,
                 i & 1 ? "true" : "false");
        send_request(clients[i], "POST", C, body);
    }
    for (int i = 7; i >= 0; i--) {
        struct buf in;
        char needle[40];

        buf_init(&in, 1u << 20);
        receive(clients[i], NULL, &in);
        snprintf(needle, sizeof needle, i & 1 ? "\"content\":\"b%d\"" : "\"content\":\"a%db%d\"", i,
                 i);
        assert_has(&in, needle);
        close(clients[i]);
        buf_release(&in);
    }
    bench_close(bench);
}

static void test_drain(void **state)
{
    struct bench *const bench = bench_open((struct server_options){ .drain_timeout_ms = 4321 });
    const int busy = dial(bench);
    (void)state;

    send_request(busy, "POST", C, CHAT("hang"));
    wait_for(&bench->scheduler.n_live, 1);
    server_stop(bench->server);
    while (atomic_load(&bench->scheduler.drain_timeout_ms) == 0)
        clock_sleep_ms(1);
    assert_int_equal(atomic_load(&bench->scheduler.drain_timeout_ms), 4321);
    close(busy); // the last one
    thread_join(&bench->thread);
    assert_true(bench->drained);
    bench_close(bench);
}

static void test_a_drain_ends_and_a_second_stop_ends_it_at_once(void **state)
{
    struct bench *bench = bench_open((struct server_options){ .drain_timeout_ms = 1 });
    int busy = dial(bench);
    (void)state;

    send_request(busy, "POST", C, CHAT("hang"));
    wait_for(&bench->scheduler.n_live, 1);
    server_stop(bench->server);
    thread_join(&bench->thread); // the scheduler never ends it, the grace is over
    assert_true(bench->drained);
    close(busy);
    bench_close(bench);

    bench = bench_open((struct server_options){ .drain_timeout_ms = 1000000 });
    busy = dial(bench);
    send_request(busy, "POST", C, CHAT("hang"));
    wait_for(&bench->scheduler.n_live, 1);
    server_stop(bench->server);
    while (atomic_load(&bench->scheduler.drain_timeout_ms) == 0)
        clock_sleep_ms(1);
    server_stop(bench->server);
    thread_join(&bench->thread);
    assert_false(bench->drained);
    close(busy);
    bench_close(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_whole),
        cmocka_unit_test(test_chat_streamed),
        cmocka_unit_test(test_completions),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_fields_reach_the_scheduler),
        cmocka_unit_test(test_bad_requests_are_errors),
        cmocka_unit_test(test_too_long_a_prompt),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_paths_and_methods),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_health),
        cmocka_unit_test(test_a_leaving_client_cancels),
        cmocka_unit_test(test_a_silent_stream_begins_after_a_while),
        cmocka_unit_test(test_eight_streams_do_not_mix),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_a_drain_ends_and_a_second_stop_ends_it_at_once),
    };
    return cmocka_run_group_tests_name("server", tests, NULL, NULL);
}
