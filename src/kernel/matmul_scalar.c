/* Matrix products in plain C: the definition that the other rungs are held to. One row at a time,
 * one output after another, each the sum that docs/numerics.md writes down in rules 2 and 3. */
#include <math.h>
#include <string.h>

#include "kernel/fmath.h"
#include "kernel/kernel_internal.h"

static bool measure(const float *x, uint32_t n, float maxima[CHUNK_SUBS])
{
    for (uint32_t i = 0; i < CHUNK_SUBS; i++)
        maxima[i] = 0.0f;
    for (uint32_t k = 0; k < n; k++) {
        const float magnitude = fabsf(x[k]);
        if (!(magnitude <= 3.402823466e38f))
            return false;
        if (magnitude > maxima[k / SUM_GROUP])
            maxima[k / SUM_GROUP] = magnitude;
    }
    return true;
}

static void quantise(const float *x, uint32_t n, const float factors[CHUNK_SUBS],
                     int8_t q[ACTIVATION_CHUNK])
{
    memset(q, 0, ACTIVATION_CHUNK);
    for (uint32_t k = 0; k < n; k++) {
        const float rounded = x[k] * factors[k / SUM_GROUP] + EXP_ROUND - EXP_ROUND; // to even
        const int32_t value = (int32_t)rounded;
        q[k] = (int8_t)(value > 127 ? 127 : value < -127 ? -127 : value);
    }
}

static float f16_at(const uint8_t *values, uint32_t index)
{
    uint16_t half;
    memcpy(&half, values + (size_t)index * 2, 2);
    return quant_f16_to_f32(half);
}

/* The value stored for lane `lane`, column k of a block. */
static int32_t stored(const uint8_t *half_panel, enum quant_format format, uint32_t lane,
                      uint32_t k)
{
    if (format == QUANT_INT8 || format == QUANT_INT8_MIN)
        return half_panel[k / 4 * 64 + lane * 4 + k % 4];
    const uint8_t byte = half_panel[k / 8 * 64 + lane * 4 + k % 4];
    return k % 8 < 4 ? byte & 15 : byte >> 4;
}

static int32_t zero_point(const uint8_t *block, enum quant_format format, uint32_t row)
{
    switch (format) {
    case QUANT_INT8:
    case QUANT_INT8_MIN:
        return 128;
    case QUANT_INT4:
        return 8;
    case QUANT_INT4_ASYM:
        return block[64 + row];
    default:
        return 0;
    }
}

static bool has_minimum(enum quant_format format)
{
    return format == QUANT_INT4_MIN || format == QUANT_INT8_MIN;
}

static const uint8_t *half_panel(const uint8_t *block, enum quant_format format, uint32_t group,
                                 uint32_t row)
{
    const uint32_t header = block_header_bytes(format);
    return block + header + row / 16 * ((block_bytes(format, group) - header) / 2);
}

/* acc + row `row` of one block, from its column `from` on, times n values of q. */
static float dot_block(const uint8_t *block, enum quant_format format, uint32_t group, uint32_t row,
                       uint32_t from, const int8_t *q, uint32_t n, float x_scale, float acc)
{
    const uint8_t *const half = half_panel(block, format, group, row);
    const int32_t zero = zero_point(block, format, row);
    int32_t dot = 0, sum = 0;
    for (uint32_t k = 0; k < n; k++) {
        dot += (stored(half, format, row % 16, from + k) - zero) * q[k];
        sum += q[k];
    }
    acc = fmaf((float)dot, f16_at(block, row) * x_scale, acc);
    if (has_minimum(format))
        acc = fmaf(f16_at(block, QUANT_PANEL_ROWS + row), x_scale * (float)sum, acc);
    return acc;
}

static void panel_quantised(const struct panel_job *job, enum quant_format format, float *acc)
{
    const uint32_t bytes = block_bytes(format, job->group);
    for (uint32_t row = 0; row < QUANT_PANEL_ROWS; row++) {
        float sum = 0.0f;
        for (uint32_t k = 0; k < job->cols; k += job->dot_group)
            sum =
                dot_block(job->data + k / job->group * (size_t)bytes, format, job->group, row,
                          k % job->group, job->tile->q + k, min_u32(job->cols - k, job->dot_group),
                          job->tile->scales[k / SUM_GROUP], sum);
        acc[row] = sum;
    }
}

/* The value that a quantised format means at row `row` of a panel, column k. */
static float widened_at(const struct panel_job *job, enum quant_format format, uint32_t row,
                        uint32_t k)
{
    const size_t bytes = block_bytes(format, job->group);
    const uint8_t *const block = job->data + k / job->group * bytes;
    const uint8_t *const half = half_panel(block, format, job->group, row);
    const int32_t q =
        stored(half, format, row % 16, k % job->group) - zero_point(block, format, row);
    const float scale = f16_at(block, row);
    if (has_minimum(format))
        return fmaf((float)q, scale, f16_at(block, QUANT_PANEL_ROWS + row));
    return (float)q * scale;
}

