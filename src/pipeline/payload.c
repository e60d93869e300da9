/* Codecs of the payloads. Rows, tokens and parameters are read field by field; values and logits
 * are copied, or viewed, as they lie: both machines are little-endian (bytes.h).
 *
 * Everything in a RESULT is a multiple of four bytes, so its logits can be used where they were
 * received; only a STEP's values, behind parameters of any length, are unaligned and are copied to
 * the engine's buffer. */
#include "pipeline/payload.h"

#include "pipeline/bytes.h"

#define TOKEN_BYTES 16u // row, token, logprob, n_top
#define TOP_BYTES 8u    // token, logprob

void payload_write_step(struct frame *frame, const struct batch *batch, uint32_t n_params,
                        struct str params, const float *values, uint32_t cols)
{
    struct buf *out = &frame->payload;
    frame->header.batch = batch->id;
    frame->header.rows = batch->n_rows;
    frame->header.cols = cols;
    frame->header.dtype = cols ? FRAME_F32 : FRAME_NONE;
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const struct row *row = &batch->rows[i];
        bytes_add_u32(out, row->sequence);
        bytes_add_u32(out, row->position);
        bytes_add_u32(out, (uint32_t)row->token);
        bytes_add_u32(out, row->flags);
    }
    bytes_add_u32(out, n_params);
    buf_add_str(out, params);
    buf_add(out, values, (size_t)batch->n_rows * cols * sizeof(float));
}

void payload_add_params(struct buf *out, uint32_t sequence, const struct sampling_params *params)
{
    bytes_add_u32(out, sequence);
    sampling_params_encode(params, out);
}

bool payload_read_step(const struct frame *frame, struct batch *batch, struct payload_step *out,
                       struct err *err)
{
    const struct frame_header *header = &frame->header;
    const char *bytes = frame->payload.data;
    size_t table = (size_t)header->rows * PAYLOAD_ROW_BYTES;
    size_t values = (size_t)header->rows * header->cols * sizeof(float);
    must(frame->payload.size >= table + sizeof(uint32_t) + values);
    must(header->rows <= batch->rows_cap);
    batch->id = header->batch;
    batch->n_rows = header->rows;
    for (uint32_t i = 0; i < header->rows; i++, bytes += PAYLOAD_ROW_BYTES) {
        batch->rows[i] = (struct row){ .sequence = bytes_get_u32(bytes),
                                       .position = bytes_get_u32(bytes + 4),
                                       .token = (int32_t)bytes_get_u32(bytes + 8),
                                       .flags = bytes_get_u32(bytes + 12) };
    }
    struct payload_step step = { .n_params = bytes_get_u32(bytes) };
    size_t params = frame->payload.size - table - sizeof(uint32_t) - values;
    step.params = (struct str){ .data = bytes + sizeof(uint32_t), .size = params };
    step.values = (struct str){ .data = step.params.data + params, .size = values };
    if (step.n_params > header->rows || (step.n_params == 0) != (params == 0))
        return err_set(err, ERR_FORMAT,
                       "a STEP of %u rows has parameters of %u sequences in %zu "
                       "bytes",
                       header->rows, step.n_params, params);
    *out = step;
    return true;
}

bool payload_next_params(struct str *rest, uint32_t *sequence, struct sampling_params *params,
                         struct err *err)
{
    size_t used;
    if (rest->size < sizeof(uint32_t))
        return err_set(err, ERR_FORMAT, "a STEP's parameters are cut short");
    if (!sampling_params_decode(str_slice(*rest, sizeof(uint32_t), rest->size), params, &used, err))
        return false;
    *sequence = bytes_get_u32(rest->data);
    *rest = str_slice(*rest, sizeof(uint32_t) + used, rest->size);
    return true;
}

void payload_start_result(struct frame *frame, uint64_t batch, uint32_t n_tokens)
{
    frame->header.batch = batch;
    bytes_add_u32(&frame->payload, n_tokens);
}

void payload_add_token(struct frame *frame, uint32_t row, const struct sampled_token *token)
{
    struct buf *out = &frame->payload;
    must(token->n_top <= SAMPLING_TOP_CAP);
    bytes_add_u32(out, row);
    bytes_add_u32(out, (uint32_t)token->token);
    bytes_add_f32(out, token->logprob);
    bytes_add_u32(out, token->n_top);
    for (uint32_t i = 0; i < token->n_top; i++) {
        bytes_add_u32(out, (uint32_t)token->top_tokens[i]);
        bytes_add_f32(out, token->top_logprobs[i]);
    }
}

void payload_add_logits(struct frame *frame, const float *logits, uint32_t cols)
{
    frame->header.rows++;
    frame->header.cols = cols;
    frame->header.dtype = FRAME_F32;
    buf_add(&frame->payload, logits, cols * sizeof(float));
}

