/* f32, f16 and bf16: panels [cols][32] and row-major sources, and the two 8-bit floats of
 * safetensors, which f16 holds exactly. No arithmetic but the conversions of quant.c. */
#include <string.h>

#include "quant/quant_internal.h"

static bool f32_encode_panel(const float *w, size_t row_stride, uint32_t n_rows, uint32_t cols,
                             uint32_t group, const float *importance, uint8_t *panel)
{
    (void)group, (void)importance;
    if (n_rows < QUANT_PANEL_ROWS)
        memset(panel, 0, (size_t)cols * QUANT_PANEL_ROWS * 4);
    for (uint32_t row = 0; row < n_rows; row++) {
        const float *from = w + row * row_stride;
        uint8_t *to = panel + (size_t)row * 4;
        for (uint32_t k = 0; k < cols; k++)
            memcpy(to + (size_t)k * QUANT_PANEL_ROWS * 4, &from[k], 4);
    }
    return true;
}

static void f32_decode_panel_row(const uint8_t *panel, uint32_t row, uint32_t cols, uint32_t group,
                                 float *out)
{
    (void)group;
    const uint8_t *from = panel + (size_t)row * 4;
    for (uint32_t k = 0; k < cols; k++)
        memcpy(&out[k], from + (size_t)k * QUANT_PANEL_ROWS * 4, 4);
}

const struct quant_format_ops quant_format_f32 = {
    .name = "f32",
    .summary = "32-bit floats",
    .value_bits = 32,
    .is_float = true,
    .encode_panel = f32_encode_panel,
    .decode_row = f32_decode_panel_row,
};

typedef uint16_t half_from_float(float f);
typedef float float_from_half(uint16_t h);

/* `infinity` is the format's bits of one: a finite value that became it did not fit. */
static bool half_encode_panel(const float *w, size_t row_stride, uint32_t n_rows, uint32_t cols,
                              uint8_t *panel, half_from_float *convert, uint16_t infinity)
{
    bool fits = true;
    if (n_rows < QUANT_PANEL_ROWS)
        memset(panel, 0, (size_t)cols * QUANT_PANEL_ROWS * 2);
    for (uint32_t row = 0; row < n_rows; row++) {
        const float *from = w + row * row_stride;
        uint8_t *to = panel + (size_t)row * 2;
        for (uint32_t k = 0; k < cols; k++) {
            uint16_t h = convert(from[k]);
            fits &= (h & 0x7fffu) != infinity;
            store_u16(to + (size_t)k * QUANT_PANEL_ROWS * 2, h);
        }
    }
    return fits;
}

static void half_decode_panel_row(const uint8_t *panel, uint32_t row, uint32_t cols, float *out,
                                  float_from_half *convert)
{
    const uint8_t *from = panel + (size_t)row * 2;
    for (uint32_t k = 0; k < cols; k++)
        out[k] = convert(load_u16(from + (size_t)k * QUANT_PANEL_ROWS * 2));
}

static bool f16_encode_panel(const float *w, size_t row_stride, uint32_t n_rows, uint32_t cols,
                             uint32_t group, const float *importance, uint8_t *panel)
{
    (void)group, (void)importance;
    return half_encode_panel(w, row_stride, n_rows, cols, panel, quant_f32_to_f16, 0x7c00u);
}

static void f16_decode_panel_row(const uint8_t *panel, uint32_t row, uint32_t cols, uint32_t group,
                                 float *out)
{
    (void)group;
    half_decode_panel_row(panel, row, cols, out, quant_f16_to_f32);
}

static bool bf16_encode_panel(const float *w, size_t row_stride, uint32_t n_rows, uint32_t cols,
                              uint32_t group, const float *importance, uint8_t *panel)
{
    (void)group, (void)importance;
    return half_encode_panel(w, row_stride, n_rows, cols, panel, quant_f32_to_bf16, 0x7f80u);
}

static void bf16_decode_panel_row(const uint8_t *panel, uint32_t row, uint32_t cols, uint32_t group,
                                  float *out)
{
    (void)group;
    half_decode_panel_row(panel, row, cols, out, quant_bf16_to_f32);
}