static float value_at(const struct panel_job *job, enum quant_format format, uint32_t row,
                      uint32_t k)
{
    const size_t index = (size_t)k * QUANT_PANEL_ROWS + row;
    float value;
    uint16_t half;
    if (!quant_formats[format]->is_float)
        return widened_at(job, format, row, k);
    if (format == QUANT_F32) {
        memcpy(&value, job->data + index * 4, 4);
        return value;
    }
    memcpy(&half, job->data + index * 2, 2);
    return format == QUANT_F16 ? quant_f16_to_f32(half) : quant_bf16_to_f32(half);
}

static void panel_float(const struct panel_job *job, enum quant_format format, float *acc)
{
    const float *const x = job->tile->x;
    for (uint32_t row = 0; row < QUANT_PANEL_ROWS; row++) {
        float sum = 0.0f;
        for (uint32_t k = 0; k < job->cols; k++)
            sum = fmaf(value_at(job, format, row, k), x[k], sum);
        acc[row] = sum;
    }
}

#define PANELS(name, kind, format)                                                                 \
    static void name(const struct panel_job *job, float *acc)                                      \
    {                                                                                              \
        struct panel_job one = *job;                                                               \
        for (uint32_t i = 0; i < job->n_panels; i++) {                                             \
            kind(&one, format, acc + (size_t)i * QUANT_PANEL_ROWS);                                \
            one.data += job->panel_bytes;                                                          \
        }                                                                                          \
    }

PANELS(panels_int8, panel_quantised, QUANT_INT8)
PANELS(panels_int8_min, panel_quantised, QUANT_INT8_MIN)
PANELS(panels_int4, panel_quantised, QUANT_INT4)
PANELS(panels_int4_asym, panel_quantised, QUANT_INT4_ASYM)
PANELS(panels_int4_min, panel_quantised, QUANT_INT4_MIN)

PANELS(floats_f32, panel_float, QUANT_F32)
PANELS(floats_f16, panel_float, QUANT_F16)
PANELS(floats_bf16, panel_float, QUANT_BF16)
PANELS(floats_int8, panel_float, QUANT_INT8)
PANELS(floats_int8_min, panel_float, QUANT_INT8_MIN)
PANELS(floats_int4, panel_float, QUANT_INT4)
PANELS(floats_int4_asym, panel_float, QUANT_INT4_ASYM)
PANELS(floats_int4_min, panel_float, QUANT_INT4_MIN)

static float biased(float value, const float *bias, uint32_t column)
{
    return bias ? value + bias[column] : value;
}

static void finish(const struct finish_job *job)
{
    const struct matmul_part *const part = job->part;
    for (uint32_t i = 0; i < job->tile->count; i++) {
        float *const out = part->out + (job->tile->row + i) * part->out_stride + job->column;
        for (uint32_t c = 0; c < job->n; c++) {
            const size_t at = (size_t)i * job->width + c;
            const float of_x = job->row_scales ? job->row_scales[i] : 1.0f; // 1 changes nothing
            const float value = biased(job->acc[at] * of_x, part->bias, job->column + c);
            if (part->epilogue == MATMUL_ADD)
                out[c] += value;
            else if (part->epilogue == MATMUL_STORE)
                out[c] = value;
            else
                out[c] = fmath_silu(value) *
                         biased(job->up_acc[at] * of_x, part->up_bias, job->column + c);
        }
    }
}

static const struct matmul_leaves leaves = {
    .tuning = { .n_panels = 1 },
    .panels_rows = 1,
    .panels = {
        [QUANT_INT8] = panels_int8,
        [QUANT_INT8_MIN] = panels_int8_min,
        [QUANT_INT4] = panels_int4,
        [QUANT_INT4_ASYM] = panels_int4_asym,
        [QUANT_INT4_MIN] = panels_int4_min,
    },
    .floats = {
        [QUANT_F32] = floats_f32,
        [QUANT_F16] = floats_f16,
        [QUANT_BF16] = floats_bf16,
        [QUANT_INT8] = floats_int8,
        [QUANT_INT8_MIN] = floats_int8_min,
        [QUANT_INT4] = floats_int4,
        [QUANT_INT4_ASYM] = floats_int4_asym,
        [QUANT_INT4_MIN] = floats_int4_min,
    },
    .finish = finish,
};

static const struct activation_leaves activation_leaves = {
    .measure = measure,
    .quantise = quantise,
    .starts = STARTS_SUM,
};

static bool pack(struct activation *a, uint32_t first, uint32_t end)
{
    return activation_pack(a, first, end, &activation_leaves);
}

static void run(const struct matmul *mm, uint32_t first, uint32_t end)
{
    matmul_drive(mm, first, end, &leaves);
}

const struct matmul_ops matmul_scalar = {
    .tile_rows = 1,
    .pack = pack,
    .run = run,
};
