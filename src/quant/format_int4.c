/* int4, int4-asym and int4-min panels, and the fit that turns floats into the first two.
 *
 * The fit minimises sum v (w - s (q - z))^2 over a group, v being the importance of the columns (1
 * where none is given). For integers d = q - z once chosen, the best scale is s = sum v w d / sum v
 * d^2, and what it explains of sum v w^2 is (sum v w d)^2 / sum v d^2. So each candidate needs no
 * error sum: the largest explained part wins.
 *
 * Candidates of int4 (z = 8): the extreme value is put on -8, so that the longer side of the
 * integers serves the longer side of the values, and for the other sign on 8; each at steps that
 * are stretched by factors from 0.78 to 1.14: a smaller step clips the extreme and serves the many.
 * Candidates of int4-asym: the range (with 0 in it) over 15, stretched by the same factors, with
 * the zero points next to the one that it implies.
 *
 * The winner's scale is rounded to f16, the integers are chosen again for that scale, and the
 * result is compared with the plain candidate (factor 1) treated likewise, so that rounding never
 * makes the search worse than none. On Gaussian groups of 32 the squared error is three tenths
 * below that of max/7 (tests/quant/test_format_int4.c).
 *
 * Sums run in eight lanes in index order, so the result is the same on every machine. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "quant/quant_internal.h"

#define INT4_HEADER_BYTES 64u
#define INT4_WIDE_HEADER_BYTES 128u // -asym and -min
#define INT4_ZERO 8u
#define FIT_LANES 8u
#define GROUP_CAP 128u

/* Adding and taking away 1.5 * 2^23 rounds |x| < 2^22 to the nearest even integer. */
#define ROUND_MAGIC 12582912.0f

static const float fit_factors[] = { 1.0f,  0.78f, 0.82f, 0.86f, 0.90f, 0.93f,
                                     0.96f, 1.03f, 1.06f, 1.10f, 1.14f };
#define N_FACTORS (sizeof fit_factors / sizeof fit_factors[0])

struct fit_candidate {
    float inverse;   // integers are round(w * inverse) + zero, clamped to 0..15
    float zero;      // 0..16
    float scale;     // the best for those integers
    float explained; // of sum w^2
};

static float lanes_sum(const float lanes[FIT_LANES])
{
    float a = lanes[0] + lanes[4], b = lanes[1] + lanes[5], c = lanes[2] + lanes[6],
          d = lanes[3] + lanes[7];
    return (a + c) + (b + d);
}

static inline float fit_integer(float w, float inverse, float low, float high)
{
    float d = w * inverse;
    d = d < low ? low : d;
    d = d > high ? high : d;
    return (d + ROUND_MAGIC) - ROUND_MAGIC;
}

/* A group with its importance, padded with zeros to a multiple of the lanes. */
struct fit_group {
    float w[GROUP_CAP], v[GROUP_CAP];
    uint32_t n; // without the padding
};

static void fit_try(const struct fit_group *group, float inverse, float zero,
                    struct fit_candidate *best)
{
    float wd[FIT_LANES] = { 0 }, dd[FIT_LANES] = { 0 };
    float low = -zero, high = 15.0f - zero;
    for (uint32_t k = 0; k < group->n; k += FIT_LANES) {
        for (uint32_t lane = 0; lane < FIT_LANES; lane++) {
            float w = group->w[k + lane], d = fit_integer(w, inverse, low, high);
            float vd = group->v[k + lane] * d;
            wd[lane] += w * vd;
            dd[lane] += d * vd;
        }
    }
    float sum_wd = lanes_sum(wd), sum_dd = lanes_sum(dd);
    if (!(sum_dd > 0))
        return;
    float scale = sum_wd / sum_dd, explained = sum_wd * scale;
    if (explained > best->explained)
        *best = (struct fit_candidate){ inverse, zero, scale, explained };
}

