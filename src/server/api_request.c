/* One small reader a type, one call a field. The bounds are OpenAI's where OpenAI has the field,
 * else those beyond which a value can only be a mistake. */
#include "server/api_request.h"

#include <string.h>

#include "generate/stops.h"
#include "server/server.h"

#define PROMPT_IDS_CAP (16u << 20)
#define ECHO_BYTES_CAP (64u << 20)
#define SCHEMA_BYTES_CAP (16u << 20) // while it is written out; then SAMPLING_GRAMMAR_BYTES_CAP

const struct json *api_find(const struct json *document, const char *name)
{
    const struct json *const value = json_get(document, name);

    return json_kind(value) == JSON_KIND_NULL ? NULL : value;
}

bool api_read_u32(const struct json *document, const char *name, uint32_t low, uint32_t high,
                  uint32_t *out, struct api_error *error)
{
    const struct json *const value = api_find(document, name);
    uint32_t number;

    if (value == NULL)
        return true;
    if (!json_read_u32(value, &number) || number < low || number > high)
        return api_error_set(error, ERR_ARGUMENT, name, "%s must be an integer from %u to %u", name,
                             low, high);
    *out = number;
    return true;
}

static bool read_float(const struct json *document, const char *name, double low, double high,
                       float *out, struct api_error *error)
{
    const struct json *const value = api_find(document, name);
    double number;

    if (value == NULL)
        return true;
    if (!json_read_double(value, &number) || !(number >= low && number <= high))
        return api_error_set(error, ERR_ARGUMENT, name, "%s must be a number from %g to %g", name,
                             low, high);
    *out = (float)number;
    return true;
}

bool api_read_bool(const struct json *document, const char *name, bool *out,
                   struct api_error *error)
{
    const struct json *const value = api_find(document, name);

    if (value != NULL && !json_read_bool(value, out))
        return api_error_set(error, ERR_ARGUMENT, name, "%s must be true or false", name);
    return true;
}

void api_request_init(struct api_request *request, const struct server_model *model)
{
    *request = (struct api_request){ .options.sampling = *model->defaults };
    token_list_init(&request->prompt, PROMPT_IDS_CAP);
    buf_init(&request->echo, ECHO_BYTES_CAP);
    buf_init(&request->grammar, SCHEMA_BYTES_CAP);
}

void api_request_release(struct api_request *request)
{
    token_list_release(&request->prompt);
    buf_release(&request->echo);
    buf_release(&request->grammar);
}

/* -1 and 0 both switch it off: vLLM's and llama.cpp's ways. */
static bool read_top_k(const struct json *document, uint32_t *out, struct api_error *error)
{
    const struct json *const value = api_find(document, "top_k");

    if (value != NULL && json_int(value, 0) == -1) {
        *out = 0;
        return true;
    }
    return api_read_u32(document, "top_k", 0, INT32_MAX, out, error);
}

static bool read_seed(const struct json *document, struct request_options *options,
                      struct api_error *error)
{
    const struct json *const value = api_find(document, "seed");

    if (value == NULL)
        return true;
    if (json_kind(value) != JSON_KIND_INTEGER)
        return api_error_set(error, ERR_ARGUMENT, "seed",
                             "seed must be an integer from %lld to %lld", (long long)INT64_MIN,
                             (long long)INT64_MAX);
    options->sampling.seed = (uint64_t)json_int(value, 0);
    options->has_seed = true;
    return true;
}

static bool read_sampling(const struct json *document, struct request_options *options,
                          struct api_error *error)
{
    struct sampling_params *const sampling = &options->sampling;

    return read_float(document, "temperature", 0, 2, &sampling->temperature, error) &&
           read_float(document, "top_p", 0, 1, &sampling->top_p, error) &&
           read_top_k(document, &sampling->top_k, error) &&
           read_float(document, "min_p", 0, 1, &sampling->min_p, error) &&
           read_float(document, "repetition_penalty", 0.01, 10, &sampling->repetition_penalty,
                      error) &&
           read_float(document, "presence_penalty", -2, 2, &sampling->presence_penalty, error) &&
           read_float(document, "frequency_penalty", -2, 2, &sampling->frequency_penalty, error) &&
           read_seed(document, options, error);
}

static bool read_logit_bias(const struct json *document, const struct server_model *model,
                            struct sampling_params *sampling, struct api_error *error)
{
    const struct json *const map = api_find(document, "logit_bias");

