/* Vector operations, 8 values an instruction; the 16 lanes of rule 4 are two registers. Ends are
 * masked, so nothing outside a vector is read or written. */
#include <immintrin.h>
#include <math.h>

#include "kernel/fmath_avx2.h"
#include "kernel/kernel_internal.h"

enum { WIDTH = 8, LANES = 16 };

static void rmsnorm(const float *x, const float *weight, uint32_t n, float epsilon, float *out)
{
    __m256 low = _mm256_setzero_ps(), high = low;
    for (uint32_t i = 0; i < n; i += LANES) {
        const __m256 a = load8(x + i, n - i);
        const __m256 b = i + WIDTH < n ? load8(x + i + WIDTH, n - i - WIDTH) : _mm256_setzero_ps();
        low = _mm256_fmadd_ps(a, a, low);
        high = _mm256_fmadd_ps(b, b, high);
    }
    const float factor = 1.0f / sqrtf(sum16(low, high) / (float)n + epsilon);
    const __m256 factors = _mm256_set1_ps(factor);
    for (uint32_t i = 0; i < n; i += WIDTH) {
        __m256 v = _mm256_mul_ps(load8(x + i, n - i), factors);
        if (weight)
            v = _mm256_mul_ps(v, load8(weight + i, n - i));
        store8(out + i, n - i, v);
    }
}

static void add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i += WIDTH)
        store8(x + i, n - i, _mm256_add_ps(load8(x + i, n - i), load8(y + i, n - i)));
}

static void silu_mul(const float *gate, const float *up, size_t n, float *out)
{
    for (size_t i = 0; i < n; i += WIDTH) {
        const __m256 g = load8(gate + i, n - i);
        store8(out + i, n - i, _mm256_mul_ps(silu8(g), load8(up + i, n - i)));
    }
}

static void rope(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t rotary, const float *cos,
                 const float *sin)
{
    const uint32_t half = rotary / 2;
    for (uint32_t head = 0; head < n_heads; head++) {
        float *const a = x + (size_t)head * head_dim, *const b = a + half;
        for (uint32_t i = 0; i < half; i += WIDTH) {
            const size_t left = half - i;
            const __m256 c = load8(cos + i, left), s = load8(sin + i, left);
            const __m256 u = load8(a + i, left), v = load8(b + i, left);
            store8(a + i, left, _mm256_fnmadd_ps(v, s, _mm256_mul_ps(u, c)));
            store8(b + i, left, _mm256_fmadd_ps(u, s, _mm256_mul_ps(v, c)));
        }
    }
}

/* The next 8 values, -infinity from the end on. */
static __m256 load_or_least(const float *x, size_t left)
{
    const __m256 v = load8(x, left);
    const __m256 least = _mm256_set1_ps(-INFINITY);
    return left >= WIDTH ? v : _mm256_blendv_ps(least, v, _mm256_castsi256_ps(mask8(left)));
}

/* One pass for the maximum and for NaNs, a second one that stops at the first place that holds it.
 */
static bool argmax(const float *x, size_t n, uint32_t *index)
{
    __m256 largest = _mm256_set1_ps(-INFINITY), bad = _mm256_setzero_ps();
    for (size_t i = 0; i < n; i += WIDTH) {
        const __m256 v = load_or_least(x + i, n - i);
        bad = _mm256_or_ps(bad, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        largest = _mm256_max_ps(largest, v);
    }
    if (n == 0 || _mm256_movemask_ps(bad))
        return false;
    const __m256 wanted = _mm256_set1_ps(max8(largest));
    for (size_t i = 0; i < n; i += WIDTH) {
        const __m256 v = load_or_least(x + i, n - i);
        const int hit = _mm256_movemask_ps(_mm256_cmp_ps(v, wanted, _CMP_EQ_OQ));
        if (hit) {
            *index = (uint32_t)i + (uint32_t)__builtin_ctz((unsigned)hit);
            break;
        }
    }
    return true;
}

static float exp_sum(const float *x, size_t n, float shift, float *out)
{
    const __m256 shifts = _mm256_set1_ps(shift);
    __m256 lanes[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() };
    for (size_t i = 0; i < n; i += WIDTH) {
        const size_t left = n - i;
        __m256 e = exp8(_mm256_sub_ps(load8(x + i, left), shifts));
        if (left < WIDTH)
            e = _mm256_and_ps(e, _mm256_castsi256_ps(mask8(left)));
        lanes[i / WIDTH % 2] = _mm256_add_ps(lanes[i / WIDTH % 2], e);
        if (out)
            store8(out + i, left, e);
    }
    return sum16(lanes[0], lanes[1]);
}

const struct vec_ops vec_avx2 = {
    .rmsnorm = rmsnorm,
    .add = add,
    .silu_mul = silu_mul,
    .rope = rope,
    .argmax = argmax,
    .exp_sum = exp_sum,
};
