/* The loop from source rows to a panel and back. */
#include "shard/quantise.h"

#include <string.h>

#include "base/file.h"
#include "base/memory.h"

#define WIDE_GROUP 32u // of embedding and head beside 4-bit matrices

bool quantise_settings_parse(struct str name, uint32_t group_size, struct quantise_settings *out,
                             struct err *err)
{
    enum quant_format format;
    if (!quant_format_find(name, &format, err))
        return false;
    if (!quant_formats[format]->encode_panel)
        return err_set(err, ERR_ARGUMENT, "%s only holds what a GGUF file has quantised so",
                       quant_formats[format]->name);
    if (group_size != 32 && group_size != 64 && group_size != 128)
        return err_set(err, ERR_ARGUMENT, "groups of %u; there are 32, 64 and 128", group_size);
    *out = (struct quantise_settings){ .format = format, .group_size = group_size };
    return true;
}

void quantise_choose(const struct quantise_settings *settings, const struct source_tensor *tensor,
                     enum quant_format *format, uint32_t *group)
{
    const struct quant_source_ops *source = quant_sources[tensor->kind];
    const struct quant_format_ops *asked = quant_formats[settings->format];
    bool is_outer = tensor->role == TENSOR_EMBEDDING || tensor->role == TENSOR_HEAD;
    bool is_kept = source->repack_panel && !settings->requantise;
    *group = 0;
    if (!tensor_role_info(tensor->role)->is_matrix) {
        *format = QUANT_F32;
    } else if (is_kept && asked->is_float) {
        *format = QUANT_F32; // the one float that holds scale times integer exactly
    } else if (is_kept) {
        *format = source->exact_format;
        *group = source->exact_group;
    } else if (asked->is_float) {
        *format = settings->format;
    } else if (is_outer && asked->value_bits < 8) {
        *format = QUANT_INT8;
        *group = WIDE_GROUP;
    } else {
        *format = settings->format;
        *group = settings->group_size;
    }
}

/* Only a fit needs it: floats and 8 bits hold what there is. */
static bool choose_importance(struct quantise_job *job, const struct quantise_settings *settings,
                              struct err *err)
{
    if (!settings->importance || !tensor_role_info(job->role)->is_matrix ||
        job->layer == TENSOR_NO_LAYER)
        return true;
    const struct importance_vector *found =
        importance_find(settings->importance, job->layer, job->role);
    if (!found || found->cols != job->cols)
        return err_set(err, ERR_ARGUMENT,
                       "the importance was measured on another model: %s has %u columns",
                       tensor_role_info(job->role)->name, job->cols);
    job->importance = found->values;
    return true;
}

bool quantise_job_init(struct quantise_job *job, const struct quantise_settings *settings,
                       enum tensor_role role, const struct source_tensor *first,
                       const struct source_tensor *second, struct err *err)
{
    bool is_matrix = tensor_role_info(role)->is_matrix;
    struct quantise_job made = {
        .parts = { first, second },
        .n_parts = second ? 2 : 1,
        .role = role,
        .layer = first->layer,
        .rows = first->rows,
        .cols = first->cols,
        .n_items = 1,
    };
    quantise_choose(settings, first, &made.format, &made.group);
    if (!choose_importance(&made, settings, err))
        return false;
    bool fits = true;
    if (is_matrix) {
        uint64_t padded = size_round_up(first->rows, QUANT_PANEL_ROWS);
        uint64_t all_rows = padded * made.n_parts;
        fits = all_rows <= UINT32_MAX &&
               quant_panel_bytes(made.format, made.cols, made.group, &made.item_bytes);
        if (second)
            made.rows = (uint32_t)all_rows;
        made.n_items = (uint32_t)(all_rows / QUANT_PANEL_ROWS);
    }
    fits = fits && tensor_bytes(role, made.format, made.rows, made.cols, made.group, &made.bytes);
    if (!fits)
        return err_set(err, ERR_UNSUPPORTED, "tensor %.*s is too large", STR_ARG(first->name));
    if (!is_matrix)
        made.item_bytes = made.bytes;
    *job = made;
    return true;
}

/* The panels hold the source's integers and scales as they are. */
static bool is_permuted(const struct quantise_job *job, const struct source_tensor *part)
{
    const struct quant_source_ops *source = quant_sources[part->kind];
    return source->repack_panel && source->exact_format == job->format &&
           source->exact_group == job->group;
}

bool quantise_is_again(const struct quantise_job *job)
{
    const struct source_tensor *part = job->parts[0];
    return quant_sources[part->kind]->repack_panel && job->format != QUANT_F32 &&
           !is_permuted(job, part);
}

