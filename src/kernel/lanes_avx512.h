/* Sixteen lanes: the vector operations that attend_lanes.h is written in, for AVX-512 with VNNI.
 * lanes_avx2.h says what each is. */
#ifndef CASCADIA_KERNEL_LANES_AVX512_H
#define CASCADIA_KERNEL_LANES_AVX512_H

#include "kernel/fmath_avx512.h"
#include "kernel/kernel_internal.h"

#ifdef __AVX512VNNI__ // the file that includes this is built for it

#include <immintrin.h>
#include <string.h>

enum { WIDTH = 16 };

typedef __m512 lanes;
typedef __m512i ilanes;
typedef __mmask16 lanes_mask;

static inline lanes lanes_zero(void)
{
    return _mm512_setzero_ps();
}

static inline lanes lanes_set(float value)
{
    return _mm512_set1_ps(value);
}

static inline lanes lanes_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

static inline lanes lanes_load_until(const float *from, size_t left)
{
    return _mm512_maskz_loadu_ps(mask16(left), from);
}

static inline lanes lanes_load_f16(const uint16_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

static inline lanes lanes_load_f16_until(const uint16_t *from, size_t left)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask16(left), from));
}

static inline void lanes_store(float *to, lanes v)
{
    _mm512_storeu_ps(to, v);
}

static inline void lanes_store_until(float *to, size_t left, lanes v)
{
    _mm512_mask_storeu_ps(to, mask16(left), v);
}

static inline void lanes_store_f16(uint16_t *to, lanes v)
{
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtps_ph(v, 0));
}

static inline lanes lanes_add(lanes a, lanes b)
{
    return _mm512_add_ps(a, b);
}

static inline lanes lanes_sub(lanes a, lanes b)
{
    return _mm512_sub_ps(a, b);
}

static inline lanes lanes_mul(lanes a, lanes b)
{
    return _mm512_mul_ps(a, b);
}

static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline lanes lanes_max(lanes a, lanes b)
{
    return _mm512_max_ps(a, b);
}

static inline lanes lanes_abs(lanes a)
{
    return _mm512_abs_ps(a);
}

static inline lanes lanes_exp(lanes a)
{
    return exp16(a);
}

static inline float lanes_first(lanes a)
{
    return _mm512_cvtss_f32(a);
}

static inline float lanes_largest(lanes a)
{
    return _mm512_reduce_max_ps(a);
}

static inline float lanes_sum(const lanes a[16 / WIDTH])
{
    return sum16(a[0]);
}

static inline lanes_mask lanes_within(uint32_t at, uint32_t first, uint32_t end)
{
    const uint32_t from = first > at ? first - at : 0, to = end > at ? end - at : 0;
    return (__mmask16)(mask16(to) & ~mask16(from));
}

static inline lanes lanes_keep(lanes_mask mask, lanes a)
{
    return _mm512_maskz_mov_ps(mask, a);
}

static inline lanes lanes_choose(lanes_mask mask, lanes yes, lanes no)
{
    return _mm512_mask_mov_ps(no, mask, yes);
}

static inline bool lanes_are_finite(lanes a)
{
    const __m512 largest = _mm512_set1_ps(3.402823466e38f);
    return _mm512_cmp_ps_mask(_mm512_abs_ps(a), largest, _CMP_LE_OQ) == 0xffff;
}

static inline ilanes ilanes_zero(void)
{
    return _mm512_setzero_si512();
}

static inline ilanes ilanes_round(lanes a)
{
    return _mm512_cvtps_epi32(a);
}

static inline lanes ilanes_to_float(ilanes a)
{
    return _mm512_cvtepi32_ps(a);
}

static inline void ilanes_store(int32_t *to, ilanes a)
{
    _mm512_storeu_si512(to, a);
}

static inline void ilanes_store_int16(int16_t *to, ilanes a)
{
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtsepi32_epi16(a));
}

static inline ilanes ilanes_load_int8(const int8_t *from)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

static inline ilanes ilanes_load_int8_until(const int8_t *from, size_t pairs_left)
{
    return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi16(mask16(pairs_left), from));
}

static inline ilanes ilanes_pair(const int16_t *from)
{
    int32_t pair;
    memcpy(&pair, from, sizeof(pair));
    return _mm512_set1_epi32(pair);
}

static inline ilanes ilanes_dot(ilanes sum, ilanes a, ilanes b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

#endif
#endif
