/* Parameters come from clients over HTTP and from other machines over the wire; both ways end in
 * sampling_params_check, so that the sampler itself meets only numbers it can work with.
 *
 * Wire form, little-endian: f32 temperature, u32 top_k, f32 top_p, f32 min_p, f32 repetition,
 * f32 presence, f32 frequency, u64 seed, u32 prompt_rows, u32 token_cap, u8 n_top, u8 want_logprob,
 * u16 n_bias, u8 grammar's language, u32 grammar_bytes, then n_bias times (i32 token, f32 bias),
 * then the grammar's text. */
#include "sample/sampling_params.h"

#define FIXED_BYTES 53u
#define BIAS_BYTES 8u

void sampling_params_init(struct sampling_params *params)
{
    *params = (struct sampling_params){ .top_p = 1.0f, .repetition_penalty = 1.0f };
}

/* A NaN is in no range. */
static bool check_range(const char *name, float value, float low, float high, struct err *err)
{
    if (value >= low && value <= high)
        return true;
    return err_set(err, ERR_ARGUMENT, "%s is %g, not in the range %g to %g", name, (double)value,
                   (double)low, (double)high);
}

static bool check_bias(const struct sampling_params *params, uint32_t vocab_size, struct err *err)
{
    if (params->n_bias > SAMPLING_BIAS_CAP)
        return err_set(err, ERR_ARGUMENT, "logit_bias has %u entries, more than %d", params->n_bias,
                       SAMPLING_BIAS_CAP);
    for (uint32_t i = 0; i < params->n_bias; i++) {
        const struct sampling_bias *entry = &params->bias[i];
        if (entry->token < 0 || (vocab_size > 0 && (uint32_t)entry->token >= vocab_size))
            return err_set(err, ERR_ARGUMENT, "logit_bias names token %d, which the model lacks",
                           entry->token);
        if (!check_range("logit_bias", entry->bias, -SAMPLING_PENALTY_CAP, SAMPLING_PENALTY_CAP,
                         err))
            return false;
    }
    return true;
}

static bool check_grammar(const struct sampling_grammar *grammar, struct err *err)
{
    if (grammar->language > SAMPLING_GRAMMAR_REGEX)
        return err_set(err, ERR_ARGUMENT, "a grammar in the unknown language %u",
                       (unsigned)grammar->language);
    if (grammar->language == SAMPLING_GRAMMAR_NONE && grammar->text.size > 0)
        return err_set(err, ERR_ARGUMENT, "a grammar in no language");
    if (grammar->text.size > SAMPLING_GRAMMAR_BYTES_CAP)
        return err_set(err, ERR_ARGUMENT, "the grammar has %zu bytes, more than %u",
                       grammar->text.size, SAMPLING_GRAMMAR_BYTES_CAP);
    return true;
}

bool sampling_params_check(const struct sampling_params *params, uint32_t vocab_size,
                           struct err *err)
{
    const float cap = SAMPLING_PENALTY_CAP;
    if (!check_range("temperature", params->temperature, 0.0f, SAMPLING_TEMPERATURE_CAP, err) ||
        !check_range("top_p", params->top_p, 0.0f, 1.0f, err) ||
        !check_range("min_p", params->min_p, 0.0f, 1.0f, err) ||
        !check_range("repetition_penalty", params->repetition_penalty, 1.0f / cap, cap, err) ||
        !check_range("presence_penalty", params->presence_penalty, -cap, cap, err) ||
        !check_range("frequency_penalty", params->frequency_penalty, -cap, cap, err))
        return false;
    if (params->n_top > SAMPLING_TOP_CAP)
        return err_set(err, ERR_ARGUMENT, "top_logprobs is %u, more than %d", params->n_top,
                       SAMPLING_TOP_CAP);
    if (vocab_size > 0 && params->token_cap > vocab_size)
        return err_set(err, ERR_ARGUMENT, "token_cap is %u, the model has %u tokens",
                       params->token_cap, vocab_size);
    return check_grammar(&params->grammar, err) && check_bias(params, vocab_size, err);
}

static void put_u16(struct buf *out, uint16_t value)
{
    const uint8_t bytes[2] = { (uint8_t)value, (uint8_t)(value >> 8) };
    buf_add(out, bytes, sizeof(bytes));
}

static void put_u32(struct buf *out, uint32_t value)
{
    put_u16(out, (uint16_t)value);
    put_u16(out, (uint16_t)(value >> 16));
}

static void put_f32(struct buf *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_u32(out, bits);
}

