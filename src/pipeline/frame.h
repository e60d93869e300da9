/* A frame: a header of 64 bytes and what follows it (docs/wire.md).
 *
 * A header is believed only when its checksum holds and its payload's size agrees with kind, rows,
 * cols and dtype; all of that is decided before a byte of payload is read or room made for it.
 * Plain data; a frame has one owner at a time, and queues hand it on by pointer. */
#ifndef CASCADIA_PIPELINE_FRAME_H
#define CASCADIA_PIPELINE_FRAME_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define FRAME_HEADER_BYTES 64
#define FRAME_VERSION 1
#define FRAME_ROWS_CAP 4096u             // of a STEP
#define FRAME_COLUMNS_CAP 65536u         // floats a row between stages
#define FRAME_VOCABULARY_CAP (1u << 20)  // floats a row of logits
#define FRAME_PAYLOAD_CAP (256ull << 20) // bytes
#define FRAME_SENTENCE_CAP 65536u        // bytes of a FAIL's or AWAIT's sentence
#define FRAME_GREETING_CAP 1024u         // bytes of a HELLO or WELCOME

enum frame_kind {
    FRAME_HELLO = 1,   // who dials, and what it runs
    FRAME_WELCOME = 2, // the answer, with the same facts of the other side
    FRAME_STEP = 3,    // a batch on its way to the last stage
    FRAME_RESULT = 4,  // answers exactly one STEP
    FRAME_KEEP = 5,    // engine_ops.keep
    FRAME_DROP = 6,    // engine_ops.drop
    FRAME_PING = 7,
    FRAME_PONG = 8,
    FRAME_FAIL = 9,   // a batch, or with FRAME_FLAG_EPOCH the whole epoch, has failed
    FRAME_BYE = 10,   // the sender closes on purpose
    FRAME_AWAIT = 11, // towards the head: what a stage is waiting for
    FRAME_KIND_COUNT,
};

/* Sets of kinds, for frame_limits. */
#define FRAME_BIT(kind) (1u << (kind))
#define FRAME_ALWAYS                                                                               \
    (FRAME_BIT(FRAME_PING) | FRAME_BIT(FRAME_PONG) | FRAME_BIT(FRAME_FAIL) | FRAME_BIT(FRAME_BYE))
#define FRAME_FORWARD                                                                              \
    (FRAME_ALWAYS | FRAME_BIT(FRAME_STEP) | FRAME_BIT(FRAME_KEEP) | FRAME_BIT(FRAME_DROP))
#define FRAME_BACKWARD (FRAME_ALWAYS | FRAME_BIT(FRAME_AWAIT))
#define FRAME_TO_HEAD (FRAME_ALWAYS | FRAME_BIT(FRAME_RESULT))

enum frame_flags { FRAME_FLAG_EPOCH = 1 }; // FAIL: of no batch, of everything in flight

enum frame_dtype { FRAME_NONE, FRAME_F32, FRAME_F16, FRAME_Q8, FRAME_DTYPE_COUNT };

struct frame_header {
    enum frame_kind kind;
    uint16_t flags;
    uint64_t batch; // STEP, RESULT, FAIL of a batch; else 0
    uint64_t payload_bytes;
    uint64_t payload_xxh;      // XXH3 of the payload
    uint32_t sequence_on_link; // counts up by one a frame, from 0
    uint32_t epoch;
    uint32_t rows, cols; // of the tensor in the payload
    enum frame_dtype dtype;
};

struct frame {
    struct frame_header header;
    struct buf payload;
};

/* What one side of a link may send to the other: who reads decides. */
struct frame_limits {
    uint32_t kinds;      // FRAME_BITs
    uint32_t rows_cap;   // of a STEP; of a RESULT's tokens and logits
    uint32_t carry;      // STEP: columns, exactly
    uint32_t vocab_size; // RESULT: columns, exactly, if it has logits
};

const char *frame_kind_name(enum frame_kind kind);    // "STEP"; "?" for another
const char *frame_dtype_name(enum frame_dtype dtype); // "f32"

void frame_init(struct frame *frame);
void frame_release(struct frame *frame); // zeroed values are fine
/* Makes it an empty frame of a kind; memory of the payload is kept. */
void frame_start(struct frame *frame, enum frame_kind kind, uint32_t epoch);

void frame_header_encode(const struct frame_header *header, uint8_t out[FRAME_HEADER_BYTES]);
/* ERR_FORMAT: no frame, or one that is not allowed here. ERR_CORRUPT: a checksum does not hold.
 * ERR_UNSUPPORTED: another version of the protocol, or a dtype that this version does not carry. */
bool frame_header_decode(const uint8_t bytes[FRAME_HEADER_BYTES], const struct frame_limits *limits,
                         struct frame_header *out, struct err *err);

#endif
