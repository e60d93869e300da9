/* The log-probabilities that a model gave for a text, in a file: what another model, or the same
 * one computed otherwise, is compared with. `eval perplexity --save` writes it, `eval divergence`
 * reads it.
 *
 * A text is cut into windows of ids; of each the rows from `first` on are kept, but the last, which
 * nothing follows. A row holds ln p of every id in 16 bits over the row's own range, so a value is
 * off by at most range / 131,070 (some 0.0003 for a range of 40): two bytes a value, where 200 KB
 * of text take gigabytes. Little-endian, like everything in this program.
 *
 *     header | per window: i32 ids[window], then per row: f32 largest, f32 step, u16 v[vocab_size]
 *
 * ln p = largest - step * v, made a distribution again when it is read. */
#ifndef CASCADIA_CLI_LOGITS_FILE_H
#define CASCADIA_CLI_LOGITS_FILE_H

#include "base/err.h"
#include "base/file.h"
#include "kernel/kernel.h"

#include <stdbool.h>
#include <stdint.h>

#define LOGITS_WINDOW_CAP (1u << 20) // ids of a window
#define LOGITS_VOCAB_CAP (1u << 24)

struct logits_shape {
    uint32_t vocab_size;
    uint32_t window;    // ids of a window
    uint32_t first;     // position of the first row that counts
    uint32_t n_windows; // of the text
};

/* Rows of a window that count. */
static inline uint32_t logits_shape_rows(const struct logits_shape *shape)
{
    return shape->window - 1 - shape->first;
}

/* ln of the sum of exp(logits[n]): ln p of an id is its logit less this. NaN or an infinity among
 * the logits shows in the result. */
double logits_log_sum(const struct vec_ops *vec, const float *logits, uint32_t n);

struct logits_writer {
    struct file_writer file;
    struct logits_shape shape;
    const struct vec_ops *vec;
    uint8_t *row; // one, as it is written
};
bool logits_writer_open(struct logits_writer *writer, const char *path,
                        const struct logits_shape *shape, struct err *err);
/* For each window its ids, then its rows in order. ERR_FORMAT: a logit is not finite. */
bool logits_writer_ids(struct logits_writer *writer, const int32_t *ids, struct err *err);
bool logits_writer_row(struct logits_writer *writer, const float *logits, struct err *err);
bool logits_writer_close(struct logits_writer *writer, struct err *err);
void logits_writer_abandon(struct logits_writer *writer); // zeroed values are fine

struct logits_file {
    struct logits_shape shape;
    struct file_map map;
    struct str bytes; // of the file
};
/* ERR_FORMAT: not such a file, or one of another size than its header says. */
bool logits_file_open(struct logits_file *file, const char *path, struct err *err);
bool logits_file_view(struct logits_file *file, struct str bytes, struct err *err); // borrowed
void logits_file_close(struct logits_file *file); // zeroed values are fine

/* Window `window`: its ids, ids[shape.window], each checked against the vocabulary. */
bool logits_file_ids(const struct logits_file *file, uint32_t window, int32_t *ids,
                     struct err *err);
/* Row `row` of it: ln_p[vocab_size], p[vocab_size] and the id with the largest p. False when the
 * row means no distribution. Any thread. */
bool logits_file_row(const struct logits_file *file, const struct vec_ops *vec, uint32_t window,
                     uint32_t row, float *ln_p, float *p, uint32_t *top);

#endif
