/* Vector operations, 16 values an instruction; the lanes of rule 4 are those of one register. Ends
 * are masked, so nothing outside a vector is read or written. */
#include <immintrin.h>
#include <math.h>

#include "kernel/fmath_avx512.h"
#include "kernel/kernel_internal.h"

enum { LANES = 16 };

static void rmsnorm(const float *x, const float *weight, uint32_t n, float epsilon, float *out)
{
    __m512 lanes = _mm512_setzero_ps();
    for (uint32_t i = 0; i < n; i += LANES) {
        const __m512 v = _mm512_maskz_loadu_ps(mask16(n - i), x + i);
        lanes = _mm512_fmadd_ps(v, v, lanes);
    }
    const float factor = 1.0f / sqrtf(sum16(lanes) / (float)n + epsilon);
    const __m512 factors = _mm512_set1_ps(factor);
    for (uint32_t i = 0; i < n; i += LANES) {
        const __mmask16 mask = mask16(n - i);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), factors);
        if (weight)
            v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(mask, weight + i));
        _mm512_mask_storeu_ps(out + i, mask, v);
    }
}

static void add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        const __mmask16 mask = mask16(n - i);
        const __m512 sum =
            _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x + i), _mm512_maskz_loadu_ps(mask, y + i));
        _mm512_mask_storeu_ps(x + i, mask, sum);
    }
}

static void silu_mul(const float *gate, const float *up, size_t n, float *out)
{
    for (size_t i = 0; i < n; i += LANES) {
        const __mmask16 mask = mask16(n - i);
        const __m512 g = _mm512_maskz_loadu_ps(mask, gate + i);
        const __m512 u = _mm512_maskz_loadu_ps(mask, up + i);
        _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(silu16(g), u));
    }
}

static void rope(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t rotary, const float *cos,
                 const float *sin)
{
    const uint32_t half = rotary / 2;
    for (uint32_t head = 0; head < n_heads; head++) {
        float *const a = x + (size_t)head * head_dim, *const b = a + half;
        for (uint32_t i = 0; i < half; i += LANES) {
            const __mmask16 mask = mask16(half - i);
            const __m512 c = _mm512_maskz_loadu_ps(mask, cos + i);
            const __m512 s = _mm512_maskz_loadu_ps(mask, sin + i);
            const __m512 u = _mm512_maskz_loadu_ps(mask, a + i);
            const __m512 v = _mm512_maskz_loadu_ps(mask, b + i);
            _mm512_mask_storeu_ps(a + i, mask, _mm512_fnmadd_ps(v, s, _mm512_mul_ps(u, c)));
            _mm512_mask_storeu_ps(b + i, mask, _mm512_fmadd_ps(u, s, _mm512_mul_ps(v, c)));
        }
    }
}

/* One pass for the maximum and for NaNs, a second one that stops at the first place that holds it.
 */
static bool argmax(const float *x, size_t n, uint32_t *index)
{
    __m512 largest = _mm512_set1_ps(-INFINITY);
    __mmask16 bad = 0;
    for (size_t i = 0; i < n; i += LANES) {
        const __mmask16 mask = mask16(n - i);
        const __m512 v = _mm512_mask_loadu_ps(largest, mask, x + i);
        bad |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        largest = _mm512_max_ps(largest, v);
    }
    if (n == 0 || bad)
        return false;
    const __m512 wanted = _mm512_set1_ps(_mm512_reduce_max_ps(largest));
    for (size_t i = 0; i < n; i += LANES) {
        const __mmask16 mask = mask16(n - i);
        const __mmask16 hit =
            _mm512_mask_cmp_ps_mask(mask, _mm512_maskz_loadu_ps(mask, x + i), wanted, _CMP_EQ_OQ);
        if (hit) {
            *index = (uint32_t)i + (uint32_t)__builtin_ctz(hit);
            break;
        }
    }
    return true;
}

static float exp_sum(const float *x, size_t n, float shift, float *out)
{
    const __m512 shifts = _mm512_set1_ps(shift);
    __m512 lanes = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += LANES) {
        const __mmask16 mask = mask16(n - i);
        const __m512 e = exp16(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), shifts));
        lanes = _mm512_mask_add_ps(lanes, mask, lanes, e);
        if (out)
            _mm512_mask_storeu_ps(out + i, mask, e);
    }
    return sum16(lanes);
}

const struct vec_ops vec_avx512 = {
    .rmsnorm = rmsnorm,
    .add = add,
    .silu_mul = silu_mul,
    .rope = rope,
    .argmax = argmax,
    .exp_sum = exp_sum,
};
