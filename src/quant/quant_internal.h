/* How values lie inside a block: shared by the format files of this folder.
 *
 * A block is a header (32 scales, then what the format adds) and a payload of two half-panels of 16
 * rows. A half is lines of 64 bytes; byte 4r + t of a line belongs to row r. */
#ifndef CASCADIA_QUANT_QUANT_INTERNAL_H
#define CASCADIA_QUANT_QUANT_INTERNAL_H

#include "quant/quant.h"

#include <string.h>

#define BLOCK_MINIMA_OFFSET 64u // of f16 minima (-min) and u8 zero points (-asym) in a header

/* Byte in an int4 payload of value k (0..group-1) of a row; its nibble is high when k & 4. */
static inline size_t block_int4_at(uint32_t row, uint32_t k, uint32_t group)
{
    return (size_t)(row / 16) * group * 8 + (size_t)(k / 8) * 64 + 4 * (row % 16) + k % 4;
}

/* Byte in an int8 payload. */
static inline size_t block_int8_at(uint32_t row, uint32_t k, uint32_t group)
{
    return (size_t)(row / 16) * group * 16 + (size_t)(k / 4) * 64 + 4 * (row % 16) + k % 4;
}

static inline size_t block_int4_bytes(uint32_t header_bytes, uint32_t group)
{
    return header_bytes + (size_t)group * 16;
}

static inline size_t block_int8_bytes(uint32_t header_bytes, uint32_t group)
{
    return header_bytes + (size_t)group * 32;
}

static inline uint32_t block_count(uint32_t cols, uint32_t group)
{
    return cols / group + (cols % group != 0);
}

static inline void block_put_int4(uint8_t *payload, uint32_t row, uint32_t k, uint32_t group,
                                  uint32_t q)
{
    uint8_t *byte = payload + block_int4_at(row, k, group);
    uint32_t shift = (k & 4) ? 4 : 0;
    *byte = (uint8_t)((*byte & (0xf0u >> shift)) | (q << shift));
}

static inline uint32_t block_int4(const uint8_t *payload, uint32_t row, uint32_t k, uint32_t group)
{
    return (payload[block_int4_at(row, k, group)] >> ((k & 4) ? 4 : 0)) & 15u;
}

static inline uint16_t load_u16(const uint8_t *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static inline void store_u16(uint8_t *bytes, uint16_t value)
{
    bytes[0] = (uint8_t)value;
    bytes[1] = (uint8_t)(value >> 8);
}

static inline float block_scale(const uint8_t *block, uint32_t row)
{
    return quant_f16_to_f32(load_u16(block + 2 * row));
}

static inline float block_minimum(const uint8_t *block, uint32_t row)
{
    return quant_f16_to_f32(load_u16(block + BLOCK_MINIMA_OFFSET + 2 * row));
}

/* A scale and the integers that a group of floats becomes. */
struct group_fit {
    uint16_t scale; // f16
    uint32_t zero;  // q = zero means 0
    uint8_t q[128];
};

/* int4: fits w[n] (n 1..128, finite) by least squares, importance[n] weighing them (NULL: all
 * alike); see format_int4.c. `any_zero`: the zero point is free in 0..16, else 8. False: the scale
 * is too large for f16. */
bool group_fit_int4(const float *w, const float *importance, uint32_t n, bool any_zero,
                    struct group_fit *fit);

extern const struct quant_format_ops quant_format_f32, quant_format_f16, quant_format_bf16;
extern const struct quant_format_ops quant_format_int8, quant_format_int8_min;
extern const struct quant_format_ops quant_format_int4, quant_format_int4_asym,
    quant_format_int4_min;

extern const struct quant_source_ops quant_source_f32, quant_source_f16, quant_source_bf16,
    quant_source_f64, quant_source_f8_e4m3, quant_source_f8_e5m2;
extern const struct quant_source_ops quant_source_q4_0, quant_source_q4_1, quant_source_q5_0,
    quant_source_q5_1, quant_source_q8_0;

#endif
