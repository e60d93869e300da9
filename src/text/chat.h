/* From a chat request to the text that the model reads: shapes the messages to what the model's
 * template expects, renders it, and says which bytes are the template's.
 *
 * A chat belongs to a model: it is opened once and immutable, any thread may render with it. When
 * it is opened the template is tried on small conversations, so that one that cannot work is an
 * error at load and not at the first request, and so that its taste is known: whether content
 * must be a string or a list of parts, whether the arguments of tool calls must be an object or a
 * string, whether the content of a tool call is none or empty. */
#ifndef CASCADIA_TEXT_CHAT_H
#define CASCADIA_TEXT_CHAT_H

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chat;

/* A special token that the template may print: { "bos_token", "<s>" }. */
struct chat_token {
    const char *name;
    struct str text;
};

struct chat_options {
    struct str template_text; // empty: chat_open fails with what to pass
    struct str tool_template; // used instead when a request has tools; empty: none
    const struct chat_token *tokens;
    size_t n_tokens;
};

/* Compiles and tries the templates; everything is copied. NULL on failure; chat_close.
 * ERR_NOT_FOUND without a template: the sentence names what to pass. */
struct chat *chat_open(const struct chat_options *options, struct err *err);
void chat_close(struct chat *chat); // NULL is fine

/* What the template was found to do. */
struct chat_traits {
    bool system;         // a system message renders
    bool tools;          // tools appear in the prompt
    bool tool_calls;     // an assistant's tool calls appear
    bool content_parts;  // content must be a list of parts
    bool arguments_text; // arguments of tool calls are passed as a string
    bool null_content;   // content of tool-calling messages is none, else ""
    bool developer;      // knows the role developer; else it is passed as system
};
const struct chat_traits *chat_traits(const struct chat *chat);

/* A request. The JSON values are those of the OpenAI API and are borrowed for the call. */
struct chat_request {
    const struct json *messages;             // array
    const struct json *tools;                // array, or NULL
    const struct json *chat_template_kwargs; // object of more variables, or NULL
    bool add_generation_prompt;
    int64_t now_unix_seconds; // for strftime_now
};

/* A piece of the prompt. Only pieces of the template may hold control tokens. */
struct chat_segment {
    struct str text;
    bool from_template;
};

struct chat_prompt {
    struct chat_segment *segments; // neighbours differ in origin; none is empty
    size_t n_segments;
    char *bytes; // the whole text, which the segments view
    size_t size;
};

/* ERR_ARGUMENT when a message is malformed (the sentence names it: "messages[2].content: ...") or
 * when the template raises (its own message), ERR_UNSUPPORTED for parts that are not text and for
 * tools that the template would drop without a word. */
bool chat_render(const struct chat *chat, const struct chat_request *request,
                 struct chat_prompt *out, struct err *err);
void chat_prompt_release(struct chat_prompt *prompt); // zeroed values are fine

/* The template in a parsed tokenizer_config.json (its "chat_template": a string, or a list of
 * {name, template}): the one called `name`, "default" or "tool_use". STR_NONE if not there. */
struct str chat_template_find(const struct json *tokenizer_config, const char *name);

/* Templates that a person may choose by name when a model has none: "chatml", ... NULL: unknown.
 * *names (may be NULL) gets the list, for a sentence. */
const char *chat_template_builtin(const char *name, const char **names);

#endif
