/* POST /v1/chat/completions: messages are checked here, so that an error can name its part, then
 * rendered by text/chat. Only bytes that the template wrote may become control tokens. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "server/server.h"
#include "server/task_api.h"
#include "text/chat.h"
#include "text/tokenizer.h"

#define MESSAGES_CAP 65536u
#define PARTS_CAP 65536u

static bool check_part(const struct json *part, const char *name, struct api_error *error)
{
    const struct str type = json_text(json_get(part, "type"));

    if (json_kind(part) != JSON_KIND_OBJECT || type.data == NULL)
        return api_error_set(error, ERR_ARGUMENT, name, "%s must be an object with a type", name);
    if (!str_is(type, "text"))
        return api_error_set(error, ERR_UNSUPPORTED, name,
                             "%s has the type \"%.*s\"; this model takes text only", name,
                             (int)(type.size > 64 ? 64 : type.size), type.data);
    if (json_kind(json_get(part, "text")) != JSON_KIND_STRING)
        return api_error_set(error, ERR_ARGUMENT, name, "%s has no text", name);
    return true;
}

static bool check_content(const struct json *message, size_t index, struct api_error *error)
{
    const struct json *const content = json_get(message, "content");
    char name[API_PARAM_BYTES_CAP];

    snprintf(name, sizeof name, "messages[%zu].content", index);
    switch (json_kind(content)) {
    case JSON_KIND_STRING:
        return true;
    case JSON_KIND_ARRAY:
        break;
    case JSON_KIND_NULL:
    case JSON_KIND_MISSING:
        if (str_is(json_text(json_get(message, "role")), "assistant"))
            return true;
        return api_error_set(error, ERR_ARGUMENT, name, "%s is missing", name);
    default:
        return api_error_set(error, ERR_ARGUMENT, name,
                             "%s must be a string or a list of parts, not %s", name,
                             json_kind_name(json_kind(content)));
    }
    if (json_size(content) == 0 || json_size(content) > PARTS_CAP)
        return api_error_set(error, ERR_ARGUMENT, name, "%s must have 1 to %u parts", name,
                             PARTS_CAP);
    for (size_t i = 0; i < json_size(content); i++) {
        snprintf(name, sizeof name, "messages[%zu].content[%zu]", index, i);
        if (!check_part(json_at(content, i), name, error))
            return false;
    }
    return true;
}

static bool check_messages(const struct json *messages, struct api_error *error)
{
    char name[API_PARAM_BYTES_CAP];

    if (json_kind(messages) != JSON_KIND_ARRAY || json_size(messages) == 0 ||
        json_size(messages) > MESSAGES_CAP)
        return api_error_set(error, ERR_ARGUMENT, "messages",
                             "messages must be a list of 1 to %u messages", MESSAGES_CAP);
    for (size_t i = 0; i < json_size(messages); i++) {
        const struct json *const message = json_at(messages, i);

        snprintf(name, sizeof name, "messages[%zu]", i);
        if (json_kind(message) != JSON_KIND_OBJECT)
            return api_error_set(error, ERR_ARGUMENT, name, "%s must be an object", name);
        snprintf(name, sizeof name, "messages[%zu].role", i);
        if (json_text(json_get(message, "role")).size == 0)
            return api_error_set(error, ERR_ARGUMENT, name, "%s must be a string", name);
        if (!check_content(message, i, error))
            return false;
    }
    return true;
}

static bool tokenize(const struct server_model *model, const struct chat_prompt *prompt,
                     struct token_list *out, struct api_error *error)
{
    struct tokenizer_segment *const segments =
        xcalloc(prompt->n_segments + 1, sizeof *segments); // one more: never of size 0
    struct err err;

    for (size_t i = 0; i < prompt->n_segments; i++) {
        segments[i].text = prompt->segments[i].text;
        segments[i].allow_control = prompt->segments[i].from_template;
    }
    const bool encoded =
        tokenizer_encode(model->tokenizer, segments, prompt->n_segments, NULL, out, &err);
    free(segments);
    if (!encoded)
        return api_error_set(error, err.code, "messages", "%s", err.text);
    if (out->n_ids == 0)
        return api_error_set(error, ERR_ARGUMENT, "messages", "the messages give an empty prompt");
    return true;
}

static bool render(const struct server_model *model, const struct chat_request *request,
                   struct token_list *out, struct api_error *error)
{
    struct chat_prompt prompt = { 0 };
    struct err err;

    if (!chat_render(model->chat, request, &prompt, &err))
        return api_error_set(error, err.code, "messages", "%s", err.text);
    const bool tokenized = tokenize(model, &prompt, out, error);
    chat_prompt_release(&prompt);
    return tokenized;
}

static bool read_logprobs(const struct json *document, struct api_request *request,
                          struct api_error *error)
{
    struct sampling_params *const sampling = &request->options.sampling;
    uint32_t n_top = 0;

    if (!api_read_bool(document, "logprobs", &request->wants_logprobs, error) ||
        !api_read_u32(document, "top_logprobs", 0, SAMPLING_TOP_CAP, &n_top, error))
        return false;
    if (n_top > 0 && !request->wants_logprobs)
        return api_error_set(error, ERR_ARGUMENT, "top_logprobs",
                             "top_logprobs needs logprobs to be true");
    sampling->want_logprob = request->wants_logprobs;
    sampling->n_top = n_top;
    return true;
}

static bool chat_read(const struct json *document, const struct server_model *model,
                      struct api_request *out, struct api_error *error)
{
    const struct json *const messages = api_find(document, "messages");
    const struct json *const kwargs = api_find(document, "chat_template_kwargs");

    if (kwargs != NULL && json_kind(kwargs) != JSON_KIND_OBJECT)
        return api_error_set(error, ERR_ARGUMENT, "chat_template_kwargs",
                             "chat_template_kwargs must be an object");
    if (!read_logprobs(document, out, error) || !check_messages(messages, error))
        return false;
    if (model->chat == NULL)
        return api_error_set(error, ERR_UNSUPPORTED, "",
                             "this model has no chat template; /v1/completions serves it, or give "
                             "one with --chat-template");
    return render(model,
                  &(struct chat_request){ .messages = messages,
                                          .chat_template_kwargs = kwargs,
                                          .add_generation_prompt = true,
                                          .now_unix_seconds = clock_unix_seconds() },
                  &out->prompt, error);
}

static void chat_write_text(struct str text, bool is_piece, bool is_first, struct buf *out)
{
    buf_add_text(out, is_piece ? "\"delta\":{" : "\"message\":{");
    if (is_first)
        buf_add_text(out, "\"role\":\"assistant\"");
    if (text.size > 0 || is_first) {
        buf_add_text(out, is_first ? ",\"content\":" : "\"content\":");
        json_write_string(out, text);
    }
    buf_add_text(out, is_piece ? "}" : ",\"refusal\":null}");
}

const struct task_api chat_api = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .prompt_param = "messages",
    .is_legacy = false,
    .read = chat_read,
    .write_text = chat_write_text,
};