void sampling_params_encode(const struct sampling_params *params, struct buf *out)
{
    put_f32(out, params->temperature);
    put_u32(out, params->top_k);
    put_f32(out, params->top_p);
    put_f32(out, params->min_p);
    put_f32(out, params->repetition_penalty);
    put_f32(out, params->presence_penalty);
    put_f32(out, params->frequency_penalty);
    put_u32(out, (uint32_t)params->seed);
    put_u32(out, (uint32_t)(params->seed >> 32));
    put_u32(out, params->prompt_rows);
    put_u32(out, params->token_cap);
    buf_add_char(out, (char)params->n_top);
    buf_add_char(out, params->want_logprob ? 1 : 0);
    put_u16(out, (uint16_t)params->n_bias);
    buf_add_char(out, (char)params->grammar.language);
    put_u32(out, (uint32_t)params->grammar.text.size);
    for (uint32_t i = 0; i < params->n_bias; i++) {
        put_u32(out, (uint32_t)params->bias[i].token);
        put_f32(out, params->bias[i].bias);
    }
    buf_add_str(out, params->grammar.text);
}

/* Readers move a cursor whose room has been checked. */
static uint32_t take_u8(const uint8_t **at)
{
    return *(*at)++;
}

static uint32_t take_u16(const uint8_t **at)
{
    const uint32_t low = take_u8(at);
    return low | take_u8(at) << 8;
}

static uint32_t take_u32(const uint8_t **at)
{
    const uint32_t low = take_u16(at);
    return low | take_u16(at) << 16;
}

static float take_f32(const uint8_t **at)
{
    const uint32_t bits = take_u32(at);
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* What has a size of its own; `at` has `size` bytes. */
static bool decode_rest(const uint8_t *at, size_t size, struct sampling_params *params,
                        struct err *err)
{
    if (params->n_bias > SAMPLING_BIAS_CAP)
        return err_set(err, ERR_FORMAT, "sampling parameters with %u biases, more than %d",
                       params->n_bias, SAMPLING_BIAS_CAP);
    if (size < params->n_bias * BIAS_BYTES)
        return err_set(err, ERR_FORMAT, "sampling parameters cut short: %u biases in %zu bytes",
                       params->n_bias, size);
    for (uint32_t i = 0; i < params->n_bias; i++) {
        params->bias[i].token = (int32_t)take_u32(&at);
        params->bias[i].bias = take_f32(&at);
    }
    size -= params->n_bias * BIAS_BYTES;
    if (size < params->grammar.text.size)
        return err_set(err, ERR_FORMAT,
                       "sampling parameters cut short: %zu bytes of a grammar's %zu", size,
                       params->grammar.text.size);
    params->grammar.text.data = params->grammar.text.size > 0 ? (const char *)at : NULL;
    return true;
}

bool sampling_params_decode(struct str bytes, struct sampling_params *out, size_t *used,
                            struct err *err)
{
    if (bytes.size < FIXED_BYTES)
        return err_set(err, ERR_FORMAT, "sampling parameters cut short: %zu bytes of %u",
                       bytes.size, FIXED_BYTES);
    const uint8_t *at = (const uint8_t *)bytes.data;
    struct sampling_params params = { 0 };
    params.temperature = take_f32(&at);
    params.top_k = take_u32(&at);
    params.top_p = take_f32(&at);
    params.min_p = take_f32(&at);
    params.repetition_penalty = take_f32(&at);
    params.presence_penalty = take_f32(&at);
    params.frequency_penalty = take_f32(&at);
    params.seed = take_u32(&at);
    params.seed |= (uint64_t)take_u32(&at) << 32;
    params.prompt_rows = take_u32(&at);
    params.token_cap = take_u32(&at);
    params.n_top = take_u8(&at);
    const uint32_t want_logprob = take_u8(&at);
    params.n_bias = take_u16(&at);
    params.grammar.language = (enum sampling_language)take_u8(&at);
    params.grammar.text.size = take_u32(&at);
    if (want_logprob > 1)
        return err_set(err, ERR_FORMAT, "sampling parameters with a flag of %u", want_logprob);
    params.want_logprob = want_logprob == 1;
    if (!decode_rest(at, bytes.size - FIXED_BYTES, &params, err))
        return false;
    if (!sampling_params_check(&params, 0, err)) {
        err->code = ERR_FORMAT;
        return err_wrap(err, "sampling parameters");
    }
    *out = params;
    *used = FIXED_BYTES + params.n_bias * BIAS_BYTES + params.grammar.text.size;
    return true;
}
