/* POST /v1/completions: text or ids as they are, without a template. The text of a client is never
 * read as control tokens; who needs those sends ids. */
#include "base/err.h"
#include "server/server_internal.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

#define PROMPT_MESSAGE                                                                             \
    "prompt must be a string, a list of token ids, or a list with one of these: one prompt a "     \
    "request"

static bool read_text(struct task *task, struct str text, struct api_error *error)
{
    const struct tokenizer_segment segment = { .text = text, .allow_control = false };
    const struct tokenizer_encode_options options = { .add_special = true, .bos_once = true };
    struct err err;

    if (!tokenizer_encode(task->server->model->tokenizer, &segment, 1, &options,
                          &task->api_request.prompt, &err))
        return api_error_set(error, err.code, "prompt", "%s", err.text);
    if (task->api_request.prompt.n_ids == 0)
        return api_error_set(error, ERR_ARGUMENT, "prompt", "the prompt is empty");
    return true;
}

static bool read_ids(struct task *task, const struct json *ids, struct api_error *error)
{
    const uint32_t vocab_size = task->server->model->vocab_size;

    for (size_t i = 0; i < json_size(ids); i++) {
        uint32_t id;

        if (!json_read_u32(json_at(ids, i), &id) || id >= vocab_size)
            return api_error_set(error, ERR_ARGUMENT, "prompt",
                                 "prompt[%zu] is no token id below %u", i, vocab_size);
        if (!token_list_add(&task->api_request.prompt, id))
            return api_error_set(error, ERR_ARGUMENT, "prompt", "the prompt is too long");
    }
    return true;
}

static bool read_prompt(struct task *task, struct api_error *error)
{
    const struct json *prompt = api_find(task->document, "prompt");
    const enum json_kind inner = json_kind(json_at(prompt, 0));

    if (json_kind(prompt) == JSON_KIND_ARRAY && json_size(prompt) == 1 &&
        (inner == JSON_KIND_STRING || inner == JSON_KIND_ARRAY))
        prompt = json_at(prompt, 0);
    if (json_kind(prompt) == JSON_KIND_STRING)
        return read_text(task, json_text(prompt), error);
    if (json_kind(prompt) != JSON_KIND_ARRAY || json_size(prompt) == 0 ||
        json_kind(json_at(prompt, 0)) != JSON_KIND_INTEGER)
        return api_error_set(error, ERR_ARGUMENT, "prompt", PROMPT_MESSAGE);
    return read_ids(task, prompt, error);
}

static bool read_logprobs(struct task *task, struct api_error *error)
{
    struct sampling_params *const sampling = &task->api_request.options.sampling;

    if (api_find(task->document, "logprobs") == NULL)
        return true;
    if (!api_read_u32(task->document, "logprobs", 0, SAMPLING_TOP_CAP, &sampling->n_top, error))
        return false;
    task->api_request.wants_logprobs = true;
    sampling->want_logprob = true;
    return true;
}

/* The prompt as text in front of the answer. */
static bool read_echo(struct task *task, struct api_error *error)
{
    const struct token_list *const prompt = &task->api_request.prompt;
    struct detokenizer detokenizer;
    bool wants_echo = false;

    if (!api_read_bool(task->document, "echo", &wants_echo, error) || !wants_echo)
        return error->status == 0;
    if (task->api_request.wants_logprobs)
        return api_error_set(error, ERR_UNSUPPORTED, "echo",
                             "echo cannot be combined with logprobs: those of the prompt are not "
                             "computed");
    detokenizer_init(&detokenizer, task->server->model->tokenizer, true, NULL, 0);
    for (size_t i = 0; i < prompt->n_ids; i++)
        detokenizer_push(&detokenizer, prompt->ids[i], &task->text);
    detokenizer_finish(&detokenizer, &task->text);
    return true;
}

static bool completion_read(struct task *task, struct api_error *error)
{
    const struct json *const suffix = api_find(task->document, "suffix");

    if (suffix != NULL && json_text(suffix).size > 0)
        return api_error_set(error, ERR_UNSUPPORTED, "suffix", "suffix is not supported");
    return read_logprobs(task, error) && read_prompt(task, error) && read_echo(task, error);
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
