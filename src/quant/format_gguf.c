/* GGUF's simple blocks of 32 values, decoded and permuted into panels.
 *
 * Each has an exact twin among the panel formats, so a panel holds the very bits of the file:
 * scales and minima are copied, integers are moved (and their stored offset changed), nothing is
 * rounded. Nibbles: low ones are values 0..15, high ones 16..31. The kinds:
 *   - q4_0: d, 16 bytes of nibbles; w = d (q - 8)
 *   - q4_1: d, m, 16 bytes of nibbles; w = d q + m
 *   - q5_0: d, 32 fifth bits, 16 bytes of nibbles; w = d (q - 16)
 *   - q5_1: d, m, 32 fifth bits, 16 bytes of nibbles; w = d q + m
 *   - q8_0: d, 32 signed bytes; w = d q
 *
 * d q is exact in f32 (at most 8 and 11 bits), so decoding rounds once at most, as fma does. */
#include <string.h>

#include "quant/quant_internal.h"

#define BLOCK_VALUES 32u
#define Q4_0_BYTES 18u
#define Q4_1_BYTES 20u
#define Q5_0_BYTES 22u
#define Q5_1_BYTES 24u
#define Q8_0_BYTES 34u

static inline uint32_t low_bits(const uint8_t *nibbles, uint32_t k)
{
    return k < 16 ? nibbles[k] & 15u : nibbles[k - 16] >> 4;
}

static inline uint32_t five_bits(const uint8_t *fifth, uint32_t k)
{
    return low_bits(fifth + 4, k) | (fifth[k / 8] >> (k % 8) & 1u) << 4;
}

static void q4_0_decode_row(const uint8_t *row, uint32_t cols, float *out)
{
    for (; cols; cols -= BLOCK_VALUES, row += Q4_0_BYTES, out += BLOCK_VALUES) {
        float d = quant_f16_to_f32(load_u16(row));
        for (uint32_t k = 0; k < BLOCK_VALUES; k++)
            out[k] = d * (float)((int)low_bits(row + 2, k) - 8);
    }
}

static void q4_1_decode_row(const uint8_t *row, uint32_t cols, float *out)
{
    for (; cols; cols -= BLOCK_VALUES, row += Q4_1_BYTES, out += BLOCK_VALUES) {
        float d = quant_f16_to_f32(load_u16(row)), m = quant_f16_to_f32(load_u16(row + 2));
        for (uint32_t k = 0; k < BLOCK_VALUES; k++)
            out[k] = d * (float)low_bits(row + 4, k) + m;
    }
}

static void q5_0_decode_row(const uint8_t *row, uint32_t cols, float *out)
{
    for (; cols; cols -= BLOCK_VALUES, row += Q5_0_BYTES, out += BLOCK_VALUES) {
        float d = quant_f16_to_f32(load_u16(row));
        for (uint32_t k = 0; k < BLOCK_VALUES; k++)
            out[k] = d * (float)((int)five_bits(row + 2, k) - 16);
    }
}

static void q5_1_decode_row(const uint8_t *row, uint32_t cols, float *out)
{
    for (; cols; cols -= BLOCK_VALUES, row += Q5_1_BYTES, out += BLOCK_VALUES) {
        float d = quant_f16_to_f32(load_u16(row)), m = quant_f16_to_f32(load_u16(row + 2));
        for (uint32_t k = 0; k < BLOCK_VALUES; k++)
            out[k] = d * (float)five_bits(row + 4, k) + m;
    }
}

static void q8_0_decode_row(const uint8_t *row, uint32_t cols, float *out)
{
    for (; cols; cols -= BLOCK_VALUES, row += Q8_0_BYTES, out += BLOCK_VALUES) {
        float d = quant_f16_to_f32(load_u16(row));
        for (uint32_t k = 0; k < BLOCK_VALUES; k++)
            out[k] = d * (float)(int8_t)row[2 + k];
    }
}

/* The stored integer of value k of a block whose scales (and minimum) are `skip` bytes. */
typedef uint32_t block_value(const uint8_t *values, uint32_t k);

static uint32_t q4_value(const uint8_t *values, uint32_t k)
{
    return low_bits(values, k);
}

static uint32_t q5_0_value(const uint8_t *values, uint32_t k)
{
    return five_bits(values, k) + 128 - 16;
}

static uint32_t q5_1_value(const uint8_t *values, uint32_t k)
{
    return five_bits(values, k) + 128;
}

static uint32_t q8_0_value(const uint8_t *values, uint32_t k)
{
    return values[k] ^ 0x80u; // two's complement plus 128
}

struct repack {
    uint32_t source_bytes; // of a source block
    uint32_t header_bytes; // of a panel's block
    uint32_t value_bits;   // 4 or 8
    block_value *value;
};

