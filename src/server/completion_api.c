/* POST /v1/completions: text or ids as they are, without a template. The text of a client is never
 * read as control tokens; who needs those sends ids. */
#include "base/err.h"
#include "server/server.h"
#include "server/task_api.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

#define PROMPT_MESSAGE                                                                             \
    "prompt must be a string, a list of token ids, or a list with one of these: one prompt a "     \
    "request"

static bool read_text(const struct server_model *model, struct str text, struct token_list *out,
                      struct api_error *error)
{
    const struct tokenizer_segment segment = { .text = text, .allow_control = false };
    const struct tokenizer_encode_options options = { .add_special = true, .bos_once = true };
    struct err err;

    if (!tokenizer_encode(model->tokenizer, &segment, 1, &options, out, &err))
        return api_error_set(error, err.code, "prompt", "%s", err.text);
    if (out->n_ids == 0)
        return api_error_set(error, ERR_ARGUMENT, "prompt", "the prompt is empty");
    return true;
}

static bool read_ids(const struct json *ids, uint32_t vocab_size, struct token_list *out,
                     struct api_error *error)
{
    for (size_t i = 0; i < json_size(ids); i++) {
        uint32_t id;

        if (!json_read_u32(json_at(ids, i), &id) || id >= vocab_size)
            return api_error_set(error, ERR_ARGUMENT, "prompt",
                                 "prompt[%zu] is no token id below %u", i, vocab_size);
        if (!token_list_add(out, id))
            return api_error_set(error, ERR_ARGUMENT, "prompt", "the prompt is too long");
    }
    return true;
}

static bool read_prompt(const struct json *document, const struct server_model *model,
                        struct token_list *out, struct api_error *error)
{
    const struct json *prompt = api_find(document, "prompt");
    const enum json_kind inner = json_kind(json_at(prompt, 0));

    if (json_kind(prompt) == JSON_KIND_ARRAY && json_size(prompt) == 1 &&
        (inner == JSON_KIND_STRING || inner == JSON_KIND_ARRAY))
        prompt = json_at(prompt, 0);
    if (json_kind(prompt) == JSON_KIND_STRING)
        return read_text(model, json_text(prompt), out, error);
    if (json_kind(prompt) != JSON_KIND_ARRAY || json_size(prompt) == 0 ||
        json_kind(json_at(prompt, 0)) != JSON_KIND_INTEGER)
        return api_error_set(error, ERR_ARGUMENT, "prompt", PROMPT_MESSAGE);
    return read_ids(prompt, model->vocab_size, out, error);
}

static bool read_logprobs(const struct json *document, struct api_request *request,
                          struct api_error *error)
{
    struct sampling_params *const sampling = &request->options.sampling;

    if (api_find(document, "logprobs") == NULL)
        return true;
    if (!api_read_u32(document, "logprobs", 0, SAMPLING_TOP_CAP, &sampling->n_top, error))
        return false;
    request->wants_logprobs = true;
    sampling->want_logprob = true;
    return true;
}

/* The prompt as text in front of the answer. */
static bool read_echo(const struct json *document, const struct server_model *model,
                      struct api_request *request, struct api_error *error)
{
    const struct token_list *const prompt = &request->prompt;
    struct detokenizer detokenizer;
    bool wants_echo = false;

    if (!api_read_bool(document, "echo", &wants_echo, error))
        return false;
    if (!wants_echo)
        return true;
    if (request->wants_logprobs)
        return api_error_set(error, ERR_UNSUPPORTED, "echo",
                             "echo cannot be combined with logprobs: those of the prompt are not "
                             "computed");
    detokenizer_init(&detokenizer, model->tokenizer, true, NULL, 0);
    for (size_t i = 0; i < prompt->n_ids; i++)
        detokenizer_push(&detokenizer, prompt->ids[i], &request->echo);
    detokenizer_finish(&detokenizer, &request->echo);
    return true;
}

static bool completion_read(const struct json *document, const struct server_model *model,
                            struct api_request *out, struct api_error *error)
{
    const struct json *const suffix = api_find(document, "suffix");

    if (suffix != NULL && json_kind(suffix) != JSON_KIND_STRING)
        return api_error_set(error, ERR_ARGUMENT, "suffix", "suffix must be a string");
    if (json_text(suffix).size > 0)
        return api_error_set(error, ERR_UNSUPPORTED, "suffix", "suffix is not supported");
    return read_logprobs(document, out, error) &&
           read_prompt(document, model, &out->prompt, error) &&
           read_echo(document, model, out, error);
}

static void completion_write_text(struct str text, bool is_piece, bool is_first, struct buf *out)
{
    (void)is_piece;
    (void)is_first;
    buf_add_text(out, "\"text\":");
    json_write_string(out, text);
}

const struct task_api completion_api = {
    .id_prefix = "cmpl-",
    .object = "text_completion",
    .chunk_object = "text_completion",
    .prompt_param = "prompt",
    .is_legacy = true,
    .read = completion_read,
    .write_text = completion_write_text,
};
