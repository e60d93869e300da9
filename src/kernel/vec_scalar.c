/* Vector operations in plain C: the definition that the other rungs are held to. Reductions keep
 * the 16 lanes that the widest register has (docs/numerics.md, rule 4). */
#include <math.h>
#include <stddef.h>

#include "kernel/fmath.h"
#include "kernel/kernel_internal.h"

enum { LANES = 16 };

static float sum_lanes(float *lanes)
{
    for (uint32_t width = LANES / 2; width >= 1; width /= 2) {
        for (uint32_t i = 0; i < width; i++)
            lanes[i] += lanes[i + width];
    }
    return lanes[0];
}

static void rmsnorm(const float *x, const float *weight, uint32_t n, float epsilon, float *out)
{
    float lanes[LANES] = { 0 };
    for (uint32_t i = 0; i < n; i++)
        lanes[i % LANES] = fmaf(x[i], x[i], lanes[i % LANES]);
    const float factor = 1.0f / sqrtf(sum_lanes(lanes) / (float)n + epsilon);
    for (uint32_t i = 0; i < n; i++)
        out[i] = weight ? x[i] * factor * weight[i] : x[i] * factor;
}

static void add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

static void silu_mul(const float *gate, const float *up, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = fmath_silu(gate[i]) * up[i];
}

static void rope(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t rotary, const float *cos,
                 const float *sin)
{
    const uint32_t half = rotary / 2;
    for (uint32_t head = 0; head < n_heads; head++) {
        float *const a = x + (size_t)head * head_dim, *const b = a + half;
        for (uint32_t i = 0; i < half; i++) {
            const float u = a[i], v = b[i];
            a[i] = fmaf(-v, sin[i], u * cos[i]);
            b[i] = fmaf(u, sin[i], v * cos[i]);
        }
    }
}

static bool argmax(const float *x, size_t n, uint32_t *index)
{
    size_t best = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i]))
            return false;
        if (x[i] > x[best])
            best = i;
    }
    if (n == 0)
        return false;
    *index = (uint32_t)best;
    return true;
}

static float exp_sum(const float *x, size_t n, float shift, float *out)
{
    float lanes[LANES] = { 0 };
    for (size_t i = 0; i < n; i++) {
        const float e = fmath_exp(x[i] - shift);
        lanes[i % LANES] += e;
        if (out)
            out[i] = e;
    }
    return sum_lanes(lanes);
}

const struct vec_ops vec_scalar = {
    .rmsnorm = rmsnorm,
    .add = add,
    .silu_mul = silu_mul,
    .rope = rope,
    .argmax = argmax,
    .exp_sum = exp_sum,
};