    if (map == NULL)
        return true;
    if (json_kind(map) != JSON_KIND_OBJECT || json_size(map) > SAMPLING_BIAS_CAP)
        return api_error_set(error, ERR_ARGUMENT, "logit_bias",
                             "logit_bias must be an object with at most %d token ids",
                             SAMPLING_BIAS_CAP);
    sampling->n_bias = 0;
    for (void *it = json_first(map); it != NULL; it = json_next(map, it)) {
        struct sampling_bias *const bias = &sampling->bias[sampling->n_bias];
        uint64_t token;
        double value;

        if (!str_to_u64(json_member_key(it), &token) || token >= model->vocab_size)
            return api_error_set(
                error, ERR_ARGUMENT, "logit_bias",
                "logit_bias has the key \"%.*s\", which is no token id below %u",
                (int)(json_member_key(it).size > 64 ? 64 : json_member_key(it).size),
                json_member_key(it).data, model->vocab_size);
        if (!json_read_double(json_member_value(it), &value) || !(value >= -100 && value <= 100))
            return api_error_set(error, ERR_ARGUMENT, "logit_bias",
                                 "the bias of token %u must be a number from -100 to 100",
                                 (unsigned int)token);
        *bias = (struct sampling_bias){ .token = (int32_t)token, .bias = (float)value };
        sampling->n_bias++;
    }
    return true;
}

static bool add_stop(struct api_request *request, const struct json *value, struct api_error *error)
{
    struct str text;

    if (!json_read_string(value, &text) || text.size == 0 || text.size > STOP_BYTES_CAP)
        return api_error_set(error, ERR_ARGUMENT, "stop",
                             "stop must be a string of 1 to %d bytes or a list of such",
                             STOP_BYTES_CAP);
    request->stops[request->options.n_stops++] = text;
    return true;
}

static bool read_stops(const struct json *document, struct api_request *request,
                       struct api_error *error)
{
    const struct json *const value = api_find(document, "stop");

    if (value == NULL)
        return true;
    if (json_kind(value) != JSON_KIND_ARRAY)
        return add_stop(request, value, error);
    if (json_size(value) > API_STOPS_CAP)
        return api_error_set(error, ERR_ARGUMENT, "stop", "stop may list at most %d strings",
                             API_STOPS_CAP);
    for (size_t i = 0; i < json_size(value); i++) {
        if (!add_stop(request, json_at(value, i), error))
            return false;
    }
    return true;
}

static bool read_streaming(const struct json *document, struct api_request *request,
                           struct api_error *error)
{
    const struct json *const options = api_find(document, "stream_options");

    if (!api_read_bool(document, "stream", &request->stream, error))
        return false;
    if (options == NULL)
        return true;
    if (json_kind(options) != JSON_KIND_OBJECT)
        return api_error_set(error, ERR_ARGUMENT, "stream_options",
                             "stream_options must be an object");
    if (!request->stream)
        return api_error_set(error, ERR_ARGUMENT, "stream_options",
                             "stream_options is only allowed when stream is true");
    if (api_read_bool(options, "include_usage", &request->include_usage, error))
        return true;
    memcpy(error->param, "stream_options.include_usage", sizeof "stream_options.include_usage");
    return false;
}

/* ---- structured output ---- */

/* `name` is the field at fault if it does not compile. Only one field may ask for a grammar. */
static bool set_grammar(struct api_request *request, enum sampling_language language,
                        struct str text, const char *name, struct api_error *error)
{
    struct sampling_grammar *const grammar = &request->options.sampling.grammar;
    struct err err;

    if (grammar->language != SAMPLING_GRAMMAR_NONE)
        return api_error_set(error, ERR_ARGUMENT, name,
                             "only one of response_format, grammar and regex can be asked for");
    if (request->options.ignore_eos)
        return api_error_set(error, ERR_ARGUMENT, "ignore_eos",
                             "ignore_eos cannot be combined with %s, which says where the answer "
                             "ends",
                             name);
    if (text.size > SAMPLING_GRAMMAR_BYTES_CAP)
        return api_error_set(error, ERR_ARGUMENT, name, "%s has %zu bytes, more than %u", name,
                             text.size, SAMPLING_GRAMMAR_BYTES_CAP);
    *grammar = (struct sampling_grammar){ .language = language, .text = text };
    if (request_check_grammar(grammar, &err))
        return true;
    return api_error_set(error, err.code, name, "%s: %s", name, err.text);
}

static bool read_json_schema(const struct json *format, struct api_request *request,
                             struct api_error *error)
{
    const char *const name = "response_format.json_schema.schema";
    const struct json *const wrapper = json_get(format, "json_schema");
    const struct json *const schema = json_get(wrapper, "schema");
    const enum json_kind kind = json_kind(schema);

