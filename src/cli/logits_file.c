/* Sixteen bits hold what matters: the value is rounded, so its error has mean zero and enters a
 * divergence with its square, some 1e-8, and the distribution is made to sum to 1 after reading,
 * which takes out what would enter linearly. */
#include "cli/logits_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define MAGIC "CSCALGT1"
#define HEADER_BYTES 24u // magic, then the four numbers of the shape
#define ROW_HEADER_BYTES 8u
#define STEPS 65535.0f

static size_t row_bytes(const struct logits_shape *shape)
{
    return ROW_HEADER_BYTES + (size_t)shape->vocab_size * 2;
}

static size_t window_bytes(const struct logits_shape *shape)
{
    return (size_t)shape->window * 4 + logits_shape_rows(shape) * row_bytes(shape);
}

static void put_u32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t get_u32(const uint8_t *from)
{
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static void put_f32(uint8_t *to, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_u32(to, bits);
}

static float get_f32(const uint8_t *from)
{
    const uint32_t bits = get_u32(from);
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

double logits_log_sum(const struct vec_ops *vec, const float *logits, uint32_t n)
{
    uint32_t top;
    if (!vec->argmax(logits, n, &top))
        return NAN;
    return (double)logits[top] + log((double)vec->exp_sum(logits, n, logits[top], NULL));
}

/* ---- writing ---- */

bool logits_writer_open(struct logits_writer *writer, const char *path,
                        const struct logits_shape *shape, struct err *err)
{
    uint8_t header[HEADER_BYTES];
    must(shape->window >= shape->first + 2 && shape->vocab_size > 0);
    *writer = (struct logits_writer){ .shape = *shape, .vec = kernel_best()->vec };
    if (!file_writer_open(&writer->file, path, err)) {
        *writer = (struct logits_writer){ 0 };
        return false;
    }
    writer->row = xcalloc(1, row_bytes(shape));
    memcpy(header, MAGIC, 8);
    put_u32(header + 8, shape->vocab_size);
    put_u32(header + 12, shape->window);
    put_u32(header + 16, shape->first);
    put_u32(header + 20, shape->n_windows);
    if (file_writer_append(&writer->file, header, sizeof(header), err))
        return true;
    logits_writer_abandon(writer);
    return false;
}

bool logits_writer_ids(struct logits_writer *writer, const int32_t *ids, struct err *err)
{
    uint8_t *const bytes = xcalloc(writer->shape.window, 4);
    for (uint32_t i = 0; i < writer->shape.window; i++)
        put_u32(bytes + (size_t)4 * i, (uint32_t)ids[i]);
    const bool ok = file_writer_append(&writer->file, bytes, (size_t)writer->shape.window * 4, err);
    free(bytes);
    return ok;
}

bool logits_writer_row(struct logits_writer *writer, const float *logits, struct err *err)
{
    const uint32_t n = writer->shape.vocab_size;
    const double log_sum = logits_log_sum(writer->vec, logits, n);
    float low = logits[0], high = logits[0];
    for (uint32_t i = 1; i < n; i++) {
        low = logits[i] < low ? logits[i] : low;
        high = logits[i] > high ? logits[i] : high;
    }
    if (!isfinite(log_sum) || !isfinite(low) || !isfinite(high - low))
        return err_set(err, ERR_FORMAT, "a logit is not finite");
    const float step = (high - low) / STEPS, inverse = step > 0 ? 1.0f / step : 0.0f;
    put_f32(writer->row, (float)((double)high - log_sum));
    put_f32(writer->row + 4, step);
    uint8_t *to = writer->row + ROW_HEADER_BYTES;
    for (uint32_t i = 0; i < n; i++, to += 2) {
        const float steps = fminf((high - logits[i]) * inverse + 0.5f, STEPS);
        const uint32_t value = (uint32_t)steps;
        to[0] = (uint8_t)value;
        to[1] = (uint8_t)(value >> 8);
    }
    return file_writer_append(&writer->file, writer->row, row_bytes(&writer->shape), err);
}

bool logits_writer_close(struct logits_writer *writer, struct err *err)
{
    free(writer->row);
    writer->row = NULL;
    return file_writer_close(&writer->file, false, err);
}

void logits_writer_abandon(struct logits_writer *writer)
{
    if (writer->row != NULL)
        file_writer_abandon(&writer->file);
    free(writer->row);
    *writer = (struct logits_writer){ 0 };
}

/* ---- reading ---- */

static bool read_shape(struct str bytes, struct logits_shape *shape, struct err *err)
{
    const uint8_t *const data = (const uint8_t *)bytes.data;
    size_t size;
    if (bytes.size < HEADER_BYTES || memcmp(data, MAGIC, 8) != 0)
        return err_set(err, ERR_FORMAT, "not a file of log-probabilities (eval perplexity --save)");
    *shape = (struct logits_shape){
        .vocab_size = get_u32(data + 8),
        .window = get_u32(data + 12),
        .first = get_u32(data + 16),
        .n_windows = get_u32(data + 20),
    };
    if (shape->vocab_size == 0 || shape->vocab_size > LOGITS_VOCAB_CAP || shape->window < 2 ||
        shape->window > LOGITS_WINDOW_CAP || shape->first > shape->window - 2 ||
        shape->n_windows == 0)
        return err_set(err, ERR_FORMAT, "%u windows of %u ids from %u on, a vocabulary of %u",
                       shape->n_windows, shape->window, shape->first, shape->vocab_size);
    if (!size_mul(window_bytes(shape), shape->n_windows, &size) ||
        !size_add(size, HEADER_BYTES, &size) || size != bytes.size)
        return err_set(err, ERR_FORMAT, "%zu bytes are not %u windows of %u ids", bytes.size,
                       shape->n_windows, shape->window);
    return true;
}

bool logits_file_view(struct logits_file *file, struct str bytes, struct err *err)
{
    *file = (struct logits_file){ .bytes = bytes };
    return read_shape(bytes, &file->shape, err);
}

bool logits_file_open(struct logits_file *file, const char *path, struct err *err)
{
    struct file_map map;
    if (!file_map_open(&map, path, err))
        return false;
    const struct str bytes = { (const char *)map.data, map.size };
    if (!logits_file_view(file, bytes, err)) {
        file_map_close(&map);
        *file = (struct logits_file){ 0 };
        return err_wrap(err, "%s", path);
    }
    file->map = map;
    return true;
}

void logits_file_close(struct logits_file *file)
{
    file_map_close(&file->map);
    *file = (struct logits_file){ 0 };
}

static const uint8_t *window_at(const struct logits_file *file, uint32_t window)
{
    must(window < file->shape.n_windows);
    return (const uint8_t *)file->bytes.data + HEADER_BYTES + window * window_bytes(&file->shape);
}

bool logits_file_ids(const struct logits_file *file, uint32_t window, int32_t *ids, struct err *err)
{
    const uint8_t *at = window_at(file, window);
    for (uint32_t i = 0; i < file->shape.window; i++, at += 4) {
        const uint32_t id = get_u32(at);
        if (id >= file->shape.vocab_size)
            return err_set(err, ERR_FORMAT, "window %u: %u is no id of a vocabulary of %u", window,
                           id, file->shape.vocab_size);
        ids[i] = (int32_t)id;
    }
    return true;
}

bool logits_file_row(const struct logits_file *file, const struct vec_ops *vec, uint32_t window,
                     uint32_t row, float *ln_p, float *p, uint32_t *top)
{
    const uint32_t n = file->shape.vocab_size;
    must(row < logits_shape_rows(&file->shape));
    const uint8_t *const at =
        window_at(file, window) + (size_t)file->shape.window * 4 + row * row_bytes(&file->shape);
    const uint8_t *const values = at + ROW_HEADER_BYTES;
    const float largest = get_f32(at), step = get_f32(at + 4);
    if (!isfinite(largest) || !(step >= 0 && step < 1e30f))
        return false;
    for (uint32_t i = 0; i < n; i++)
        ln_p[i] = largest - step * (float)(values[2 * i] | (uint32_t)values[2 * i + 1] << 8);
    if (!vec->argmax(ln_p, n, top))
        return false;
    const float highest = ln_p[*top], sum = vec->exp_sum(ln_p, n, highest, p);
    const float excess = highest + (float)log((double)sum), factor = 1.0f / sum;
    for (uint32_t i = 0; i < n; i++) {
        ln_p[i] -= excess;
        p[i] *= factor;
    }
    return true;
}
