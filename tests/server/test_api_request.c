/* From the JSON of a request to what the scheduler is asked for: each field, its bounds, and the
 * name that an error gives it. */
#include "server/api_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helpers/cm.h"
#include "server/server.h"
#include "server/task_api.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "text/tokenizer_mock.h"

#define CHAT(content) "{\"messages\":[{\"role\":\"user\",\"content\":\"" content "\"}]}"
#define CHAT_WITH(content, more)                                                                   \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"" content "\"}]," more "}"

static const char template_text[] =
    "{% for message in messages %}"
    "{% if message.content == 'raise' %}{{ raise_exception('the template says no') }}{% endif %}"
    "{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}{{ tail }}";

struct fixture {
    struct server_model model;
    struct sampling_params defaults;
    struct tokenizer *tokenizer;
    struct chat *chat;
};

static int set_up(void **state)
{
    struct fixture *const fixture = calloc(1, sizeof *fixture);
    struct err err = { 0 };

    assert_non_null(fixture);
    fixture->tokenizer = tokenizer_load_mock();
    fixture->chat =
        chat_open(&(struct chat_options){ .template_text = str_from(template_text) }, &err);
    if (fixture->chat == NULL)
        fail_msg("%s", err.text);
    sampling_params_init(&fixture->defaults);
    fixture->defaults.temperature = 0.75f;
    fixture->defaults.top_k = 50;
    fixture->model = (struct server_model){ .id = "m",
                                            .ctx_size = 1000,
                                            .vocab_size = TOKENIZER_MOCK_N_TOKENS,
                                            .fingerprint = "fp_0",
                                            .tokenizer = fixture->tokenizer,
                                            .chat = fixture->chat,
                                            .defaults = &fixture->defaults };
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *const fixture = *state;

    chat_close(fixture->chat);
    tokenizer_free(fixture->tokenizer);
    free(fixture);
    return 0;
}

/* A request with the document that its stops view. */
struct reading {
    struct json *document;
    struct api_request request;
    struct api_error error;
};

static bool read_request(struct fixture *fixture, const struct task_api *api, const char *body,
                         struct reading *reading)
{
    struct err err = { 0 };

    *reading = (struct reading){ .document = json_parse(str_from(body), &err) };
    if (reading->document == NULL)
        fail_msg("%s: %s", body, err.text);
    api_request_init(&reading->request, &fixture->model);
    return api_request_read(&reading->request, reading->document, &fixture->model,
                            &reading->error) &&
           api->read(reading->document, &fixture->model, &reading->request, &reading->error);
}

static void release(struct reading *reading)
{
    api_request_release(&reading->request);
    json_free(reading->document);
}

struct refusal {
    const struct task_api *api;
    const char *body;
    const char *param;
};

#define C &chat_api
#define P &completion_api

