/* An endpoint that generates: how its requests are read and what its choices look like. One table
 * an endpoint; tasks (server_internal.h) do the rest. */
#ifndef CASCADIA_SERVER_TASK_API_H
#define CASCADIA_SERVER_TASK_API_H

#include "base/buf.h"
#include "base/json.h"
#include "server/api_request.h"
#include "server/openai_json.h"

#include <stdbool.h>

struct server_model;

struct task_api {
    const char *id_prefix, *object, *chunk_object;
    const char *prompt_param; // "messages", "prompt"
    bool is_legacy;           // form of log-probabilities
    /* Prompt and log-probabilities, after the shared fields (api_request_read). Any thread. */
    bool (*read)(const struct json *document, const struct server_model *model,
                 struct api_request *out, struct api_error *error);
    /* The members of a choice between {"index":0, and ,"logprobs":: a whole answer, or a piece. */
    void (*write_text)(struct str text, bool is_piece, bool is_first, struct buf *out);
};

extern const struct task_api chat_api;
extern const struct task_api completion_api;

#endif
