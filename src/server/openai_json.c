/* Plain writers. Members whose order OpenAI shows are written in that order, so that answers can be
 * compared as text in the tests. */
#include "server/openai_json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/json.h"
#include "text/tokenizer.h"

#define ERROR_BYTES_CAP 4096u
#define LOGPROB_BYTES_CAP (64u << 20)
/* What OpenAI gives for a token that cannot be; JSON has no infinity. */
#define LOGPROB_FLOOR (-9999.0)
#define RETRY_AFTER_SECONDS "1"

bool api_error_set(struct api_error *error, enum err_code kind, const char *param,
                   const char *format, ...)
{
    va_list arguments;

    *error = (struct api_error){ .status = err_kind(kind)->http_status,
                                 .type = err_kind(kind)->api_type };
    snprintf(error->param, sizeof error->param, "%s", param);
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return false;
}

bool api_error_from(struct api_error *error, const struct err *err)
{
    api_error_set(error, err->code, "", "%s", err->text);
    error->code = err_kind(err->code)->name;
    return false;
}

static void write_text_or_null(struct buf *out, const char *text)
{
    if (text == NULL || text[0] == '\0')
        buf_add_text(out, "null");
    else
        json_write_string(out, str_from(text));
}

void api_error_write(const struct api_error *error, struct buf *out)
{
    buf_add_text(out, "{\"error\":{\"message\":");
    json_write_string(out, str_from(error->message));
    buf_add_text(out, ",\"type\":");
    json_write_string(out, str_from(error->type));
    buf_add_text(out, ",\"param\":");
    write_text_or_null(out, error->param);
    buf_add_text(out, ",\"code\":");
    write_text_or_null(out, error->code);
    buf_add_text(out, "}}");
}

void api_error_respond(const struct api_error *error, struct http_exchange *exchange)
{
    const struct http_field retry = { "Retry-After", RETRY_AFTER_SECONDS };
    struct buf body;

    buf_init(&body, ERROR_BYTES_CAP);
    api_error_write(error, &body);
    http_respond(exchange, error->status, "application/json", buf_view(&body), &retry,
                 error->status == 503 ? 1 : 0);
    buf_release(&body);
}

void json_respond(struct http_exchange *exchange, int status, const struct buf *body)
{
    http_respond(exchange, status, "application/json", buf_view(body), NULL, 0);
}

void openai_write_usage(const struct request_usage *usage, struct buf *out)
{
    buf_printf(out, "{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%u}",
               usage->prompt_rows, usage->generated, usage->prompt_rows + usage->generated);
}

static double per_second(double count, double time_ms)
{
    return time_ms > 0 ? count * 1000.0 / time_ms : 0;
}

void openai_write_timings(const struct request_usage *usage, struct buf *out)
{
    const double decode_steps = usage->generated > 0 ? usage->generated - 1 : 0;

    buf_printf(out,
               "{\"queue_ms\":%.3f,\"first_token_ms\":%.3f,\"prompt_n\":%u,\"prompt_ms\":%.3f,"
               "\"prompt_per_second\":%.3f,\"predicted_n\":%u,\"predicted_ms\":%.3f,"
               "\"predicted_per_second\":%.3f,\"predicted_read_share\":",
               usage->queue_ms, usage->first_token_ms, usage->prompt_rows, usage->prefill_ms,
               per_second(usage->prompt_rows, usage->prefill_ms), usage->generated,
               usage->decode_ms, per_second(decode_steps, usage->decode_ms));
    if (usage->read_share > 0)
        buf_printf(out, "%.3f}", usage->read_share);
    else
        buf_add_text(out, "null}");
}

/* ---- log-probabilities ---- */

void logprob_list_init(struct logprob_list *list, bool legacy, uint32_t n_top)
{
    *list = (struct logprob_list){ .legacy = legacy, .n_top = n_top };
    buf_init(&list->content, LOGPROB_BYTES_CAP);
    buf_init(&list->tokens, LOGPROB_BYTES_CAP);
    buf_init(&list->token_logprobs, LOGPROB_BYTES_CAP);
    buf_init(&list->top_logprobs, LOGPROB_BYTES_CAP);
    buf_init(&list->text_offset, LOGPROB_BYTES_CAP);
}

void logprob_list_release(struct logprob_list *list)
{
    buf_release(&list->content);
    buf_release(&list->tokens);
    buf_release(&list->token_logprobs);
    buf_release(&list->top_logprobs);
    buf_release(&list->text_offset);
}

static void write_logprob(struct buf *out, float logprob)
{
    buf_printf(out, "%.9g", isfinite(logprob) ? (double)logprob : LOGPROB_FLOOR); // all of a float
}

