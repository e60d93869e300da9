/* The table of weight formats: what a format is called, how its bytes lie, how values go in and
 * out.
 *
 * A matrix w[rows][cols] is stored as panels of 32 rows, full k; a panel is a run of blocks of
 * 32 rows x one group in k order (docs/shard-format.md). Quantised blocks are header then payload,
 * multiples of 64 bytes. Float panels are [cols][32], rows interleaved k by k, padded with zeros.
 * Everything here is scalar and exact; speed lives in kernel/. Any thread. */
#ifndef CASCADIA_QUANT_QUANT_H
#define CASCADIA_QUANT_QUANT_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QUANT_PANEL_ROWS 32u

enum quant_format {
    QUANT_F32,
    QUANT_F16,
    QUANT_BF16,
    QUANT_INT8,      // w = s * q,         q in -128..127 stored + 128
    QUANT_INT8_MIN,  // w = fma(q, s, m)
    QUANT_INT4,      // w = s * (q - 8),   q in 0..15
    QUANT_INT4_ASYM, // w = s * (q - z),   z in 0..16
    QUANT_INT4_MIN,  // w = fma(q, s, m),  q in 0..15
    QUANT_FORMAT_COUNT,
};

/* How values lie in a source file's row-major rows. */
enum quant_source {
    QUANT_SOURCE_F32,
    QUANT_SOURCE_F16,
    QUANT_SOURCE_BF16,
    QUANT_SOURCE_Q4_0, // GGUF blocks of 32
    QUANT_SOURCE_Q4_1,
    QUANT_SOURCE_Q5_0,
    QUANT_SOURCE_Q5_1,
    QUANT_SOURCE_Q8_0,
    QUANT_SOURCE_F64, // rounded to f32 when read
    QUANT_SOURCE_F8_E4M3,
    QUANT_SOURCE_F8_E5M2,
    QUANT_SOURCE_COUNT,
};

struct quant_format_ops {
    const char *name; // "int4-min": in manifests and options
    const char *summary;
    uint32_t value_bits;   // of one stored value: 4, 8, 16, 32
    uint32_t header_bytes; // of a block; 0 for floats
    bool is_float;         // no groups: group is 0
    /* One panel of w[n_rows][cols] (row stride in floats, finite), n_rows 1..32; rows past n_rows
     * are padding. importance[cols] is what the squared error of a column is multiplied with (not
     * negative), for the formats that minimise it; NULL: all alike. `panel` has quant_panel_bytes,
     * all are written. False: a value or a group's
     * scale is too large for the format. NULL for formats that only a quantised source fills
     * (-min). */
    bool (*encode_panel)(const float *w, size_t row_stride, uint32_t n_rows, uint32_t cols,
                         uint32_t group, const float *importance, uint8_t *panel);
    /* The f32 values that one row (0..31) of a panel means: out[cols]. */
    void (*decode_row)(const uint8_t *panel, uint32_t row, uint32_t cols, uint32_t group,
                       float *out);
};

extern const struct quant_format_ops *const quant_formats[QUANT_FORMAT_COUNT];

struct quant_source_ops {
    const char *name;                   // "q4_1"
    uint32_t block_values, block_bytes; // 1 and 4 for f32
    enum quant_format exact_format;     // the panel format that holds its values exactly
    uint32_t exact_group;               // its group; 0 for floats
    /* cols values of one row to f32: exactly what the source means. cols is whole blocks. */
    void (*decode_row)(const uint8_t *row, uint32_t cols, float *out);
    /* One panel of exact_format by permutation, no arithmetic on values: rows[i] is row i's bytes,
     * n_rows 1..32, cols whole blocks. NULL for float sources (decode and encode do it exactly). */
    void (*repack_panel)(const uint8_t *const *rows, uint32_t n_rows, uint32_t cols,
                         uint8_t *panel);
};

extern const struct quant_source_ops *const quant_sources[QUANT_SOURCE_COUNT];

/* By name ("fp16" is taken for f16, "fp32" for f32). ERR_ARGUMENT lists the names there are. */
bool quant_format_find(struct str name, enum quant_format *out, struct err *err);

/* Sizes; groups: 0 for floats, else 32, 64 or 128. False on overflow or a group that is not one. */
bool quant_panel_bytes(enum quant_format format, uint32_t cols, uint32_t group, size_t *out);
bool quant_matrix_bytes(enum quant_format format, uint32_t rows, uint32_t cols, uint32_t group,
                        size_t *out);

/* The f32 values that a panel means: out[n_rows][cols], row stride in floats. */
void quant_decode_panel(enum quant_format format, const uint8_t *panel, uint32_t n_rows,
                        uint32_t cols, uint32_t group, float *out, size_t row_stride);
/* One row of a matrix of panels: out[cols]. */
void quant_decode_matrix_row(enum quant_format format, const uint8_t *matrix, uint32_t row,
                             uint32_t cols, uint32_t group, float *out);

/* Scalar conversions, exact: f16 keeps subnormals, rounding is to nearest even. */
float quant_f16_to_f32(uint16_t h);
uint16_t quant_f32_to_f16(float f);
float quant_bf16_to_f32(uint16_t h);
uint16_t quant_f32_to_bf16(float f);

#endif