    if (json_kind(wrapper) != JSON_KIND_OBJECT)
        return api_error_set(error, ERR_ARGUMENT, "response_format.json_schema",
                             "response_format.json_schema must be an object with a schema");
    if (kind != JSON_KIND_OBJECT && kind != JSON_KIND_BOOL)
        return api_error_set(error, ERR_ARGUMENT, name, "%s must be a JSON Schema", name);
    json_write_value(&request->grammar, schema);
    return set_grammar(request, SAMPLING_GRAMMAR_JSON_SCHEMA, buf_view(&request->grammar), name,
                       error);
}

static bool read_response_format(const struct json *document, struct api_request *request,
                                 struct api_error *error)
{
    const struct json *const format = api_find(document, "response_format");
    const struct str type = json_text(json_get(format, "type"));

    if (format == NULL || str_is(type, "text"))
        return true;
    if (str_is(type, "json_object"))
        return set_grammar(request, SAMPLING_GRAMMAR_JSON_SCHEMA, STR("{\"type\":\"object\"}"),
                           "response_format", error);
    if (str_is(type, "json_schema"))
        return read_json_schema(format, request, error);
    return api_error_set(error, ERR_ARGUMENT, "response_format.type",
                         "response_format.type must be \"text\", \"json_object\" or "
                         "\"json_schema\"");
}

static bool read_grammar(const struct json *document, const char *name,
                         enum sampling_language language, struct api_request *request,
                         struct api_error *error)
{
    const struct json *const value = api_find(document, name);
    struct str text;

    if (value == NULL)
        return true;
    if (!json_read_string(value, &text) || text.size == 0)
        return api_error_set(error, ERR_ARGUMENT, name, "%s must be a string that is not empty",
                             name);
    return set_grammar(request, language, text, name, error);
}

static bool read_structured_output(const struct json *document, struct api_request *request,
                                   struct api_error *error)
{
    return read_response_format(document, request, error) &&
           read_grammar(document, "grammar", SAMPLING_GRAMMAR_GBNF, request, error) &&
           read_grammar(document, "regex", SAMPLING_GRAMMAR_REGEX, request, error);
}

/* ---- what is refused ---- */

static bool refuse_tools(const struct json *document, struct api_error *error)
{
    static const char *const lists[] = { "tools", "functions" };
    static const char *const choices[] = { "tool_choice", "function_call" };

    for (size_t i = 0; i < 2; i++) {
        const struct json *const list = api_find(document, lists[i]);
        const struct json *const choice = api_find(document, choices[i]);

        if (list != NULL && json_kind(list) != JSON_KIND_ARRAY)
            return api_error_set(error, ERR_ARGUMENT, lists[i], "%s must be a list", lists[i]);
        if (json_size(list) > 0)
            return api_error_set(error, ERR_UNSUPPORTED, lists[i], "%s are not supported",
                                 lists[i]);
        if (choice != NULL && !str_is(json_text(choice), "none") &&
            !str_is(json_text(choice), "auto"))
            return api_error_set(error, ERR_ARGUMENT, choices[i],
                                 "%s may only be \"none\" or \"auto\" without %s", choices[i],
                                 lists[i]);
    }
    return true;
}

/* What would silently give another answer than the one asked for. */
static bool refuse_unsupported(const struct json *document, struct api_error *error)
{
    static const char *const counts[] = { "n", "best_of" };

    for (size_t i = 0; i < 2; i++) {
        const struct json *const count = api_find(document, counts[i]);

        if (count != NULL && json_int(count, 0) != 1)
            return api_error_set(error, ERR_ARGUMENT, counts[i], "%s must be 1", counts[i]);
    }
    return refuse_tools(document, error);
}

bool api_request_read(struct api_request *request, const struct json *document,
                      const struct server_model *model, struct api_error *error)
{
    struct request_options *const options = &request->options;
    const struct json *const name = api_find(document, "model");

    if (name != NULL && json_kind(name) != JSON_KIND_STRING)
        return api_error_set(error, ERR_ARGUMENT, "model", "model must be a string");
    /* The newer name wins: clients that send both mean it. */
    if (!api_read_u32(document, "max_tokens", 1, INT32_MAX, &options->max_tokens, error) ||
        !api_read_u32(document, "max_completion_tokens", 1, INT32_MAX, &options->max_tokens,
                      error) ||
        !api_read_bool(document, "ignore_eos", &options->ignore_eos, error))
        return false;
    if (!read_sampling(document, options, error) ||
        !read_logit_bias(document, model, &options->sampling, error) ||
        !read_stops(document, request, error) || !read_streaming(document, request, error) ||
        !read_structured_output(document, request, error) || !refuse_unsupported(document, error))
        return false;
    options->stops = request->stops;
    return true;
}