bool payload_read_result(const struct frame *frame, struct payload_result *out, struct err *err)
{
    const struct frame_header *header = &frame->header;
    size_t logits = (size_t)header->rows * header->cols * sizeof(float);
    must(frame->payload.size >= sizeof(uint32_t) + logits);
    size_t tokens = frame->payload.size - sizeof(uint32_t) - logits;
    uint32_t n_tokens = bytes_get_u32(frame->payload.data);
    if (tokens % sizeof(uint32_t) != 0 || tokens / TOKEN_BYTES < n_tokens ||
        (n_tokens == 0) != (tokens == 0))
        return err_set(err, ERR_FORMAT, "a RESULT has %u tokens in %zu bytes", n_tokens, tokens);
    *out = (struct payload_result){ .n_tokens = n_tokens, .n_logits = header->rows };
    out->tokens = (struct str){ frame->payload.data + sizeof(uint32_t), tokens };
    if (logits)
        out->logits = (const float *)(const void *)(out->tokens.data + tokens);
    return true;
}

bool payload_next_token(struct str *rest, uint32_t *row, struct sampled_token *out, struct err *err)
{
    const char *bytes = rest->data;
    if (rest->size < TOKEN_BYTES)
        return err_set(err, ERR_FORMAT, "a RESULT's tokens are cut short");
    uint32_t n_top = bytes_get_u32(bytes + 12);
    if (n_top > SAMPLING_TOP_CAP || rest->size - TOKEN_BYTES < (size_t)n_top * TOP_BYTES)
        return err_set(err, ERR_FORMAT, "a RESULT's token has %u others beside it", n_top);
    *row = bytes_get_u32(bytes);
    out->token = (int32_t)bytes_get_u32(bytes + 4);
    out->logprob = bytes_get_f32(bytes + 8);
    out->n_top = n_top;
    bytes += TOKEN_BYTES;
    for (uint32_t i = 0; i < n_top; i++, bytes += TOP_BYTES) {
        out->top_tokens[i] = (int32_t)bytes_get_u32(bytes);
        out->top_logprobs[i] = bytes_get_f32(bytes + 4);
    }
    *rest = str_slice(*rest, TOKEN_BYTES + (size_t)n_top * TOP_BYTES, rest->size);
    return true;
}

void payload_write_keep(struct frame *frame, const struct payload_keep *keep)
{
    bytes_add_u32(&frame->payload, keep->from);
    bytes_add_u32(&frame->payload, keep->to);
    bytes_add_u32(&frame->payload, keep->rows);
}

void payload_read_keep(const struct frame *frame, struct payload_keep *out)
{
    const char *bytes = frame->payload.data;
    must(frame->payload.size == PAYLOAD_KEEP_BYTES);
    *out = (struct payload_keep){ bytes_get_u32(bytes), bytes_get_u32(bytes + 4),
                                  bytes_get_u32(bytes + 8) };
}

void payload_write_drop(struct frame *frame, uint32_t sequence)
{
    bytes_add_u32(&frame->payload, sequence);
}

uint32_t payload_read_drop(const struct frame *frame)
{
    must(frame->payload.size == PAYLOAD_DROP_BYTES);
    return bytes_get_u32(frame->payload.data);
}

void payload_write_fail(struct frame *frame, const struct err *reason)
{
    struct str name = str_from(err_kind(reason->code)->name);
    must(name.size < PAYLOAD_CODE_CAP);
    buf_add_char(&frame->payload, (char)name.size);
    buf_add_str(&frame->payload, name);
    buf_add_text(&frame->payload, reason->text);
}

/* A sentence from outside, made fit for a terminal and a log line. */
static void copy_sentence(struct str from, char *out, size_t out_bytes)
{
    size_t n = 0;
    while (from.size > 0 && n + 4 < out_bytes) {
        uint32_t point;
        size_t used = utf8_decode(from, &point);
        if (used == 0 || point < ' ' || (point >= 0x7f && point < 0xa0)) {
            out[n++] = '?';
            used = used ? used : 1;
        } else {
            memcpy(out + n, from.data, used);
            n += used;
        }
        from = str_slice(from, used, from.size);
    }
    out[n] = '\0';
}

static enum err_code code_named(struct str name, enum err_code otherwise)
{
    for (int code = ERR_NONE + 1; code < ERR_CODE_COUNT; code++) {
        if (str_is(name, err_kind((enum err_code)code)->name))
            return (enum err_code)code;
    }
    return otherwise;
}

void payload_read_fail(const struct frame *frame, struct err *out)
{
    struct str bytes = buf_view(&frame->payload);
    bool of_epoch = frame->header.flags & FRAME_FLAG_EPOCH;
    must(bytes.size > 0);
    size_t name_size = (unsigned char)bytes.data[0];
    if (bytes.size < 1 + name_size)
        name_size = 0;
    out->code =
        code_named(str_slice(bytes, 1, 1 + name_size), of_epoch ? ERR_PEER_LOST : ERR_BATCH_LOST);
    copy_sentence(str_slice(bytes, 1 + name_size, bytes.size), out->text, sizeof out->text);
}

void payload_write_await(struct frame *frame, const char *sentence)
{
    buf_add_text(&frame->payload, sentence);
}

void payload_read_await(const struct frame *frame, char *out, size_t out_bytes)
{
    copy_sentence(buf_view(&frame->payload), out, out_bytes);
}
