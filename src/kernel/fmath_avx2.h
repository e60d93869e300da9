/* fmath.c's functions on 8 values, step by step the same, the tree of rule 4, and vectors that end
 * early. */
#ifndef CASCADIA_KERNEL_FMATH_AVX2_H
#define CASCADIA_KERNEL_FMATH_AVX2_H

#include "kernel/kernel_internal.h"

#ifdef __AVX2__ // the file that includes this is built for it

#include <immintrin.h>

static inline __m256 exp8(__m256 x)
{
    /* vminps gives its second operand when one is NaN: a NaN stays. */
    const __m256 c = _mm256_min_ps(_mm256_set1_ps(EXP_MAX), x);
    const __m256 round = _mm256_set1_ps(EXP_ROUND);
    const __m256 t = _mm256_fmadd_ps(c, _mm256_set1_ps(EXP_LOG2E), round);
    const __m256 n = _mm256_sub_ps(t, round);
    const __m256 high = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_HIGH), c);
    const __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_LOW), high);
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(EXP_C6), r, _mm256_set1_ps(EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C2));
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_fmadd_ps(p, r, one);
    const __m256i power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23),
                                           _mm256_set1_epi32(0x3f800000));
    const __m256 small = _mm256_cmp_ps(x, _mm256_set1_ps(EXP_MIN), _CMP_LT_OQ);
    return _mm256_andnot_ps(small, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}

static inline __m256 silu8(__m256 x)
{
    const __m256 minus = _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), exp8(minus)));
}

/* Lanes 0..7 and 8..15: lane i += lane i + 8, then 4, 2, 1. */
static inline float sum16(__m256 low, __m256 high)
{
    const __m256 by8 = _mm256_add_ps(low, high);
    const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_add_ss(by2, _mm_shuffle_ps(by2, by2, 1)));
}

static inline float max8(__m256 v)
{
    const __m128 by4 = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 by2 = _mm_max_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_max_ss(by2, _mm_shuffle_ps(by2, by2, 1)));
}

/* Ones in the lanes that are left when `left` values are. */
static inline __m256i mask8(size_t left)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(left > 8 ? 8 : (int)left), lanes);
}

/* The first `left` of 8 values, zeros after them; nothing else is read or written. */
static inline __m256 load8(const float *from, size_t left)
{
    return left >= 8 ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, mask8(left));
}

static inline void store8(float *to, size_t left, __m256 v)
{
    if (left >= 8)
        _mm256_storeu_ps(to, v);
    else
        _mm256_maskstore_ps(to, mask8(left), v);
}

#endif
#endif
