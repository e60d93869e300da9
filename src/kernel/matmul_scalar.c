/* Matrix products in plain C: the definition that the other rungs are held to. One row at a time,
 * one output after another, each the sum that docs/numerics.md writes down in rules 2 and 3. */
#include <math.h>
#include <string.h>

#include "kernel/fmath.h"
#include "kernel/kernel_internal.h"

static bool quantise(const float *x, uint32_t n, int8_t *q, float *scale)
{
    float largest = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        const float magnitude = fabsf(x[i]);
        if (!(magnitude <= 3.402823466e38f))
            return false;
        largest = magnitude > largest ? magnitude : largest;
    }
    const bool zeros = largest < ACTIVATION_MIN;
    const float factor = zeros ? 0.0f : 127.0f / largest;
    *scale = zeros ? 0.0f : largest / 127.0f;
    memset(q, 0, ACTIVATION_GROUP);
    for (uint32_t i = 0; i < n; i++) {
        const float rounded = x[i] * factor + EXP_ROUND - EXP_ROUND; // to nearest even
        const int32_t value = (int32_t)rounded;
        q[i] = (int8_t)(value > 127 ? 127 : value < -127 ? -127 : value);
    }
    return true;
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

/* acc + row `row` of one block times n values of q. */
static float dot_block(const uint8_t *block, enum quant_format format, uint32_t group, uint32_t row,
                       const int8_t *q, uint32_t n, float x_scale, float acc)
{
    const uint32_t header = block_header_bytes(format);
    const uint32_t half_bytes = (block_bytes(format, group) - header) / 2;
    const uint8_t *const half_panel = block + header + row / 16 * half_bytes;
    const int32_t zero = zero_point(block, format, row);
    int32_t dot = 0, sum = 0;
    for (uint32_t k = 0; k < n; k++) {
        dot += (stored(half_panel, format, row % 16, k) - zero) * q[k];
        sum += q[k];
    }
    acc = fmaf((float)dot, f16_at(block, row) * x_scale, acc);
    if (format == QUANT_INT4_MIN || format == QUANT_INT8_MIN)
        acc = fmaf(f16_at(block, QUANT_PANEL_ROWS + row), x_scale * (float)sum, acc);
    return acc;
}

static void panel_quantised(const struct panel_job *job, enum quant_format format, float *acc)
{
    const uint32_t bytes = block_bytes(format, job->group);
    for (uint32_t row = 0; row < QUANT_PANEL_ROWS; row++) {
        float sum = 0.0f;
        for (uint32_t k = 0; k < job->cols; k += job->group) {
            const uint32_t n = job->cols - k < job->group ? job->cols - k : job->group;
            sum = dot_block(job->data + k / job->group * (size_t)bytes, format, job->group, row,
                            job->tile->q + k, n, job->tile->scales[k / ACTIVATION_GROUP], sum);
        }
        acc[row] = sum;
    }
}

static float float_at(const uint8_t *panel, enum quant_format format, size_t index)
{
    float value;
    uint16_t half;
    if (format == QUANT_F32) {
        memcpy(&value, panel + index * 4, 4);
        return value;
    }
    memcpy(&half, panel + index * 2, 2);
    return format == QUANT_F16 ? quant_f16_to_f32(half) : quant_bf16_to_f32(half);
}

static void panel_float(const struct panel_job *job, enum quant_format format, float *acc)
{
    const float *const x = job->tile->x;
    for (uint32_t row = 0; row < QUANT_PANEL_ROWS; row++) {
        float sum = 0.0f;
        for (uint32_t k = 0; k < job->cols; k++)
            sum = fmaf(float_at(job->data, format, (size_t)k * QUANT_PANEL_ROWS + row), x[k], sum);
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

PANELS(panels_f32, panel_float, QUANT_F32)
PANELS(panels_f16, panel_float, QUANT_F16)
PANELS(panels_bf16, panel_float, QUANT_BF16)
PANELS(panels_int8, panel_quantised, QUANT_INT8)
PANELS(panels_int8_min, panel_quantised, QUANT_INT8_MIN)
PANELS(panels_int4, panel_quantised, QUANT_INT4)
PANELS(panels_int4_asym, panel_quantised, QUANT_INT4_ASYM)
PANELS(panels_int4_min, panel_quantised, QUANT_INT4_MIN)

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
            const float value = biased(job->acc[at], part->bias, job->column + c);
            if (part->epilogue == MATMUL_ADD)
                out[c] += value;
            else if (part->epilogue == MATMUL_STORE)
                out[c] = value;
            else
                out[c] =
                    fmath_silu(value) * biased(job->up_acc[at], part->up_bias, job->column + c);
        }
    }
}

static const struct matmul_leaves leaves = {
    .n_panels = 1,
    .panels_rows = 1,
    .panels = {
        [QUANT_F32] = panels_f32,
        [QUANT_F16] = panels_f16,
        [QUANT_BF16] = panels_bf16,
        [QUANT_INT8] = panels_int8,
        [QUANT_INT8_MIN] = panels_int8_min,
        [QUANT_INT4] = panels_int4,
        [QUANT_INT4_ASYM] = panels_int4_asym,
        [QUANT_INT4_MIN] = panels_int4_min,
    },
    .finish = finish,
};

static bool pack(struct activation *a, uint32_t first, uint32_t end)
{
    return activation_pack(a, first, end, quantise, NULL);
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
