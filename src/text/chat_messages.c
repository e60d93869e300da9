/* OpenAI's messages as templates expect them.
 *
 * Clients send back what they got: messages with `"refusal": null` and `"tool_calls": []`, content
 * as a list of parts, arguments of tool calls as a string of JSON. Templates test with `in` and
 * `is defined`, add content with `+` and walk arguments as an object. So nulls and empty lists of
 * calls are left out, and content and arguments get the shape that the template was found to want.
 *
 * Roles that the API knows are this program's words, not the request's: templates build control
 * tokens from them ('<|' + message.role + '|>'), and those must work. Any other role, and all other
 * text, stays the request's and can never become a control token. */
#include "text/chat_internal.h"

struct builder {
    struct arena *arena;
    const struct chat_shape *shape;
    size_t number; // of the message
    struct err *err;
};

static bool no_memory(const struct builder *builder)
{
    return err_set(builder->err, ERR_NO_MEMORY, "the messages need more than %zu bytes",
                   builder->arena->used_bytes_cap);
}

static bool put(const struct builder *builder, struct value *dict, const char *key,
                struct value item)
{
    return value_dict_put(builder->arena, dict, key, item) || no_memory(builder);
}

static bool copy(const struct builder *builder, const struct json *json, const char *name,
                 struct value *out)
{
    return value_from_json(builder->arena, json, false, out, builder->err) ||
           err_wrap(builder->err, "messages[%zu].%s", builder->number, name);
}

static bool build_role(const struct builder *builder, const struct json *json, struct value *out)
{
    static const char *const known[] = { "system",    "developer", "user",
                                         "assistant", "tool",      "function" };
    struct str role = json_text(json);
    if (json_kind(json) != JSON_KIND_STRING || role.size == 0)
        return err_set(builder->err, ERR_ARGUMENT, "messages[%zu].role must be a string",
                       builder->number);
    if (str_is(role, "developer") && !builder->shape->developer)
        role = STR("system");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (str_is(role, known[i]))
            return value_view(builder->arena, str_from(known[i]), true, out) || no_memory(builder);
    return value_string(builder->arena, role, false, out) || no_memory(builder);
}

/* ---- content ---- */

static bool check_part(const struct builder *builder, const struct json *part, size_t number)
{
    struct str type = json_text(json_get(part, "type"));
    if (json_kind(part) != JSON_KIND_OBJECT || type.size == 0)
        return err_set(builder->err, ERR_ARGUMENT,
                       "messages[%zu].content[%zu] must be an object with a type", builder->number,
                       number);
    if (!str_is(type, "text"))
        return err_set(builder->err, ERR_UNSUPPORTED,
                       "messages[%zu].content[%zu]: parts of type '%.*s' are not supported, only "
                       "text",
                       builder->number, number, STR_ARG(type));
    if (json_kind(json_get(part, "text")) != JSON_KIND_STRING)
        return err_set(builder->err, ERR_ARGUMENT,
                       "messages[%zu].content[%zu].text must be a string", builder->number, number);
    return true;
}

/* One part, {"type": "text", "text": ...}; its type is this program's word. */
static bool add_part(const struct builder *builder, struct str text, struct value *list)
{
    struct value part, type, content;
    if (!value_dict_new(builder->arena, &part) ||
        !value_view(builder->arena, STR("text"), true, &type) ||
        !value_string(builder->arena, text, false, &content))
        return no_memory(builder);
    return put(builder, &part, "type", type) && put(builder, &part, "text", content) &&
           (value_list_add(builder->arena, list, part) || no_memory(builder));
}

/* The texts of the parts as one, a line each. */
static bool join_parts(const struct builder *builder, const struct json *parts, struct value *out)
{
    struct buf text;
    buf_init(&text, SIZE_MAX / 2);
    for (size_t i = 0; i < json_size(parts); i++) {
        buf_add_text(&text, i > 0 ? "\n" : "");
        buf_add_str(&text, json_text(json_get(json_at(parts, i), "text")));
    }
    bool ok = value_string(builder->arena, buf_view(&text), false, out);
    buf_release(&text);
    return ok || no_memory(builder);
}

