/* What stands behind the headers of the frames that carry work: STEP, RESULT, KEEP, DROP, FAIL and
 * AWAIT (docs/wire.md). HELLO and WELCOME: handshake.h.
 *
 * Writers append to a frame that frame_start has begun, and fill the header's rows, cols and dtype.
 * Readers take a frame whose header has been checked; what a payload says within is checked here.
 * ERR_FORMAT when it does not add up; views live as long as the frame. Any thread
 * that owns the frame. */
#ifndef CASCADIA_PIPELINE_PAYLOAD_H
#define CASCADIA_PIPELINE_PAYLOAD_H

#include "base/err.h"
#include "base/str.h"
#include "engine/batch.h"
#include "pipeline/frame.h"
#include "sample/sampling_params.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAYLOAD_ROW_BYTES 16u  // sequence, position, token, flags
#define PAYLOAD_KEEP_BYTES 12u // from, to, rows
#define PAYLOAD_DROP_BYTES 4u  // sequence
#define PAYLOAD_CODE_CAP 32u   // a FAIL's code by name, with its length byte
#define PAYLOAD_PARAMS_CAP (4096u + SAMPLING_GRAMMAR_BYTES_CAP) // one sequence's, at the most
#define PAYLOAD_NO_TOKEN (-1)
#define PAYLOAD_TOKEN_CAP (16u + 8u * SAMPLING_TOP_CAP)

/* --- STEP: row table, parameters, values -------------------------------------------------------
 */

struct payload_step {
    uint32_t n_params;
    struct str params; // for payload_next_params
    struct str values; // rows x cols floats, unaligned
};

/* `params` is the encoded part after the count, built with payload_add_params or taken from a step
 * that is passed on. values: [n_rows][cols]; cols 0 with values NULL within one process. */
void payload_write_step(struct frame *frame, const struct batch *batch, uint32_t n_params,
                        struct str params, const float *values, uint32_t cols);
void payload_add_params(struct buf *out, uint32_t sequence, const struct sampling_params *params);
/* Fills batch->id, n_rows and rows (rows_cap is large enough by the header's limits). */
bool payload_read_step(const struct frame *frame, struct batch *batch, struct payload_step *out,
                       struct err *err);
/* Cuts the next sequence's parameters off the front; a grammar's text is a view of the frame. */
bool payload_next_params(struct str *rest, uint32_t *sequence, struct sampling_params *params,
                         struct err *err);

/* --- RESULT: tokens, logits --------------------------------------------------------------------
 */

struct payload_result {
    uint32_t n_tokens;
    struct str tokens;   // for payload_next_token
    uint32_t n_logits;   // rows
    const float *logits; // [n_logits][cols]; aligned as the payload's floats are
};

/* First the number of tokens, then each, then the logits. A token of PAYLOAD_NO_TOKEN says that
 * none could be drawn from its row, and concerns no other row. */
void payload_start_result(struct frame *frame, uint64_t batch, uint32_t n_tokens);
void payload_add_token(struct frame *frame, uint32_t row, const struct sampled_token *token);
void payload_add_logits(struct frame *frame, const float *logits, uint32_t cols); // one row
bool payload_read_result(const struct frame *frame, struct payload_result *out, struct err *err);
bool payload_next_token(struct str *rest, uint32_t *row, struct sampled_token *out,
                        struct err *err);

/* --- KEEP, DROP, FAIL, AWAIT -------------------------------------------------------------------
 */

struct payload_keep {
    uint32_t from, to, rows;
};
void payload_write_keep(struct frame *frame, const struct payload_keep *keep);
void payload_read_keep(const struct frame *frame, struct payload_keep *out);
void payload_write_drop(struct frame *frame, uint32_t sequence);
uint32_t payload_read_drop(const struct frame *frame);

/* The code travels by name. A name that this version does not know reads as ERR_BATCH_LOST, or
 * ERR_PEER_LOST when the whole epoch failed; what is not printable reads as "?". */
void payload_write_fail(struct frame *frame, const struct err *reason);
void payload_read_fail(const struct frame *frame, struct err *out);
void payload_write_await(struct frame *frame, const char *sentence);
void payload_read_await(const struct frame *frame, char *out, size_t out_bytes);

#endif