static void repack(const struct repack *how, const uint8_t *const *rows, uint32_t n_rows,
                   uint32_t cols, uint8_t *panel)
{
    bool has_minimum = how->header_bytes > BLOCK_MINIMA_OFFSET;
    uint32_t skip = has_minimum ? 4 : 2, zero = how->value_bits == 4 ? 0x88u : 0x80u;
    size_t payload_bytes = (size_t)BLOCK_VALUES * QUANT_PANEL_ROWS * how->value_bits / 8;
    for (uint32_t b = 0; b < cols / BLOCK_VALUES; b++) {
        uint8_t *payload = panel + how->header_bytes;
        memset(panel, 0, how->header_bytes);
        memset(payload, (int)zero, payload_bytes);
        for (uint32_t row = 0; row < n_rows; row++) {
            const uint8_t *block = rows[row] + (size_t)b * how->source_bytes;
            memcpy(panel + 2 * row, block, 2);
            if (has_minimum)
                memcpy(panel + BLOCK_MINIMA_OFFSET + 2 * row, block + 2, 2);
            for (uint32_t k = 0; k < BLOCK_VALUES; k++) {
                uint32_t q = how->value(block + skip, k);
                if (how->value_bits == 4)
                    block_put_int4(payload, row, k, BLOCK_VALUES, q);
                else
                    payload[block_int8_at(row, k, BLOCK_VALUES)] = (uint8_t)q;
            }
        }
        panel = payload + payload_bytes;
    }
}

static void q4_0_repack(const uint8_t *const *rows, uint32_t n_rows, uint32_t cols, uint8_t *panel)
{
    repack(&(struct repack){ Q4_0_BYTES, 64, 4, q4_value }, rows, n_rows, cols, panel);
}

static void q4_1_repack(const uint8_t *const *rows, uint32_t n_rows, uint32_t cols, uint8_t *panel)
{
    repack(&(struct repack){ Q4_1_BYTES, 128, 4, q4_value }, rows, n_rows, cols, panel);
}

static void q5_0_repack(const uint8_t *const *rows, uint32_t n_rows, uint32_t cols, uint8_t *panel)
{
    repack(&(struct repack){ Q5_0_BYTES, 64, 8, q5_0_value }, rows, n_rows, cols, panel);
}

static void q5_1_repack(const uint8_t *const *rows, uint32_t n_rows, uint32_t cols, uint8_t *panel)
{
    repack(&(struct repack){ Q5_1_BYTES, 128, 8, q5_1_value }, rows, n_rows, cols, panel);
}

static void q8_0_repack(const uint8_t *const *rows, uint32_t n_rows, uint32_t cols, uint8_t *panel)
{
    repack(&(struct repack){ Q8_0_BYTES, 64, 8, q8_0_value }, rows, n_rows, cols, panel);
}

const struct quant_source_ops quant_source_q4_0 = {
    .name = "q4_0",
    .block_values = BLOCK_VALUES,
    .block_bytes = Q4_0_BYTES,
    .exact_format = QUANT_INT4,
    .exact_group = BLOCK_VALUES,
    .decode_row = q4_0_decode_row,
    .repack_panel = q4_0_repack,
};
const struct quant_source_ops quant_source_q4_1 = {
    .name = "q4_1",
    .block_values = BLOCK_VALUES,
    .block_bytes = Q4_1_BYTES,
    .exact_format = QUANT_INT4_MIN,
    .exact_group = BLOCK_VALUES,
    .decode_row = q4_1_decode_row,
    .repack_panel = q4_1_repack,
};
const struct quant_source_ops quant_source_q5_0 = {
    .name = "q5_0",
    .block_values = BLOCK_VALUES,
    .block_bytes = Q5_0_BYTES,
    .exact_format = QUANT_INT8,
    .exact_group = BLOCK_VALUES,
    .decode_row = q5_0_decode_row,
    .repack_panel = q5_0_repack,
};
const struct quant_source_ops quant_source_q5_1 = {
    .name = "q5_1",
    .block_values = BLOCK_VALUES,
    .block_bytes = Q5_1_BYTES,
    .exact_format = QUANT_INT8_MIN,
    .exact_group = BLOCK_VALUES,
    .decode_row = q5_1_decode_row,
    .repack_panel = q5_1_repack,
};
const struct quant_source_ops quant_source_q8_0 = {
    .name = "q8_0",
    .block_values = BLOCK_VALUES,
    .block_bytes = Q8_0_BYTES,
    .exact_format = QUANT_INT8,
    .exact_group = BLOCK_VALUES,
    .decode_row = q8_0_decode_row,
    .repack_panel = q8_0_repack,
};