static bool build_parts(const struct builder *builder, const struct json *parts, struct value *out)
{
    for (size_t i = 0; i < json_size(parts); i++)
        if (!check_part(builder, json_at(parts, i), i))
            return false;
    if (!builder->shape->content_parts)
        return join_parts(builder, parts, out);
    if (!value_list_new(builder->arena, VALUE_LIST, out))
        return no_memory(builder);
    for (size_t i = 0; i < json_size(parts); i++)
        if (!add_part(builder, json_text(json_get(json_at(parts, i), "text")), out))
            return false;
    return true;
}

static bool build_text(const struct builder *builder, struct str text, struct value *out)
{
    if (!builder->shape->content_parts)
        return value_string(builder->arena, text, false, out) || no_memory(builder);
    if (!value_list_new(builder->arena, VALUE_LIST, out))
        return no_memory(builder);
    return add_part(builder, text, out);
}

static bool build_content(const struct builder *builder, const struct json *json, bool has_calls,
                          struct value *out)
{
    switch (json_kind(json)) {
    case JSON_KIND_STRING:
        return build_text(builder, json_text(json), out);
    case JSON_KIND_ARRAY:
        return build_parts(builder, json, out);
    case JSON_KIND_NULL:
    case JSON_KIND_MISSING:
        if (has_calls && builder->shape->null_content) {
            *out = value_none();
            return true;
        }
        return build_text(builder, STR_NONE, out);
    default:
        return err_set(builder->err, ERR_ARGUMENT,
                       "messages[%zu].content must be a string or a list of parts, not %s",
                       builder->number, json_kind_name(json_kind(json)));
    }
}

/* ---- tool calls ---- */

/* Arguments arrive as a string of JSON; clients that send an object are understood too. */
static bool build_arguments(const struct builder *builder, const struct json *json,
                            struct value *out)
{
    struct err ignored;
    if (builder->shape->arguments_text && json_kind(json) == JSON_KIND_OBJECT) {
        struct buf text;
        buf_init(&text, SIZE_MAX / 2);
        json_write_value(&text, json);
        bool ok = value_string(builder->arena, buf_view(&text), false, out);
        buf_release(&text);
        return ok || no_memory(builder);
    }
    if (builder->shape->arguments_text || json_kind(json) != JSON_KIND_STRING)
        return copy(builder, json, "tool_calls", out);
    struct json *parsed = json_parse(json_text(json), &ignored);
    bool is_object = json_kind(parsed) == JSON_KIND_OBJECT;
    bool ok = copy(builder, is_object ? parsed : json, "tool_calls", out);
    json_free(parsed);
    return ok;
}

static bool build_function(const struct builder *builder, const struct json *json,
                           struct value *out)
{
    if (json_kind(json_get(json, "name")) != JSON_KIND_STRING)
        return err_set(builder->err, ERR_ARGUMENT,
                       "messages[%zu].tool_calls: each call needs function.name", builder->number);
    if (!value_dict_new(builder->arena, out))
        return no_memory(builder);
    for (void *at = json_first(json); at; at = json_next(json, at)) {
        struct value key, item;
        bool arguments = str_is(json_member_key(at), "arguments");
        if (!(arguments ? build_arguments(builder, json_member_value(at), &item)
                        : copy(builder, json_member_value(at), "tool_calls", &item)))
            return false;
        if (!value_string(builder->arena, json_member_key(at), false, &key) ||
            !value_dict_set(builder->arena, out, key, item))
            return no_memory(builder);
    }
    return true;
}

static bool build_call(const struct builder *builder, const struct json *json, struct value *out)
{
    if (!value_dict_new(builder->arena, out))
        return no_memory(builder);
    if (json_kind(json_get(json, "function")) != JSON_KIND_OBJECT)
        return err_set(builder->err, ERR_ARGUMENT,
                       "messages[%zu].tool_calls: each call needs a function", builder->number);
    for (void *at = json_first(json); at; at = json_next(json, at)) {
        struct value key, item;
        bool function = str_is(json_member_key(at), "function");
        if (!(function ? build_function(builder, json_member_value(at), &item)
                       : copy(builder, json_member_value(at), "tool_calls", &item)))
            return false;
        if (!value_string(builder->arena, json_member_key(at), false, &key) ||
            !value_dict_set(builder->arena, out, key, item))
            return no_memory(builder);
    }
    return true;
}

static bool build_calls(const struct builder *builder, const struct json *json, struct value *out)
{
    if (json_kind(json) != JSON_KIND_ARRAY)
        return err_set(builder->err, ERR_ARGUMENT, "messages[%zu].tool_calls must be a list",
                       builder->number);
    if (!value_list_new(builder->arena, VALUE_LIST, out))
        return no_memory(builder);
    for (size_t i = 0; i < json_size(json); i++) {
        struct value call;
        if (!build_call(builder, json_at(json, i), &call))
            return false;
        if (!value_list_add(builder->arena, out, call))
            return no_memory(builder);
    }
    return true;
}