bool quantise_scratch_init(struct quantise_scratch *scratch, size_t cols_cap, size_t item_bytes_cap,
                           struct err *err)
{
    size_t values_bytes, decoded_bytes = size_round_up(cols_cap * sizeof(float), 64);
    *scratch = (struct quantise_scratch){ 0 };
    must(size_mul(decoded_bytes, QUANT_PANEL_ROWS, &values_bytes));
    size_t bytes = values_bytes + decoded_bytes + size_round_up(item_bytes_cap, 64);
    uint8_t *pages = memory_pages(bytes, err);
    if (!pages)
        return false;
    *scratch = (struct quantise_scratch){
        .values = (float *)(void *)pages,
        .decoded = (float *)(void *)(pages + values_bytes),
        .panel = pages + values_bytes + decoded_bytes,
        .pages = pages,
        .pages_bytes = bytes,
    };
    return true;
}

void quantise_scratch_release(struct quantise_scratch *scratch)
{
    memory_pages_free(scratch->pages, scratch->pages_bytes);
    *scratch = (struct quantise_scratch){ 0 };
}

static bool all_finite(const float *values, size_t count)
{
    /* x - x is 0 for finite x and NaN for the rest, so one sum tells of all. */
    float sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i] - values[i];
    return sum == 0;
}

static void add_error(const float *source, const float *made, uint32_t cols,
                      struct quantise_error *error)
{
    for (uint32_t k = 0; k < cols; k++) {
        double miss = (double)source[k] - (double)made[k];
        error->squared_error += miss * miss;
        error->squared_source += (double)source[k] * (double)source[k];
    }
}

static bool not_finite(const struct source_tensor *part, struct err *err)
{
    return err_set(err, ERR_FORMAT, "tensor %.*s holds a value that is not finite",
                   STR_ARG(part->name));
}

static bool vector_item(const struct quantise_job *job, struct quantise_scratch *scratch,
                        struct quantise_error *error, struct err *err)
{
    const struct source_tensor *part = job->parts[0];
    source_read_vector(part, scratch->values);
    if (!all_finite(scratch->values, job->cols))
        return not_finite(part, err);
    memcpy(scratch->panel, scratch->values, job->bytes);
    add_error(scratch->values, scratch->values, job->cols, error);
    return true;
}

/* Which part an item belongs to, and its rows there. */
static const struct source_tensor *item_rows(const struct quantise_job *job, uint32_t item,
                                             uint32_t *first, uint32_t *n_rows)
{
    const struct source_tensor *part = job->parts[item % job->n_parts];
    *first = item / job->n_parts * QUANT_PANEL_ROWS;
    *n_rows = part->rows - *first < QUANT_PANEL_ROWS ? part->rows - *first : QUANT_PANEL_ROWS;
    return part;
}

bool quantise_item(const struct quantise_job *job, uint32_t item, struct quantise_scratch *scratch,
                   struct quantise_error *error, struct err *err)
{
    uint32_t first, n_rows, cols = job->cols;
    const uint8_t *rows[QUANT_PANEL_ROWS];
    *error = (struct quantise_error){ 0 };
    if (!tensor_role_info(job->role)->is_matrix)
        return vector_item(job, scratch, error, err);
    const struct source_tensor *part = item_rows(job, item, &first, &n_rows);
    const struct quant_source_ops *source = quant_sources[part->kind];
    const struct quant_format_ops *format = quant_formats[job->format];
    for (uint32_t r = 0; r < n_rows; r++) {
        rows[r] = source_row(part, first + r);
        source->decode_row(rows[r], cols, scratch->values + (size_t)r * cols);
    }
    if (!all_finite(scratch->values, (size_t)n_rows * cols))
        return not_finite(part, err);
    if (is_permuted(job, part))
        source->repack_panel(rows, n_rows, cols, scratch->panel);
    else if (!format->encode_panel(scratch->values, cols, n_rows, cols, job->group, job->importance,
                                   scratch->panel))
        return err_set(err, ERR_UNSUPPORTED,
                       "tensor %.*s holds values that are too large for %s; take --quantization "
                       "bf16",
                       STR_ARG(part->name), format->name);
    for (uint32_t r = 0; r < n_rows; r++) {
        format->decode_row(scratch->panel, r, cols, job->group, scratch->decoded);
        add_error(scratch->values + (size_t)r * cols, scratch->decoded, cols, error);
    }
    return true;
}

static void forget_rows(const struct source_tensor *part, uint32_t first, uint32_t n_rows)
{
    size_t start = (size_t)(part->data - part->map->data) + (size_t)first * part->row_bytes;
    file_map_forget(part->map, start, (size_t)n_rows * part->row_bytes);
}

void quantise_forget_item(const struct quantise_job *job, uint32_t item)
{
    uint32_t first, n_rows;
    if (!tensor_role_info(job->role)->is_matrix)
        return;
    const struct source_tensor *part = item_rows(job, item, &first, &n_rows);
    forget_rows(part, first, n_rows);
}

void quantise_forget(const struct quantise_job *job)
{
    for (uint32_t i = 0; i < job->n_parts; i++)
        forget_rows(job->parts[i], 0, job->parts[i]->rows);
}

uint64_t quantise_source_bytes(const struct quantise_job *job)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < job->n_parts; i++)
        bytes += (uint64_t)job->parts[i]->rows * job->parts[i]->row_bytes;
    return bytes;
}