/* The squared error of `scale` rounded to f16, with integers chosen for it; fills *fit. */
static double fit_settle(const struct fit_group *group, float scale, float zero,
                         struct group_fit *fit)
{
    fit->scale = quant_f32_to_f16(scale);
    fit->zero = (uint32_t)zero;
    float s = quant_f16_to_f32(fit->scale), inverse = s != 0 ? 1.0f / s : 0;
    double error = 0;
    for (uint32_t k = 0; k < group->n; k++) {
        float d = fit_integer(group->w[k], inverse, -zero, 15.0f - zero);
        fit->q[k] = (uint8_t)(d + zero);
        double miss = (double)group->w[k] - (double)(s * d);
        error += (double)group->v[k] * miss * miss;
    }
    return error;
}

/* A zero point of 16 leaves no nibble for 0 itself: a value there takes 15. */
static void fit_range(const struct fit_group *group, struct fit_candidate *plain,
                      struct fit_candidate *best)
{
    float low = 0, high = 0;
    for (uint32_t k = 0; k < group->n; k++) {
        low = fminf(low, group->w[k]);
        high = fmaxf(high, group->w[k]);
    }
    float step = high / 15.0f - low / 15.0f;
    for (size_t i = 0; i < N_FACTORS; i++) {
        float inverse = 1.0f / (step * fit_factors[i]);
        float middle = rintf(fminf(-low * inverse, 16.0f));
        for (float zero = fmaxf(middle - 1, 0); zero <= fminf(middle + 1, 16.0f); zero += 1)
            fit_try(group, inverse, zero, best);
        if (i == 0)
            *plain = (struct fit_candidate){ inverse, middle, step, 0 };
    }
}

static void fit_symmetric(const struct fit_group *group, float extreme, struct fit_candidate *plain,
                          struct fit_candidate *best)
{
    *plain = (struct fit_candidate){ -8.0f / extreme, INT4_ZERO, extreme / -8.0f, 0 };
    for (size_t i = 0; i < N_FACTORS; i++) {
        float inverse = 8.0f / (extreme * fit_factors[i]);
        fit_try(group, -inverse, INT4_ZERO, best);
        fit_try(group, inverse, INT4_ZERO, best);
    }
}

bool group_fit_int4(const float *w, const float *importance, uint32_t n, bool any_zero,
                    struct group_fit *fit)
{
    struct fit_group group = { .n = n };
    float extreme = 0;
    for (uint32_t k = 0; k < n; k++) {
        group.w[k] = w[k];
        group.v[k] = importance ? importance[k] : 1.0f;
        extreme = fabsf(w[k]) > fabsf(extreme) ? w[k] : extreme;
    }
    *fit = (struct group_fit){ .zero = INT4_ZERO };
    memset(fit->q, INT4_ZERO, sizeof fit->q);
    /* Values whose steps an f16 cannot hold are zero; those whose inverse overflows among them. */
    if (fabsf(extreme) < 0x1p-25f)
        return true;
    if (fabsf(extreme) > 8.0f * 65504.0f)
        return false;
    struct fit_candidate plain, best = { .explained = -1 };
    if (any_zero)
        fit_range(&group, &plain, &best);
    else
        fit_symmetric(&group, extreme, &plain, &best);
    struct group_fit fitted = *fit;
    double plain_error = fit_settle(&group, plain.scale, plain.zero, fit);
    double fitted_error =
        best.explained > 0 ? fit_settle(&group, best.scale, best.zero, &fitted) : DBL_MAX;
    if (fitted_error < plain_error)
        *fit = fitted;
    return (fit->scale & 0x7fffu) < 0x7c00u;
}

static bool encode_panel(const float *w, size_t row_stride, uint32_t n_rows, uint32_t cols,
                         uint32_t group, const float *importance, bool any_zero, uint8_t *panel)
{
    uint32_t header = any_zero ? INT4_WIDE_HEADER_BYTES : INT4_HEADER_BYTES;
    size_t block_bytes = block_int4_bytes(header, group);
    for (uint32_t b = 0; b < block_count(cols, group); b++) {
        uint8_t *block = panel + b * block_bytes;
        uint32_t first = b * group, n = cols - first < group ? cols - first : group;
        memset(block, 0, header);
        memset(block + header, INT4_ZERO << 4 | INT4_ZERO, block_bytes - header);
        for (uint32_t row = 0; row < n_rows; row++) {
            struct group_fit fit;
            if (!group_fit_int4(w + row * row_stride + first,
                                importance ? importance + first : NULL, n, any_zero, &fit))
                return false;
            store_u16(block + 2 * row, fit.scale);
            if (any_zero)
                block[BLOCK_MINIMA_OFFSET + row] = (uint8_t)fit.zero;
            for (uint32_t k = 0; k < n; k++)
                block_put_int4(block + header, row, k, group, fit.q[k]);
            for (uint32_t k = n; k < group; k++)
                block_put_int4(block + header, row, k, group, fit.zero < 15 ? fit.zero : 15);
        }
    }
    return true;
}