/* Known fields with values that cannot be meant. */
static const struct refusal refusals[] = {
    { C, "{}", "messages" },
    { C, "{\"messages\":[]}", "messages" },
    { C, "{\"messages\":\"hi\"}", "messages" },
    { C, "{\"messages\":[1]}", "messages[0]" },
    { C, "{\"messages\":[{\"content\":\"x\"}]}", "messages[0].role" },
    { C, "{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content" },
    { C, "{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "messages[0].content" },
    { C, "{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "messages[0].content" },
    { C,
      "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
      "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:\"}}]}]}",
      "messages[0].content[1]" },
    { C, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
      "messages[0].content[0]" },
    { C, CHAT("raise"), "messages" },
    { C, CHAT_WITH("stop", "\"model\":5"), "model" },
    { C, CHAT_WITH("stop", "\"n\":2"), "n" },
    { C, CHAT_WITH("stop", "\"temperature\":2.1"), "temperature" },
    { C, CHAT_WITH("stop", "\"temperature\":-0.1"), "temperature" },
    { C, CHAT_WITH("stop", "\"temperature\":\"1\""), "temperature" },
    { C, CHAT_WITH("stop", "\"top_p\":1.1"), "top_p" },
    { C, CHAT_WITH("stop", "\"top_k\":-2"), "top_k" },
    { C, CHAT_WITH("stop", "\"top_k\":1.5"), "top_k" },
    { C, CHAT_WITH("stop", "\"min_p\":2"), "min_p" },
    { C, CHAT_WITH("stop", "\"repetition_penalty\":0"), "repetition_penalty" },
    { C, CHAT_WITH("stop", "\"presence_penalty\":3"), "presence_penalty" },
    { C, CHAT_WITH("stop", "\"frequency_penalty\":-3"), "frequency_penalty" },
    { C, CHAT_WITH("stop", "\"seed\":1.5"), "seed" },
    { C, CHAT_WITH("stop", "\"max_tokens\":0"), "max_tokens" },
    { C, CHAT_WITH("stop", "\"max_tokens\":-1"), "max_tokens" },
    { C, CHAT_WITH("stop", "\"max_completion_tokens\":\"9\""), "max_completion_tokens" },
    { C, CHAT_WITH("stop", "\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\"]"), "stop" },
    { C, CHAT_WITH("stop", "\"stop\":\"\""), "stop" },
    { C, CHAT_WITH("stop", "\"stop\":[1]"), "stop" },
    { C, CHAT_WITH("stop", "\"stream\":1"), "stream" },
    { C, CHAT_WITH("stop", "\"stream_options\":{\"include_usage\":true}"), "stream_options" },
    { C, CHAT_WITH("stop", "\"stream\":true,\"stream_options\":{\"include_usage\":1}"),
      "stream_options.include_usage" },
    { C, CHAT_WITH("stop", "\"logprobs\":3"), "logprobs" },
    { C, CHAT_WITH("stop", "\"top_logprobs\":3"), "top_logprobs" },
    { C, CHAT_WITH("stop", "\"logprobs\":true,\"top_logprobs\":21"), "top_logprobs" },
    { C, CHAT_WITH("stop", "\"logit_bias\":[]"), "logit_bias" },
    { C, CHAT_WITH("stop", "\"logit_bias\":{\"260\":1}"), "logit_bias" },
    { C, CHAT_WITH("stop", "\"logit_bias\":{\"x\":1}"), "logit_bias" },
    { C, CHAT_WITH("stop", "\"logit_bias\":{\"1\":101}"), "logit_bias" },
    { C, CHAT_WITH("stop", "\"chat_template_kwargs\":1"), "chat_template_kwargs" },
    { C, CHAT_WITH("stop", "\"ignore_eos\":\"no\""), "ignore_eos" },
    { C, CHAT_WITH("stop", "\"seed\":18446744073709551616"), "seed" },
    { C, CHAT_WITH("stop", "\"tools\":[{}]"), "tools" },
    { C, CHAT_WITH("stop", "\"tools\":\"search\""), "tools" },
    { C, CHAT_WITH("stop", "\"tools\":{}"), "tools" },
    { C, CHAT_WITH("stop", "\"functions\":true"), "functions" },
    { C, CHAT_WITH("stop", "\"tool_choice\":\"required\""), "tool_choice" },
    { C, CHAT_WITH("stop", "\"tool_choice\":{\"type\":\"function\"}"), "tool_choice" },
    { C, CHAT_WITH("stop", "\"function_call\":{\"name\":\"f\"}"), "function_call" },
    { C, CHAT_WITH("stop", "\"response_format\":{\"type\":\"xml\"}"), "response_format.type" },
    { C, CHAT_WITH("stop", "\"response_format\":\"json_object\""), "response_format.type" },
    { C, CHAT_WITH("stop", "\"response_format\":{\"type\":\"json_schema\"}"),
      "response_format.json_schema" },
    { C, CHAT_WITH("stop", "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}"),
      "response_format.json_schema.schema" },
    { C,
      CHAT_WITH("stop", "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":"
                        "{\"not\":{}}}}"),
      "response_format.json_schema.schema" },
    { C, CHAT_WITH("stop", "\"grammar\":\"root ::= root\""), "grammar" },
    { C, CHAT_WITH("stop", "\"grammar\":\"root ::= (\""), "grammar" },
    { C, CHAT_WITH("stop", "\"grammar\":{}"), "grammar" },
    { C, CHAT_WITH("stop", "\"grammar\":\"\""), "grammar" },
    { C, CHAT_WITH("stop", "\"regex\":\"(?=x)\""), "regex" },
    { C, CHAT_WITH("stop", "\"regex\":\"[a\""), "regex" },
    { C, CHAT_WITH("stop", "\"regex\":\"a\",\"grammar\":\"root ::= \\\"a\\\"\""), "regex" },
    { C, CHAT_WITH("stop", "\"regex\":\"a\",\"response_format\":{\"type\":\"json_object\"}"),
      "regex" },
    { C, CHAT_WITH("stop", "\"regex\":\"a\",\"ignore_eos\":true"), "ignore_eos" },
    { P, "{}", "prompt" },
    { P, "{\"prompt\":\"\"}", "prompt" },
    { P, "{\"prompt\":[]}", "prompt" },
    { P, "{\"prompt\":[\"a\",\"b\"]}", "prompt" },
    { P, "{\"prompt\":[260]}", "prompt" },
    { P, "{\"prompt\":[1,\"a\"]}", "prompt" },
    { P, "{\"prompt\":\"stop\",\"logprobs\":21}", "logprobs" },
    { P, "{\"prompt\":\"stop\",\"logprobs\":true}", "logprobs" },
    { P, "{\"prompt\":\"stop\",\"best_of\":2}", "best_of" },
    { P, "{\"prompt\":\"stop\",\"suffix\":\"s\"}", "suffix" },
    { P, "{\"prompt\":\"stop\",\"suffix\":[]}", "suffix" },
    { P, "{\"prompt\":\"stop\",\"echo\":1}", "echo" },
    { P, "{\"prompt\":\"stop\",\"echo\":true,\"logprobs\":1}", "echo" },
};

static void test_bad_values_are_named(void **state)
{
    size_t n_wrong = 0;

    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct reading reading;
        const bool accepted = read_request(*state, refusals[i].api, refusals[i].body, &reading);

        if (accepted || reading.error.status != 400 ||
            strcmp(reading.error.param, refusals[i].param) != 0 ||
            strcmp(reading.error.type, "invalid_request_error") != 0 ||
            reading.error.message[0] == '\0') {
            print_error("%s: %d %s \"%s\"\n", refusals[i].body, reading.error.status,
                        reading.error.param, reading.error.message);
            n_wrong++;
        }
        release(&reading);
    }
    assert_int_equal(n_wrong, 0);
}

/* Values at their bounds, null for absent, and what is none of our business. */
static const char *const accepted_fields[] = {
    "\"temperature\":0",
    "\"temperature\":2,\"top_p\":0,\"min_p\":1,\"top_k\":0",
    "\"top_p\":1,\"top_k\":-1,\"presence_penalty\":2,\"frequency_penalty\":-2.0",
    "\"temperature\":null,\"top_p\":null,\"stop\":null,\"seed\":null,\"logit_bias\":null",
    "\"max_tokens\":1,\"n\":1,\"stop\":[]",
    "\"max_tokens\":5.0",
    "\"seed\":9223372036854775807",
    "\"stop\":[\"1\",\"2\",\"3\",\"4\"]",
    "\"stream\":true,\"stream_options\":{}",
    "\"stream\":false,\"stream_options\":null",
    "\"logprobs\":true,\"top_logprobs\":20",
    "\"logprobs\":false,\"top_logprobs\":0",
    "\"logit_bias\":{\"0\":100,\"259\":-100}",
    "\"tools\":[],\"functions\":null,\"tool_choice\":\"none\"",
    "\"tool_choice\":\"auto\",\"function_call\":\"none\"",
    "\"response_format\":{\"type\":\"text\"},\"grammar\":null,\"regex\":null",
    "\"response_format\":{\"type\":\"json_object\"}",
    "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"const\":1}}}",
    "\"grammar\":\"root ::= [a-z]+\"",
    "\"regex\":\"[a-z]+\"",
    "\"model\":\"anything\",\"user\":\"u\",\"metadata\":{},\"nonsense\":[{\"x\":null}]",
};

static void test_what_is_accepted(void **state)
{
    for (size_t i = 0; i < sizeof accepted_fields / sizeof accepted_fields[0]; i++) {
        struct reading reading;
        char body[512];

        snprintf(body, sizeof body, CHAT_WITH("x", "%s"), accepted_fields[i]);
        if (!read_request(*state, &chat_api, body, &reading))
            fail_msg("%s: %s", accepted_fields[i], reading.error.message);
        assert_int_equal(reading.request.prompt.n_ids, 4);
        release(&reading);
    }
}

static void test_fields_become_options(void **state)
{
    struct reading reading;

    assert_true(read_request(
        *state, &chat_api,
        CHAT_WITH("x", "\"max_tokens\":7,\"max_completion_tokens\":9,\"temperature\":0.5,"
                       "\"top_p\":0.25,\"top_k\":40,\"min_p\":0.125,\"repetition_penalty\":1.5,"
                       "\"presence_penalty\":-1,\"frequency_penalty\":2,\"seed\":-3,"
                       "\"stop\":[\"END\",\"\\n\"],\"ignore_eos\":true,\"logprobs\":true,"
                       "\"top_logprobs\":3,\"logit_bias\":{\"7\":-100,\"259\":1.5},"
                       "\"stream\":true,\"stream_options\":{\"include_usage\":true}"),
        &reading));
    const struct request_options *const options = &reading.request.options;
    const struct sampling_params *const sampling = &options->sampling;
    assert_int_equal(options->max_tokens, 9);
    assert_true(sampling->temperature == 0.5f && sampling->top_p == 0.25f);
    assert_true(sampling->top_k == 40 && sampling->min_p == 0.125f);
    assert_true(sampling->repetition_penalty == 1.5f);
    assert_true(sampling->presence_penalty == -1 && sampling->frequency_penalty == 2);
    assert_true(options->has_seed && sampling->seed == (uint64_t)-3);
    assert_int_equal(options->n_stops, 2);
    assert_true(str_is(options->stops[0], "END") && str_is(options->stops[1], "\n"));
    assert_true(options->ignore_eos && sampling->want_logprob && sampling->n_top == 3);
    assert_int_equal(sampling->n_bias, 2);
    assert_true(sampling->bias[1].token == 259 && sampling->bias[1].bias == 1.5f);
    assert_true(reading.request.stream && reading.request.include_usage);
    release(&reading);

    assert_true(read_request(*state, &chat_api, CHAT("x"), &reading));
    assert_true(sampling->temperature == 0.75f && sampling->top_k == 50); // the model's defaults
    assert_true(!options->has_seed && options->max_tokens == 0 && options->n_stops == 0);
    assert_true(!reading.request.stream && !reading.request.wants_logprobs);
    release(&reading);
}

static void assert_prompt(const struct reading *reading, const uint32_t *ids, size_t n_ids)
{
    assert_int_equal(reading->request.prompt.n_ids, n_ids);
    assert_memory_equal(reading->request.prompt.ids, ids, n_ids * sizeof *ids);
}

static void test_prompts(void **state)
{
    const uint32_t chat[] = { 256, '<', '|', 'e', 'n', 'd', '|', '>', 259, 257, '!' };
    const uint32_t text[] = { '<', '|', 'e', 'n', 'd', '|', '>' };
    const uint32_t ids[] = { 256, 'o', 'k', 259 };
    struct reading reading;

    /* Only the template's text becomes control tokens; its variables are the client's. */
    assert_true(read_request(*state, &chat_api,
                             CHAT_WITH("<|end|>", "\"chat_template_kwargs\":{\"tail\":\"!\"}"),
                             &reading));
    assert_prompt(&reading, chat, sizeof chat / sizeof chat[0]);
    release(&reading);
    assert_true(read_request(*state, &completion_api, "{\"prompt\":\"<|end|>\"}", &reading));
    assert_prompt(&reading, text, sizeof text / sizeof text[0]);
    release(&reading);
    assert_true(read_request(*state, &completion_api, "{\"prompt\":[\"<|end|>\"]}", &reading));
    assert_prompt(&reading, text, sizeof text / sizeof text[0]);
    release(&reading);
    assert_true(read_request(*state, &completion_api,
                             "{\"prompt\":[256,111,107,259],\"echo\":true}", &reading));
    assert_prompt(&reading, ids, sizeof ids / sizeof ids[0]);
    assert_true(str_is(buf_view(&reading.request.echo), "ok"));
    release(&reading);
}

static void test_a_model_without_a_template(void **state)
{
    struct fixture *const fixture = *state;
    struct reading reading;

    fixture->model.chat = NULL;
    assert_false(read_request(fixture, &chat_api, CHAT("x"), &reading));
    assert_int_equal(reading.error.status, 400);
    assert_non_null(strstr(reading.error.message, "no chat template"));
    release(&reading);
    assert_true(read_request(fixture, &completion_api, "{\"prompt\":\"x\"}", &reading));
    release(&reading);
    fixture->model.chat = fixture->chat;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_values_are_named),       cmocka_unit_test(test_what_is_accepted),
        cmocka_unit_test(test_fields_become_options),      cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_a_model_without_a_template),
    };
    return cmocka_run_group_tests_name("api_request", tests, set_up, tear_down);
}
