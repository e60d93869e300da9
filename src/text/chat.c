/* Rendering of chats, and the trials by which a template shows its taste.
 *
 * No description says what a template wants, and the names of models do not either: templates are
 * copied and changed. So each is asked, once, with small conversations whose words are looked for
 * in what comes out. A template that cannot render a question, or that drops it, is refused here;
 * one that raises on a system message or shows no tools is served, and says so in its traits. */
#include "text/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "text/chat_internal.h"
#include "text/template.h"

#define REQUEST_BYTES_CAP ((size_t)256 << 20) // of the values of one request
#define TOKENS_CAP 32

struct chat {
    struct template *template;
    struct template *tool_template; // NULL: the same
    struct arena arena;             // of the tokens
    struct chat_token tokens[TOKENS_CAP];
    size_t n_tokens;
    struct chat_shape shape;
    struct chat_traits traits;
};

/* ---- the variables ---- */

static bool no_memory(struct err *err)
{
    return err_set(err, ERR_NO_MEMORY, "the request needs more than %zu bytes", REQUEST_BYTES_CAP);
}

static bool add_tokens(const struct chat *chat, struct arena *arena, struct value *context,
                       struct err *err)
{
    for (size_t i = 0; i < chat->n_tokens; i++) {
        struct value text;
        if (!value_view(arena, chat->tokens[i].text, true, &text) ||
            !value_dict_put(arena, context, chat->tokens[i].name, text))
            return no_memory(err);
    }
    return true;
}

