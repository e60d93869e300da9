/* The pieces of JSON that several endpoints share: error objects, usage, timings,
 * log-probabilities. docs/http-api.md shows them. Plain data with one owner; any thread, but for
 * api_error_respond and json_respond, which end an exchange of the HTTP server's thread. */
#ifndef CASCADIA_SERVER_OPENAI_JSON_H
#define CASCADIA_SERVER_OPENAI_JSON_H

#include "base/buf.h"
#include "base/err.h"
#include "generate/request.h"
#include "net/http_server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

#define API_PARAM_BYTES_CAP 96

/* What a client is told when it does not get what it asked for. */
struct api_error {
    int status;                      // HTTP
    const char *type;                // "invalid_request_error", ...
    const char *code;                // "context_length_exceeded", ...; NULL: null
    char param[API_PARAM_BYTES_CAP]; // the field at fault; empty: null
    char message[512];
};

/* Returns false, so that `return api_error_set(...)` reads well. */
bool api_error_set(struct api_error *error, enum err_code kind, const char *param,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));
bool api_error_from(struct api_error *error, const struct err *err);

/* {"error":{"message":..,"type":..,"param":..,"code":..}} */
void api_error_write(const struct api_error *error, struct buf *out);
/* As a whole answer, with Retry-After where waiting helps. */
void api_error_respond(const struct api_error *error, struct http_exchange *exchange);

void json_respond(struct http_exchange *exchange, int status, const struct buf *body);

/* {"prompt_tokens":..,"completion_tokens":..,"total_tokens":..} */
void openai_write_usage(const struct request_usage *usage, struct buf *out);
/* {"queue_ms":..,"prompt_n":..,"prompt_ms":..,"prompt_per_second":..,...} */
void openai_write_timings(const struct request_usage *usage, struct buf *out);

/* Log-probabilities of an answer, gathered as JSON text in the form of the endpoint. */
struct logprob_list {
    bool legacy; // /v1/completions: parallel arrays
    uint32_t n_top;
    uint32_t n_tokens;
    struct buf content;                                           // chat: the objects
    struct buf tokens, token_logprobs, top_logprobs, text_offset; // legacy: the arrays' items
};

void logprob_list_init(struct logprob_list *list, bool legacy, uint32_t n_top);
void logprob_list_release(struct logprob_list *list); // zeroed values are fine
void logprob_list_add(struct logprob_list *list, const struct tokenizer *tokenizer,
                      const struct request_token *token);
/* The object; the list is empty again, ready for the next piece of a stream. */
void logprob_list_take(struct logprob_list *list, struct buf *out);

#endif