static struct str token_text(const struct tokenizer *tokenizer, int32_t token)
{
    return tokenizer_token_bytes(tokenizer, (uint32_t)token);
}

/* "token":"..","logprob":..,"bytes":[..] */
static void write_entry(struct buf *out, struct str text, float logprob)
{
    buf_add_text(out, "\"token\":");
    json_write_string(out, text);
    buf_add_text(out, ",\"logprob\":");
    write_logprob(out, logprob);
    buf_add_text(out, ",\"bytes\":[");
    for (size_t i = 0; i < text.size; i++)
        buf_printf(out, i > 0 ? ",%u" : "%u", (unsigned int)(unsigned char)text.data[i]);
    buf_add_char(out, ']');
}

static void add_chat(struct logprob_list *list, const struct tokenizer *tokenizer,
                     const struct sampled_token *sampled)
{
    struct buf *const out = &list->content;

    buf_add_text(out, list->n_tokens > 0 ? ",{" : "{");
    write_entry(out, token_text(tokenizer, sampled->token), sampled->logprob);
    buf_add_text(out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < sampled->n_top && i < list->n_top; i++) {
        buf_add_text(out, i > 0 ? ",{" : "{");
        write_entry(out, token_text(tokenizer, sampled->top_tokens[i]), sampled->top_logprobs[i]);
        buf_add_char(out, '}');
    }
    buf_add_text(out, "]}");
}

/* The members of top_logprobs are keyed by text; of two tokens with one text (parts of characters
 * all read U+FFFD) the likelier stays, since JSON readers keep one. */
static bool text_seen(const struct tokenizer *tokenizer, const struct sampled_token *sampled,
                      uint32_t index)
{
    const struct str text = token_text(tokenizer, sampled->top_tokens[index]);
    const bool whole = utf8_valid(text);

    for (uint32_t i = 0; i < index; i++) {
        const struct str other = token_text(tokenizer, sampled->top_tokens[i]);

        if (str_equal(text, other) || (!whole && !utf8_valid(other)))
            return true;
    }
    return false;
}

static void add_legacy(struct logprob_list *list, const struct tokenizer *tokenizer,
                       const struct request_token *token)
{
    const struct sampled_token *const sampled = &token->sampled;
    const char *const comma = list->n_tokens > 0 ? "," : "";
    struct buf *const top = &list->top_logprobs;
    bool first = true;

    buf_add_text(&list->tokens, comma);
    json_write_string(&list->tokens, token_text(tokenizer, sampled->token));
    buf_add_text(&list->token_logprobs, comma);
    write_logprob(&list->token_logprobs, sampled->logprob);
    buf_printf(&list->text_offset, "%s%u", comma, token->text_first);
    buf_printf(top, "%s{", comma);
    for (uint32_t i = 0; i < sampled->n_top && i < list->n_top; i++) {
        if (text_seen(tokenizer, sampled, i))
            continue;
        buf_add_text(top, first ? "" : ",");
        json_write_string(top, token_text(tokenizer, sampled->top_tokens[i]));
        buf_add_char(top, ':');
        write_logprob(top, sampled->top_logprobs[i]);
        first = false;
    }
    buf_add_char(top, '}');
}

void logprob_list_add(struct logprob_list *list, const struct tokenizer *tokenizer,
                      const struct request_token *token)
{
    if (list->legacy)
        add_legacy(list, tokenizer, token);
    else
        add_chat(list, tokenizer, &token->sampled);
    list->n_tokens++;
}

static void take_array(struct buf *items, struct buf *out)
{
    buf_add_char(out, '[');
    buf_add_str(out, buf_view(items));
    buf_add_char(out, ']');
    buf_clear(items);
}

void logprob_list_take(struct logprob_list *list, struct buf *out)
{
    list->n_tokens = 0;
    if (!list->legacy) {
        buf_add_text(out, "{\"content\":");
        take_array(&list->content, out);
        buf_add_text(out, ",\"refusal\":null}");
        return;
    }
    buf_add_text(out, "{\"tokens\":");
    take_array(&list->tokens, out);
    buf_add_text(out, ",\"token_logprobs\":");
    take_array(&list->token_logprobs, out);
    buf_add_text(out, ",\"top_logprobs\":");
    if (list->n_top > 0)
        take_array(&list->top_logprobs, out);
    else
        buf_add_text(out, "null");
    buf_clear(&list->top_logprobs);
    buf_add_text(out, ",\"text_offset\":");
    take_array(&list->text_offset, out);
    buf_add_char(out, '}');
}
