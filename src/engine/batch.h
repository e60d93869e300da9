/* A batch: rows of many sequences, the unit in which everything moves below `generate`.
 *
 * A row is one token of one sequence. Rows of one sequence in a batch have consecutive positions in
 * rising order; sequences may come in any order. Plain data; the owner of the struct owns its
 * arrays (batch_init / batch_release), and they never grow after that. */
#ifndef CASCADIA_ENGINE_BATCH_H
#define CASCADIA_ENGINE_BATCH_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum row_flags {
    ROW_SAMPLE = 1 << 0,         // the last stage samples the next token from this row
    ROW_LOGITS = 1 << 1,         // return the whole logits row (eval and tests only)
    ROW_CHECKPOINT = 1 << 2,     // recurrent state is kept here
    ROW_LAST_OF_PROMPT = 1 << 3, // the prompt ends with this row
};

struct row {
    uint32_t sequence; // slot, 0 .. max_sequences - 1
    uint32_t position; // 0-based in its sequence
    int32_t token;     // id; travels to every stage
    uint32_t flags;    // enum row_flags
};

struct batch {
    uint64_t id; // chosen by the head, rising
    uint32_t n_rows;
    uint32_t rows_cap;
    struct row *rows; // [rows_cap]
    /* Between stages: carry rows, [n_rows][carry] f32, 64-byte aligned.
     * Out of the last stage: logits of the rows with ROW_SAMPLE or ROW_LOGITS, in row order,
     * [n_logits][vocab_size] f32. */
    float *values;
    size_t values_cap; // floats
    uint32_t n_logits;
};

/* Room for rows_cap rows and values_cap floats. ERR_NO_MEMORY. */
bool batch_init(struct batch *batch, uint32_t rows_cap, size_t values_cap, struct err *err);
void batch_release(struct batch *batch); // zeroed values are fine

/* Copies rows and id, not values. */
void batch_copy_rows(struct batch *to, const struct batch *from);

/* Rows that want logits (ROW_SAMPLE or ROW_LOGITS). */
uint32_t batch_count_logits(const struct batch *batch);

#endif