const struct quant_format_ops quant_format_f16 = {
    .name = "f16",
    .summary = "16-bit floats, 11 bits of precision",
    .value_bits = 16,
    .is_float = true,
    .encode_panel = f16_encode_panel,
    .decode_row = f16_decode_panel_row,
};

const struct quant_format_ops quant_format_bf16 = {
    .name = "bf16",
    .summary = "16-bit floats with the range of f32, 8 bits of precision",
    .value_bits = 16,
    .is_float = true,
    .encode_panel = bf16_encode_panel,
    .decode_row = bf16_decode_panel_row,
};

static void f32_decode_row(const uint8_t *row, uint32_t cols, float *out)
{
    memcpy(out, row, (size_t)cols * 4);
}

static void f64_decode_row(const uint8_t *row, uint32_t cols, float *out)
{
    for (uint32_t k = 0; k < cols; k++) {
        double value;
        memcpy(&value, row + (size_t)k * 8, 8);
        out[k] = (float)value;
    }
}

static void f16_decode_row(const uint8_t *row, uint32_t cols, float *out)
{
    for (uint32_t k = 0; k < cols; k++)
        out[k] = quant_f16_to_f32(load_u16(row + (size_t)k * 2));
}

static void bf16_decode_row(const uint8_t *row, uint32_t cols, float *out)
{
    for (uint32_t k = 0; k < cols; k++)
        out[k] = quant_bf16_to_f32(load_u16(row + (size_t)k * 2));
}

/* E5M2 is the upper byte of an f16. */
static void f8_e5m2_decode_row(const uint8_t *row, uint32_t cols, float *out)
{
    for (uint32_t k = 0; k < cols; k++)
        out[k] = quant_f16_to_f32((uint16_t)(row[k] << 8));
}

/* E4M3 (the "fn" kind of safetensors): no infinities, all ones is the only NaN of each sign. Its
 * bits are those of an f16 with the exponent moved by 8; subnormals are multiples of 2^-9. */
static float f8_e4m3_to_f32(uint8_t byte)
{
    uint32_t sign = (byte & 0x80u) << 8, exponent = byte >> 3 & 15u, mantissa = byte & 7u;
    if (exponent == 15 && mantissa == 7)
        return quant_f16_to_f32((uint16_t)(sign | 0x7e00u));
    if (exponent == 0)
        return (sign ? -0x1p-9f : 0x1p-9f) * (float)mantissa;
    return quant_f16_to_f32((uint16_t)(sign | (exponent + 8) << 10 | mantissa << 7));
}

static void f8_e4m3_decode_row(const uint8_t *row, uint32_t cols, float *out)
{
    for (uint32_t k = 0; k < cols; k++)
        out[k] = f8_e4m3_to_f32(row[k]);
}

const struct quant_source_ops quant_source_f32 = {
    .name = "f32",
    .block_values = 1,
    .block_bytes = 4,
    .exact_format = QUANT_F32,
    .decode_row = f32_decode_row,
};
const struct quant_source_ops quant_source_f16 = {
    .name = "f16",
    .block_values = 1,
    .block_bytes = 2,
    .exact_format = QUANT_F16,
    .decode_row = f16_decode_row,
};
const struct quant_source_ops quant_source_bf16 = {
    .name = "bf16",
    .block_values = 1,
    .block_bytes = 2,
    .exact_format = QUANT_BF16,
    .decode_row = bf16_decode_row,
};
const struct quant_source_ops quant_source_f64 = {
    .name = "f64",
    .block_values = 1,
    .block_bytes = 8,
    .exact_format = QUANT_F32,
    .decode_row = f64_decode_row,
};
const struct quant_source_ops quant_source_f8_e4m3 = {
    .name = "f8_e4m3",
    .block_values = 1,
    .block_bytes = 1,
    .exact_format = QUANT_F16,
    .decode_row = f8_e4m3_decode_row,
};
const struct quant_source_ops quant_source_f8_e5m2 = {
    .name = "f8_e5m2",
    .block_values = 1,
    .block_bytes = 1,
    .exact_format = QUANT_F16,
    .decode_row = f8_e5m2_decode_row,
};
