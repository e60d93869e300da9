/* A link's reading end: any bytes give an error or a frame whose payload can be read to its end. */
#include <stdint.h>

#include "base/hash.h"
#include "pipeline/bytes.h"
#include "pipeline/frame.h"
#include "pipeline/payload.h"

#define ROWS 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_step(const struct frame *frame)
{
    struct row rows[ROWS];
    struct batch batch = { .rows_cap = ROWS, .rows = rows };
    struct payload_step step;
    struct sampling_params params;
    struct err err;
    uint32_t sequence;
    if (!payload_read_step(frame, &batch, &step, &err))
        return;
    while (step.params.size && payload_next_params(&step.params, &sequence, &params, &err))
        continue;
}

static void read_result(const struct frame *frame)
{
    struct payload_result result;
    struct sampled_token token;
    struct err err;
    uint32_t row;
    volatile float seen = 0; // every value is looked at
    if (!payload_read_result(frame, &result, &err))
        return;
    while (result.tokens.size && payload_next_token(&result.tokens, &row, &token, &err))
        continue;
    for (size_t i = 0; i < (size_t)result.n_logits * frame->header.cols; i++)
        seen = result.logits[i];
    (void)seen;
}

static void read_payload(const struct frame *frame)
{
    struct payload_keep keep;
    char sentence[64];
    struct err err;
    switch (frame->header.kind) {
    case FRAME_STEP:
        read_step(frame);
        break;
    case FRAME_RESULT:
        read_result(frame);
        break;
    case FRAME_KEEP:
        payload_read_keep(frame, &keep);
        break;
    case FRAME_DROP:
        payload_read_drop(frame);
        break;
    case FRAME_FAIL:
        payload_read_fail(frame, &err);
        break;
    case FRAME_AWAIT:
        payload_read_await(frame, sentence, sizeof sentence);
        break;
    default:
        break;
    }
}

/* Twice: the bytes as they came, and with size and checksum put right, so that a fuzzer need not
 * find those. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct frame_limits limits = {
        .kinds = UINT32_MAX, .rows_cap = ROWS, .carry = 4, .vocab_size = 8
    };
    uint8_t header[FRAME_HEADER_BYTES];
    struct frame frame;
    struct err err;
    if (size < FRAME_HEADER_BYTES)
        return 0;
    frame_init(&frame);
    frame_header_decode(data, &limits, &frame.header, &err);
    memcpy(header, data, sizeof header);
    bytes_put_u64(header + 16, size - FRAME_HEADER_BYTES);
    bytes_put_u32(header + 60, hash_xxh32(header, 60));
    if (frame_header_decode(header, &limits, &frame.header, &err)) {
        buf_add(&frame.payload, data + FRAME_HEADER_BYTES, size - FRAME_HEADER_BYTES);
        read_payload(&frame);
    }
    frame_release(&frame);
    return 0;
}