/* Names that a request may not set: what the template is given and what it calls. */
static bool is_reserved(const struct chat *chat, struct str name)
{
    static const char *const names[] = { "messages",
                                         "tools",
                                         "add_generation_prompt",
                                         "chat_template",
                                         "raise_exception",
                                         "strftime_now",
                                         "range",
                                         "dict",
                                         "namespace",
                                         "cycler",
                                         "joiner",
                                         "lipsum",
                                         "loop",
                                         "self",
                                         "super",
                                         "caller",
                                         "varargs",
                                         "kwargs" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (str_is(name, names[i]))
            return true;
    for (size_t i = 0; i < chat->n_tokens; i++)
        if (str_is(name, chat->tokens[i].name))
            return true;
    return false;
}

static bool add_kwargs(const struct chat *chat, struct arena *arena, const struct json *kwargs,
                       struct value *context, struct err *err)
{
    if (kwargs && json_kind(kwargs) != JSON_KIND_OBJECT && json_kind(kwargs) != JSON_KIND_NULL)
        return err_set(err, ERR_ARGUMENT, "chat_template_kwargs must be an object");
    for (void *at = json_first(kwargs); at; at = json_next(kwargs, at)) {
        struct str name = json_member_key(at);
        struct value key, item;
        if (is_reserved(chat, name))
            return err_set(err, ERR_ARGUMENT, "chat_template_kwargs may not set '%.*s'",
                           STR_ARG(name));
        if (!value_from_json(arena, json_member_value(at), false, &item, err))
            return err_wrap(err, "chat_template_kwargs");
        if (!value_string(arena, name, false, &key) || !value_dict_set(arena, context, key, item))
            return no_memory(err);
    }
    return true;
}

/* The variables as transformers passes them: tools and documents are none when there are none. */
static bool build_context(const struct chat *chat, const struct chat_request *request,
                          const struct chat_shape *shape, struct arena *arena, struct value *out,
                          struct err *err)
{
    struct value messages, tools;
    if (!chat_messages_build(arena, request->messages, shape, &messages, err) ||
        !chat_tools_build(arena, request->tools, &tools, err))
        return false;
    if (!value_dict_new(arena, out) || !value_dict_put(arena, out, "messages", messages) ||
        !value_dict_put(arena, out, "tools", tools) ||
        !value_dict_put(arena, out, "documents", value_none()) ||
        !value_dict_put(arena, out, "add_generation_prompt",
                        value_bool(request->add_generation_prompt)))
        return no_memory(err);
    return add_tokens(chat, arena, out, err) &&
           add_kwargs(chat, arena, request->chat_template_kwargs, out, err);
}

/* ---- rendering ---- */

static bool render(const struct chat *chat, const struct chat_request *request,
                   const struct chat_shape *shape, struct rendering *out, struct err *err)
{
    struct arena arena;
    struct value context;
    struct template_options options = { .now_unix_seconds = request->now_unix_seconds };
    bool has_tools = json_size(request->tools) > 0;
    const struct template *template =
        has_tools && chat->tool_template ? chat->tool_template : chat->template;
    arena_init(&arena, REQUEST_BYTES_CAP);
    bool ok = build_context(chat, request, shape, &arena, &context, err) &&
              template_render(template, &context, &options, out, err);
    arena_release(&arena);
    return ok;
}

/* The bytes of the rendering pass to the prompt, its runs become segments. */
static void take_prompt(struct rendering *rendering, struct chat_prompt *out)
{
    size_t at = 0;
    *out = (struct chat_prompt){ .bytes = rendering->bytes, .size = rendering->size };
    out->segments = xcalloc(rendering->n_runs + 1, sizeof *out->segments);
    for (size_t i = 0; i < rendering->n_runs; i++) {
        struct traced_run run = rendering->runs[i];
        out->segments[out->n_segments++] =
            (struct chat_segment){ { out->bytes + at, run.end - at }, run.from_template };
        at = run.end;
    }
    rendering->bytes = NULL;
    rendering_release(rendering);
}

bool chat_render(const struct chat *chat, const struct chat_request *request,
                 struct chat_prompt *out, struct err *err)
{
    struct rendering rendering = { 0 };
    struct err second;
    if (json_size(request->tools) > 0 && !chat->traits.tools)
        return err_set(err, ERR_UNSUPPORTED,
                       "tools: the model's chat template does not tell the model about tools");
    bool ok = render(chat, request, &chat->shape, &rendering, err);
    if (!ok && err->code == ERR_ARGUMENT && chat_messages_have_calls(request->messages)) {
        /* This call's arguments may be of the other kind; if not, the first error is the cause. */
        struct chat_shape other = chat->shape;
        other.arguments_text = !other.arguments_text;
        ok = render(chat, request, &other, &rendering, &second);
    }
    if (ok)
        take_prompt(&rendering, out);
    return ok;
}

void chat_prompt_release(struct chat_prompt *prompt)
{
    free(prompt->segments);
    free(prompt->bytes);
    *prompt = (struct chat_prompt){ 0 };
}

/* ---- trials ---- */

/* Words that no template has of its own. */
#define QUESTION "quinoa-question"
#define ANSWER "quinoa-answer"
#define SYSTEM "quinoa-system"
#define TOOL "quinoa_tool"
#define ARGUMENT "quinoa-argument"

static const char single_turn[] = "[{\"role\":\"user\",\"content\":\"" QUESTION "\"}]";
static const char several_turns[] = "[{\"role\":\"user\",\"content\":\"first\"},"
                                    "{\"role\":\"assistant\",\"content\":\"" ANSWER "\"},"
                                    "{\"role\":\"user\",\"content\":\"" QUESTION "\"}]";
static const char with_system[] = "[{\"role\":\"system\",\"content\":\"" SYSTEM "\"},"
                                  "{\"role\":\"user\",\"content\":\"" QUESTION "\"}]";
static const char with_call[] =
    "[{\"role\":\"user\",\"content\":\"" QUESTION "\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call00001\","
    "\"type\":\"function\",\"function\":{\"name\":\"" TOOL "\","
    "\"arguments\":\"{\\\"q\\\": \\\"" ARGUMENT "\\\"}\"}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"call00001\",\"name\":\"" TOOL "\",\"content\":\"1\"}]";
static const char some_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"" TOOL "\",\"description\":\"d\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"q\":{\"type\":\"string\","
    "\"description\":\"d\"}},\"required\":[\"q\"]}}}]";

/* Renders a trial conversation. The caller releases `out`, also after a failure. */
static bool try(const struct chat *chat, const char *messages, const char *tools,
                const struct chat_shape *shape, struct rendering *out, struct err *err)
{
    struct json *conversation = json_parse(str_from(messages), err);
    struct json *tool_list = tools ? json_parse(str_from(tools), err) : NULL;
    must(conversation && (!tools || tool_list));
    struct chat_request request = { .messages = conversation,
                                    .tools = tool_list,
                                    .add_generation_prompt = true };
    *out = (struct rendering){ 0 };
    bool ok = render(chat, &request, shape, out, err);
    json_free(conversation);
    json_free(tool_list);
    return ok;
}

static bool shows(const struct rendering *rendering, const char *word)
{
    struct str text = { rendering->bytes, rendering->size };
    return str_find(text, str_from(word)) != SIZE_MAX;
}

static size_t count(const struct rendering *rendering, const char *word)
{
    struct str text = { rendering->bytes, rendering->size };
    size_t n = 0;
    for (size_t at; (at = str_find(text, str_from(word))) != SIZE_MAX; n++)
        text = str_slice(text, at + strlen(word), text.size);
    return n;
}

/* True when the trial renders and shows the word; the error, if any, stays in err. */
static bool try_showing(const struct chat *chat, const char *messages, const char *tools,
                        const struct chat_shape *shape, const char *word, struct err *err)
{
    struct rendering rendering;
    bool ok = try(chat, messages, tools, shape, &rendering, err);
    bool shown = ok && shows(&rendering, word);
    if (ok && !shown)
        err_set(err, ERR_FORMAT, "the rendering leaves out what a message says");
    rendering_release(&rendering);
    return shown;
}

/* Content as a string, or else, for templates that know only parts, as a list. */
static bool find_content_shape(struct chat *chat, struct err *err)
{
    struct err second;
    if (try_showing(chat, single_turn, NULL, &chat->shape, QUESTION, err))
        return true;
    chat->shape.content_parts = true;
    return try_showing(chat, single_turn, NULL, &chat->shape, QUESTION, &second);
}

/* Whether a shape renders the call whole. `n_none`: how often None is said when content is "",
 * which is how often it is the template's own word. */
static bool shape_fits(const struct chat *chat, const struct chat_shape *shape, size_t n_none)
{
    struct rendering rendering;
    struct err err;
    bool ok = try(chat, with_call, some_tools, shape, &rendering, &err) &&
              shows(&rendering, TOOL) && shows(&rendering, ARGUMENT) &&
              (!shape->null_content || count(&rendering, "None") <= n_none);
    rendering_release(&rendering);
    return ok;
}

/* None first, since templates ask `content is none`; the object first, since most walk it. */
static void find_call_shape(struct chat *chat)
{
    size_t n_none[2] = { 0, 0 };
    struct rendering rendering;
    struct err err;
    for (int text = 0; text < 2; text++) {
        struct chat_shape shape = chat->shape;
        shape.arguments_text = text == 1;
        if (try(chat, with_call, some_tools, &shape, &rendering, &err))
            n_none[text] = count(&rendering, "None");
        rendering_release(&rendering);
    }
    for (int i = 0; i < 4 && !chat->traits.tool_calls; i++) {
        struct chat_shape shape = chat->shape;
        shape.arguments_text = i >= 2;
        shape.null_content = i % 2 == 0;
        if (shape_fits(chat, &shape, n_none[shape.arguments_text])) {
            chat->shape = shape;
            chat->traits.tool_calls = true;
        }
    }
}

static bool try_all(struct chat *chat, struct err *err)
{
    struct chat_traits *traits = &chat->traits;
    struct err ignored;
    if (!find_content_shape(chat, err))
        return err_wrap(err, "the chat template cannot render a single question");
    if (!try_showing(chat, several_turns, NULL, &chat->shape, QUESTION, err))
        return err_wrap(err, "the chat template cannot render a conversation of several turns");
    traits->system = try_showing(chat, with_system, NULL, &chat->shape, SYSTEM, &ignored);
    traits->tools = try_showing(chat, single_turn, some_tools, &chat->shape, TOOL, &ignored);
    find_call_shape(chat);
    traits->content_parts = chat->shape.content_parts;
    traits->arguments_text = chat->shape.arguments_text;
    traits->null_content = chat->shape.null_content;
    traits->developer = chat->shape.developer;
    return true;
}

/* ---- opening ---- */

static bool copy_tokens(struct chat *chat, const struct chat_options *options, struct err *err)
{
    if (options->n_tokens > TOKENS_CAP)
        return err_set(err, ERR_ARGUMENT, "more than %d special tokens for the template",
                       TOKENS_CAP);
    for (size_t i = 0; i < options->n_tokens; i++) {
        struct chat_token *token = &chat->tokens[chat->n_tokens++];
        token->name = arena_strdup(&chat->arena, str_from(options->tokens[i].name));
        token->text = str_from("");
        if (options->tokens[i].text.size > 0)
            token->text = arena_str(&chat->arena, options->tokens[i].text);
        if (!token->name || !token->text.data)
            return no_memory(err);
    }
    return true;
}

static bool compile(struct chat *chat, const struct chat_options *options, struct err *err)
{
    const char *names;
    if (str_trim(options->template_text).size == 0) {
        chat_template_builtin("", &names);
        return err_set(err, ERR_NOT_FOUND,
                       "the model has no chat template; pass --chat-template with a file or one of "
                       "%s",
                       names);
    }
    chat->template = template_compile(options->template_text, err);
    if (!chat->template)
        return err_wrap(err, "chat template");
    if (str_trim(options->tool_template).size > 0) {
        chat->tool_template = template_compile(options->tool_template, err);
        if (!chat->tool_template)
            return err_wrap(err, "chat template for tools");
    }
    chat->shape.developer = str_find(options->template_text, STR("developer")) != SIZE_MAX;
    return true;
}

struct chat *chat_open(const struct chat_options *options, struct err *err)
{
    struct chat *chat = xcalloc(1, sizeof *chat);
    arena_init(&chat->arena, 1 << 20);
    if (!copy_tokens(chat, options, err) || !compile(chat, options, err) || !try_all(chat, err)) {
        chat_close(chat);
        return NULL;
    }
    return chat;
}

void chat_close(struct chat *chat)
{
    if (!chat)
        return;
    template_free(chat->template);
    template_free(chat->tool_template);
    arena_release(&chat->arena);
    free(chat);
}

const struct chat_traits *chat_traits(const struct chat *chat)
{
    return &chat->traits;
}

/* ---- where templates come from ---- */

struct str chat_template_find(const struct json *tokenizer_config, const char *name)
{
    const struct json *found = json_get(tokenizer_config, "chat_template");
    if (json_kind(found) == JSON_KIND_STRING)
        return strcmp(name, "default") == 0 ? json_text(found) : STR_NONE;
    for (size_t i = 0; json_kind(found) == JSON_KIND_ARRAY && i < json_size(found); i++) {
        const struct json *row = json_at(found, i);
        if (str_is(json_text(json_get(row, "name")), name))
            return json_text(json_get(row, "template"));
    }
    return STR_NONE;
}

/* Written for this program after the formats that the models document. */
static const struct {
    const char *name, *text;
} builtins[] = {
    { "chatml", "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + "
                "'<|im_end|>\\n' }}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}" },
    { "llama2", "{% set system = '' %}{% if messages[0].role == 'system' %}"
                "{% set system = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' %}"
                "{% set messages = messages[1:] %}{% endif %}"
                "{% for m in messages %}"
                "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
                "{{ raise_exception('messages must alternate between user and assistant') }}"
                "{% endif %}{% if m.role == 'user' %}"
                "{{ bos_token + '[INST] ' + (system if loop.first else '') + m.content|trim + "
                "' [/INST]' }}{% else %}{{ ' ' + m.content|trim + ' ' + eos_token }}{% endif %}"
                "{% endfor %}" },
    { "llama3", "{{ bos_token }}{% for m in messages %}"
                "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content|trim + "
                "'<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
                "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}" },
    { "zephyr",
      "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}" },
};

const char *chat_template_builtin(const char *name, const char **names)
{
    if (names)
        *names = "chatml, llama2, llama3, zephyr";
    for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++)
        if (strcmp(builtins[i].name, name) == 0)
            return builtins[i].text;
    return NULL;
}
