/* fmath.c's functions on 16 values, step by step the same, and the tree of rule 4. */
#ifndef CASCADIA_KERNEL_FMATH_AVX512_H
#define CASCADIA_KERNEL_FMATH_AVX512_H

#include "kernel/kernel_internal.h"

#ifdef __AVX512F__ // the file that includes this is built for it

#include <immintrin.h>

static inline __m512 exp16(__m512 x)
{
    /* vminps gives its second operand when one is NaN: a NaN stays. */
    const __m512 c = _mm512_min_ps(_mm512_set1_ps(EXP_MAX), x);
    const __m512 round = _mm512_set1_ps(EXP_ROUND);
    const __m512 t = _mm512_fmadd_ps(c, _mm512_set1_ps(EXP_LOG2E), round);
    const __m512 n = _mm512_sub_ps(t, round);
    const __m512 high = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_HIGH), c);
    const __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-EXP_LN2_LOW), high);
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(EXP_C6), r, _mm512_set1_ps(EXP_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C2));
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_fmadd_ps(p, r, one);
    const __m512i power = _mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23),
                                           _mm512_set1_epi32(0x3f800000));
    const __mmask16 small = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_MIN), _CMP_LT_OQ);
    return _mm512_mask_mov_ps(_mm512_mul_ps(p, _mm512_castsi512_ps(power)), small,
                              _mm512_setzero_ps());
}

static inline __m512 silu16(__m512 x)
{
    const __m512 minus = _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0x80000000u)));
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), exp16(minus)));
}

/* Lane i += lane i + 8, then 4, 2, 1. */
static inline float sum16(__m512 lanes)
{
    const __m256 by8 =
        _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
    const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_add_ss(by2, _mm_shuffle_ps(by2, by2, 1)));
}

/* The mask of the lanes that are left when `left` values are. */
static inline __mmask16 mask16(size_t left)
{
    return (__mmask16)(left >= 16 ? 0xffffu : (1u << left) - 1u);
}

#endif
#endif
