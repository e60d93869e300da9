/* int8 and int8-min panels.
 *
 * A float group becomes s * q with s = max|w| / 127 rounded to f16 and q = w / s to nearest. The
 * search that int4 does would gain nothing here: the step is 1/127 of the largest value. q stays
 * within +-127, although a source's -128 (q8_0) is stored as it is. `-min` comes from sources
 * alone. Values are stored plus 128. */
#include <math.h>
#include <string.h>

#include "quant/quant_internal.h"

#define INT8_HEADER_BYTES 64u
#define INT8_MIN_HEADER_BYTES 128u
#define INT8_OFFSET 128

static bool int8_fit_group(const float *w, uint32_t n, uint32_t row, uint32_t group, uint8_t *block)
{
    float largest = 0;
    for (uint32_t k = 0; k < n; k++)
        largest = fmaxf(largest, fabsf(w[k]));
    uint16_t scale = quant_f32_to_f16(largest / 127.0f);
    float s = quant_f16_to_f32(scale);
    if (isinf(s))
        return false;
    store_u16(block + 2 * row, scale);
    if (s == 0)
        return true; // all values stay at the zero point
    uint8_t *payload = block + INT8_HEADER_BYTES;
    for (uint32_t k = 0; k < n; k++) {
        float q = rintf(w[k] / s);
        q = fminf(fmaxf(q, -127.0f), 127.0f);
        payload[block_int8_at(row, k, group)] = (uint8_t)((int)q + INT8_OFFSET);
    }
    return true;
}

static bool int8_encode_panel(const float *w, size_t row_stride, uint32_t n_rows, uint32_t cols,
                              uint32_t group, const float *importance, uint8_t *panel)
{
    size_t block_bytes = block_int8_bytes(INT8_HEADER_BYTES, group);
    (void)importance; // the scale holds the largest value, whatever the others weigh
    for (uint32_t b = 0; b < block_count(cols, group); b++) {
        uint8_t *block = panel + b * block_bytes;
        uint32_t first = b * group, n = cols - first < group ? cols - first : group;
        memset(block, 0, INT8_HEADER_BYTES);
        memset(block + INT8_HEADER_BYTES, INT8_OFFSET, block_bytes - INT8_HEADER_BYTES);
        for (uint32_t row = 0; row < n_rows; row++)
            if (!int8_fit_group(w + row * row_stride + first, n, row, group, block))
                return false;
    }
    return true;
}

static void int8_decode_row(const uint8_t *panel, uint32_t row, uint32_t cols, uint32_t group,
                            float *out)
{
    size_t block_bytes = block_int8_bytes(INT8_HEADER_BYTES, group);
    for (uint32_t first = 0; first < cols; first += group, panel += block_bytes) {
        uint32_t n = cols - first < group ? cols - first : group;
        float s = block_scale(panel, row);
        const uint8_t *payload = panel + INT8_HEADER_BYTES;
        for (uint32_t k = 0; k < n; k++)
            out[first + k] = s * (float)(payload[block_int8_at(row, k, group)] - INT8_OFFSET);
    }
}

/* q * s is exact in f32 (8 and 11 bits), so product and sum round as fma(q, s, m) does. */
static void int8_min_decode_row(const uint8_t *panel, uint32_t row, uint32_t cols, uint32_t group,
                                float *out)
{
    size_t block_bytes = block_int8_bytes(INT8_MIN_HEADER_BYTES, group);
    for (uint32_t first = 0; first < cols; first += group, panel += block_bytes) {
        uint32_t n = cols - first < group ? cols - first : group;
        float s = block_scale(panel, row), m = block_minimum(panel, row);
        const uint8_t *payload = panel + INT8_MIN_HEADER_BYTES;
        for (uint32_t k = 0; k < n; k++)
            out[first + k] = s * (float)(payload[block_int8_at(row, k, group)] - INT8_OFFSET) + m;
    }
}

const struct quant_format_ops quant_format_int8 = {
    .name = "int8",
    .summary = "8-bit integers, a scale a group",
    .value_bits = 8,
    .header_bytes = INT8_HEADER_BYTES,
    .encode_panel = int8_encode_panel,
    .decode_row = int8_decode_row,
};

const struct quant_format_ops quant_format_int8_min = {
    .name = "int8-min",
    .summary = "8-bit integers, a scale and a minimum a group (from GGUF q5_1)",
    .value_bits = 8,
    .header_bytes = INT8_MIN_HEADER_BYTES,
    .decode_row = int8_min_decode_row,
};
