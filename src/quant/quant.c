/* The two tables, and the arithmetic of sizes that everyone else relies on: a reader checks a
 * file's byte counts against these functions before it touches a panel, so they must not overflow
 * and must be the only place that knows a block's size. */
#include "quant/quant.h"

#include <string.h>

#include "base/memory.h"
#include "quant/quant_internal.h"

const struct quant_format_ops *const quant_formats[QUANT_FORMAT_COUNT] = {
    [QUANT_F32] = &quant_format_f32,
    [QUANT_F16] = &quant_format_f16,
    [QUANT_BF16] = &quant_format_bf16,
    [QUANT_INT8] = &quant_format_int8,
    [QUANT_INT8_MIN] = &quant_format_int8_min,
    [QUANT_INT4] = &quant_format_int4,
    [QUANT_INT4_ASYM] = &quant_format_int4_asym,
    [QUANT_INT4_MIN] = &quant_format_int4_min,
};

const struct quant_source_ops *const quant_sources[QUANT_SOURCE_COUNT] = {
    [QUANT_SOURCE_F32] = &quant_source_f32,         [QUANT_SOURCE_F16] = &quant_source_f16,
    [QUANT_SOURCE_BF16] = &quant_source_bf16,       [QUANT_SOURCE_Q4_0] = &quant_source_q4_0,
    [QUANT_SOURCE_Q4_1] = &quant_source_q4_1,       [QUANT_SOURCE_Q5_0] = &quant_source_q5_0,
    [QUANT_SOURCE_Q5_1] = &quant_source_q5_1,       [QUANT_SOURCE_Q8_0] = &quant_source_q8_0,
    [QUANT_SOURCE_F64] = &quant_source_f64,         [QUANT_SOURCE_F8_E4M3] = &quant_source_f8_e4m3,
    [QUANT_SOURCE_F8_E5M2] = &quant_source_f8_e5m2,
};

bool quant_format_find(struct str name, enum quant_format *out, struct err *err)
{
    if (str_is(name, "fp16"))
        name = STR("f16");
    if (str_is(name, "fp32"))
        name = STR("f32");
    char list[128] = "";
    size_t used = 0;
    for (int i = 0; i < QUANT_FORMAT_COUNT; i++) {
        const char *known = quant_formats[i]->name;
        if (str_is(name, known)) {
            *out = (enum quant_format)i;
            return true;
        }
        size_t length = strlen(known);
        must(used + length + 3 <= sizeof list);
        memcpy(list + used, ", ", 2);
        memcpy(list + used + 2, known, length + 1);
        used += length + 2;
    }
    return err_set(err, ERR_ARGUMENT, "no weight format %.*s; there are%s", STR_ARG(name),
                   list + 1);
}

bool quant_panel_bytes(enum quant_format format, uint32_t cols, uint32_t group, size_t *out)
{
    const struct quant_format_ops *ops = quant_formats[format];
    if (ops->is_float)
        return group == 0 && size_mul(cols, QUANT_PANEL_ROWS * ops->value_bits / 8, out);
    if (group != 32 && group != 64 && group != 128)
        return false;
    size_t block = ops->header_bytes + (size_t)group * QUANT_PANEL_ROWS * ops->value_bits / 8;
    return size_mul(block_count(cols, group), block, out);
}

bool quant_matrix_bytes(enum quant_format format, uint32_t rows, uint32_t cols, uint32_t group,
                        size_t *out)
{
    size_t panel;
    return quant_panel_bytes(format, cols, group, &panel) &&
           size_mul(block_count(rows, QUANT_PANEL_ROWS), panel, out);
}

void quant_decode_panel(enum quant_format format, const uint8_t *panel, uint32_t n_rows,
                        uint32_t cols, uint32_t group, float *out, size_t row_stride)
{
    for (uint32_t row = 0; row < n_rows; row++)
        quant_formats[format]->decode_row(panel, row, cols, group, out + row * row_stride);
}

void quant_decode_matrix_row(enum quant_format format, const uint8_t *matrix, uint32_t row,
                             uint32_t cols, uint32_t group, float *out)
{
    size_t panel;
    must(quant_panel_bytes(format, cols, group, &panel));
    quant_formats[format]->decode_row(matrix + row / QUANT_PANEL_ROWS * panel,
                                      row % QUANT_PANEL_ROWS, cols, group, out);
}

/* f16 to f32 is exact: a normal number keeps its mantissa and moves its exponent by 112; a
 * subnormal is its mantissa times 2^-24, an exact product; exponent 31 stays "all ones". */
float quant_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 1023u;
    uint32_t bits;
    if (exponent == 0) {
        float magnitude = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &magnitude, sizeof bits);
        bits |= sign;
    } else if (exponent == 31) {
        bits = sign | 0x7f800000u | mantissa << 13;
    } else {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    }
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Integers only, so that no rounding mode and no flush-to-zero has a say. */
uint16_t quant_f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) // a NaN stays one, quiet
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    if (magnitude >= 0x477ff000u) // 65520 and more round to infinity
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x33000000u) // below 2^-25: to zero (2^-25 itself is a tie, to even, below)
        return sign;
    uint32_t exponent = magnitude >> 23, mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    /* Bits that fall off: 13 for normal results, more for subnormal ones. */
    uint32_t drop = exponent < 113 ? 126 - exponent : 13;
    uint32_t kept = mantissa >> drop, rest = mantissa & ((1u << drop) - 1), half = 1u << (drop - 1);
    kept += rest > half || (rest == half && (kept & 1u));
    /* A carry out of the mantissa runs into the exponent, which is what rounding up means. */
    uint32_t base = exponent < 113 ? 0 : (exponent - 113) << 10;
    return (uint16_t)(sign | (base + kept));
}

float quant_bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t quant_f32_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