/* ---- messages ---- */

static bool message_has_calls(const struct json *message)
{
    return json_size(json_get(message, "tool_calls")) > 0;
}

/* One member of a message. */
static bool build_member(const struct builder *builder, const struct json *message, struct str key,
                         const struct json *json, struct value *out)
{
    if (str_is(key, "role"))
        return build_role(builder, json, out);
    if (str_is(key, "content"))
        return build_content(builder, json, message_has_calls(message), out);
    if (str_is(key, "tool_calls"))
        return build_calls(builder, json, out);
    return copy(builder, json, "*", out);
}

static bool is_left_out(struct str key, const struct json *json)
{
    if (str_is(key, "role") || str_is(key, "content"))
        return false;
    bool no_calls =
        str_is(key, "tool_calls") && json_kind(json) == JSON_KIND_ARRAY && json_size(json) == 0;
    return json_kind(json) == JSON_KIND_NULL || no_calls;
}

static bool build_message(const struct builder *builder, const struct json *json, struct value *out)
{
    bool has_calls = message_has_calls(json);
    if (json_kind(json) != JSON_KIND_OBJECT)
        return err_set(builder->err, ERR_ARGUMENT, "messages[%zu] must be an object",
                       builder->number);
    if (json_kind(json_get(json, "role")) == JSON_KIND_MISSING)
        return err_set(builder->err, ERR_ARGUMENT, "messages[%zu].role is missing",
                       builder->number);
    bool has_content = json_kind(json_get(json, "content")) != JSON_KIND_MISSING;
    if (!has_content && !str_is(json_text(json_get(json, "role")), "assistant"))
        return err_set(builder->err, ERR_ARGUMENT, "messages[%zu].content is missing",
                       builder->number);
    if (!value_dict_new(builder->arena, out))
        return no_memory(builder);
    for (void *at = json_first(json); at; at = json_next(json, at)) {
        struct value key, item;
        struct str name = json_member_key(at);
        if (is_left_out(name, json_member_value(at)))
            continue;
        if (!build_member(builder, json, name, json_member_value(at), &item))
            return false;
        if (!value_string(builder->arena, name, false, &key) ||
            !value_dict_set(builder->arena, out, key, item))
            return no_memory(builder);
    }
    struct value content;
    return has_content || (build_content(builder, NULL, has_calls, &content) &&
                           put(builder, out, "content", content));
}

bool chat_messages_build(struct arena *arena, const struct json *messages,
                         const struct chat_shape *shape, struct value *out, struct err *err)
{
    struct builder builder = { .arena = arena, .shape = shape, .err = err };
    struct value list;
    if (json_kind(messages) != JSON_KIND_ARRAY || json_size(messages) == 0)
        return err_set(err, ERR_ARGUMENT, "messages must be a list with at least one message");
    if (!value_list_new(arena, VALUE_LIST, &list))
        return no_memory(&builder);
    for (; builder.number < json_size(messages); builder.number++) {
        struct value message;
        if (!build_message(&builder, json_at(messages, builder.number), &message))
            return false;
        if (!value_list_add(arena, &list, message))
            return no_memory(&builder);
    }
    *out = list;
    return true;
}

bool chat_messages_have_calls(const struct json *messages)
{
    for (size_t i = 0; i < json_size(messages); i++)
        if (message_has_calls(json_at(messages, i)))
            return true;
    return false;
}

bool chat_tools_build(struct arena *arena, const struct json *tools, struct value *out,
                      struct err *err)
{
    *out = value_none();
    if (json_kind(tools) == JSON_KIND_MISSING || json_kind(tools) == JSON_KIND_NULL)
        return true;
    if (json_kind(tools) != JSON_KIND_ARRAY)
        return err_set(err, ERR_ARGUMENT, "tools must be a list");
    for (size_t i = 0; i < json_size(tools); i++)
        if (json_kind(json_at(tools, i)) != JSON_KIND_OBJECT)
            return err_set(err, ERR_ARGUMENT, "tools[%zu] must be an object", i);
    return json_size(tools) == 0 || value_from_json(arena, tools, false, out, err);
}
