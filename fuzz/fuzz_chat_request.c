/* Bodies of chat and completion requests, as the API reads them: JSON, fields, template, ids. The
 * first byte chooses the endpoint. Whatever comes, there is a request or an error that says what is
 * wrong; never both. */
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "server/api_request.h"
#include "server/server.h"
#include "server/task_api.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "text/tokenizer_mock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char template[] =
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}";

static void read_body(const struct server_model *model, const struct task_api *api, struct str body)
{
    struct api_request request;
    struct api_error error = { 0 };
    struct err err;
    struct json *const document = json_parse(body, &err);

    api_request_init(&request, model);
    if (json_kind(document) == JSON_KIND_OBJECT) {
        const bool good = api_request_read(&request, document, model, &error) &&
                          api->read(document, model, &request, &error);

        must(good == (error.status == 0));
        must(!good || request.prompt.n_ids > 0);
        must(request.options.n_stops <= API_STOPS_CAP);
        must(request.options.sampling.n_bias <= SAMPLING_BIAS_CAP);
        for (size_t i = 0; good && i < request.prompt.n_ids; i++)
            must(request.prompt.ids[i] < model->vocab_size);
    }
    api_request_release(&request);
    json_free(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *tokenizer; // kept from one input to the next
    static struct chat *chat;
    struct sampling_params defaults;
    struct err err;

    if (size < 1)
        return 0;
    if (chat == NULL) {
        tokenizer = tokenizer_load_mock();
        chat = chat_open(&(struct chat_options){ .template_text = { .data = template,
                                                                    .size = sizeof template - 1 } },
                         &err);
        must(chat != NULL);
    }
    sampling_params_init(&defaults);
    const struct server_model model = { .id = "mock-model",
                                        .ctx_size = 256,
                                        .vocab_size = TOKENIZER_MOCK_N_TOKENS,
                                        .fingerprint = "fp_0",
                                        .tokenizer = tokenizer,
                                        .chat = chat,
                                        .defaults = &defaults };
    read_body(&model, data[0] & 1 ? &completion_api : &chat_api,
              (struct str){ .data = (const char *)data + 1, .size = size - 1 });
    return 0;
}