static bool int4_encode_panel(const float *w, size_t row_stride, uint32_t n_rows, uint32_t cols,
                              uint32_t group, const float *importance, uint8_t *panel)
{
    return encode_panel(w, row_stride, n_rows, cols, group, importance, false, panel);
}

static bool int4_asym_encode_panel(const float *w, size_t row_stride, uint32_t n_rows,
                                   uint32_t cols, uint32_t group, const float *importance,
                                   uint8_t *panel)
{
    return encode_panel(w, row_stride, n_rows, cols, group, importance, true, panel);
}

static void int4_decode_row(const uint8_t *panel, uint32_t row, uint32_t cols, uint32_t group,
                            float *out)
{
    size_t block_bytes = block_int4_bytes(INT4_HEADER_BYTES, group);
    for (uint32_t first = 0; first < cols; first += group, panel += block_bytes) {
        uint32_t n = cols - first < group ? cols - first : group;
        float s = block_scale(panel, row);
        for (uint32_t k = 0; k < n; k++) {
            int q = (int)block_int4(panel + INT4_HEADER_BYTES, row, k, group);
            out[first + k] = s * (float)(q - (int)INT4_ZERO);
        }
    }
}

static void int4_asym_decode_row(const uint8_t *panel, uint32_t row, uint32_t cols, uint32_t group,
                                 float *out)
{
    size_t block_bytes = block_int4_bytes(INT4_WIDE_HEADER_BYTES, group);
    for (uint32_t first = 0; first < cols; first += group, panel += block_bytes) {
        uint32_t n = cols - first < group ? cols - first : group;
        float s = block_scale(panel, row);
        int z = panel[BLOCK_MINIMA_OFFSET + row];
        for (uint32_t k = 0; k < n; k++) {
            int q = (int)block_int4(panel + INT4_WIDE_HEADER_BYTES, row, k, group);
            out[first + k] = s * (float)(q - z);
        }
    }
}

/* q * s is exact in f32 (4 and 11 bits), so product and sum round as fma(q, s, m) does. */
static void int4_min_decode_row(const uint8_t *panel, uint32_t row, uint32_t cols, uint32_t group,
                                float *out)
{
    size_t block_bytes = block_int4_bytes(INT4_WIDE_HEADER_BYTES, group);
    for (uint32_t first = 0; first < cols; first += group, panel += block_bytes) {
        uint32_t n = cols - first < group ? cols - first : group;
        float s = block_scale(panel, row), m = block_minimum(panel, row);
        for (uint32_t k = 0; k < n; k++) {
            float q = (float)block_int4(panel + INT4_WIDE_HEADER_BYTES, row, k, group);
            out[first + k] = s * q + m;
        }
    }
}

const struct quant_format_ops quant_format_int4 = {
    .name = "int4",
    .summary = "4-bit integers, a scale a group",
    .value_bits = 4,
    .header_bytes = INT4_HEADER_BYTES,
    .encode_panel = int4_encode_panel,
    .decode_row = int4_decode_row,
};

const struct quant_format_ops quant_format_int4_asym = {
    .name = "int4-asym",
    .summary = "4-bit integers, a scale and a zero point a group",
    .value_bits = 4,
    .header_bytes = INT4_WIDE_HEADER_BYTES,
    .encode_panel = int4_asym_encode_panel,
    .decode_row = int4_asym_decode_row,
};

const struct quant_format_ops quant_format_int4_min = {
    .name = "int4-min",
    .summary = "4-bit integers, a scale and a minimum a group (from GGUF q4_1)",
    .value_bits = 4,
    .header_bytes = INT4_WIDE_HEADER_BYTES,
    .decode_row = int4_min_decode_row,
};
