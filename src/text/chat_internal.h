/* Messages of a request to the values that a template reads (chat_messages.c), for chat.c. */
#ifndef CASCADIA_TEXT_CHAT_INTERNAL_H
#define CASCADIA_TEXT_CHAT_INTERNAL_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "text/value.h"

#include <stdbool.h>

/* What a template wants to be given. */
struct chat_shape {
    bool content_parts;  // a list of parts, not a string
    bool arguments_text; // arguments of tool calls as a string, not an object
    bool null_content;   // none as the content of tool calls that have none, not ""
    bool developer;      // the role developer as it is, not as system
};

/* ERR_ARGUMENT or ERR_UNSUPPORTED with the place: "messages[1].content: ...". */
bool chat_messages_build(struct arena *arena, const struct json *messages,
                         const struct chat_shape *shape, struct value *out, struct err *err);
/* Whether a message calls tools: then the shape of arguments matters. */
bool chat_messages_have_calls(const struct json *messages);
/* None for no tools. */
bool chat_tools_build(struct arena *arena, const struct json *tools, struct value *out,
                      struct err *err);

#endif
