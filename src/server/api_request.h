/* The fields that chat and completion requests share, from JSON to request_options.
 *
 * Unknown fields are ignored, null means absent, and a known field with a value that cannot be
 * meant is an error that names it. What is understood and not done (several choices, tools) is
 * refused where ignoring it would change what the answer means.
 *
 * Structured output (response_format, grammar, regex) is compiled here once, on the thread of the
 * pool, so that what is wrong with a schema is a 400 with its own words. */
#ifndef CASCADIA_SERVER_API_REQUEST_H
#define CASCADIA_SERVER_API_REQUEST_H

#include "base/json.h"
#include "generate/request.h"
#include "server/openai_json.h"
#include "text/token_list.h"

#include <stdbool.h>
#include <stdint.h>

#define API_STOPS_CAP 4 // OpenAI's limit

struct server_model;

struct api_request {
    struct request_options options; // prompt is set from `prompt` when it is submitted
    struct token_list prompt;
    struct str stops[API_STOPS_CAP]; // views into the document
    bool stream, include_usage;
    bool wants_logprobs;
    struct buf echo;    // text that comes before the answer; mostly empty
    struct buf grammar; // the text of a schema, which options.sampling views
};

void api_request_init(struct api_request *request, const struct server_model *model);
void api_request_release(struct api_request *request); // zeroed values are fine

/* Everything but prompt and log-probabilities. `document` must be an object. */
bool api_request_read(struct api_request *request, const struct json *document,
                      const struct server_model *model, struct api_error *error);

/* Field readers: absent and null leave *out as it is. */
bool api_read_u32(const struct json *document, const char *name, uint32_t low, uint32_t high,
                  uint32_t *out, struct api_error *error);
bool api_read_bool(const struct json *document, const char *name, bool *out,
                   struct api_error *error);
/* NULL when absent or null. */
const struct json *api_find(const struct json *document, const char *name);

#endif
