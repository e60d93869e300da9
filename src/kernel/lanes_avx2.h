/* Eight lanes: the vector operations that attend_lanes.h is written in, for AVX2, FMA and F16C.
 *
 * `lanes` are WIDTH floats, `ilanes` WIDTH int32 or 2 WIDTH int16. *_until read or write only the
 * first `left` values (at least one) and give zeros for the others. */
#ifndef CASCADIA_KERNEL_LANES_AVX2_H
#define CASCADIA_KERNEL_LANES_AVX2_H

#include "kernel/fmath_avx2.h"
#include "kernel/kernel_internal.h"

#ifdef __AVX2__ // the file that includes this is built for it

#include <immintrin.h>
#include <string.h>

enum { WIDTH = 8 };

typedef __m256 lanes;
typedef __m256i ilanes;
typedef __m256 lanes_mask; // all ones or zeros in each lane

static inline lanes lanes_zero(void)
{
    return _mm256_setzero_ps();
}

static inline lanes lanes_set(float value)
{
    return _mm256_set1_ps(value);
}

static inline lanes lanes_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

static inline lanes lanes_load_until(const float *from, size_t left)
{
    return load8(from, left);
}

static inline lanes lanes_load_f16(const uint16_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

static inline lanes lanes_load_f16_until(const uint16_t *from, size_t left)
{
    uint16_t halves[WIDTH] = { 0 };
    if (left >= WIDTH)
        return lanes_load_f16(from);
    memcpy(halves, from, left * sizeof(*halves));
    return lanes_load_f16(halves);
}

static inline void lanes_store(float *to, lanes v)
{
    _mm256_storeu_ps(to, v);
}

static inline void lanes_store_until(float *to, size_t left, lanes v)
{
    store8(to, left, v);
}

static inline void lanes_store_f16(uint16_t *to, lanes v)
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_cvtps_ph(v, 0));
}

static inline lanes lanes_add(lanes a, lanes b)
{
    return _mm256_add_ps(a, b);
}

static inline lanes lanes_sub(lanes a, lanes b)
{
    return _mm256_sub_ps(a, b);
}

static inline lanes lanes_mul(lanes a, lanes b)
{
    return _mm256_mul_ps(a, b);
}

static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* b where one is NaN. */
static inline lanes lanes_max(lanes a, lanes b)
{
    return _mm256_max_ps(a, b);
}

static inline lanes lanes_abs(lanes a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

static inline lanes lanes_exp(lanes a)
{
    return exp8(a);
}

static inline float lanes_first(lanes a)
{
    return _mm256_cvtss_f32(a);
}

static inline float lanes_largest(lanes a)
{
    return max8(a);
}

/* The tree of rule 4 over 16 lanes. */
static inline float lanes_sum(const lanes a[16 / WIDTH])
{
    return sum16(a[0], a[1]);
}

/* Lanes i for which first <= at + i < end. */
static inline lanes_mask lanes_within(uint32_t at, uint32_t first, uint32_t end)
{
    const __m256i place =
        _mm256_add_epi32(_mm256_set1_epi32((int)at), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i before = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)first), place);
    return _mm256_castsi256_ps(
        _mm256_andnot_si256(before, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)end), place)));
}

static inline lanes lanes_keep(lanes_mask mask, lanes a)
{
    return _mm256_and_ps(mask, a);
}

static inline lanes lanes_choose(lanes_mask mask, lanes yes, lanes no)
{
    return _mm256_blendv_ps(no, yes, mask);
}

/* True when every lane is below infinity: |a| <= FLT_MAX, no NaN. */
static inline bool lanes_are_finite(lanes a)
{
    const __m256 largest = _mm256_set1_ps(3.402823466e38f);
    return _mm256_movemask_ps(_mm256_cmp_ps(lanes_abs(a), largest, _CMP_LE_OQ)) == 0xff;
}

static inline ilanes ilanes_zero(void)
{
    return _mm256_setzero_si256();
}

/* To nearest even. */
static inline ilanes ilanes_round(lanes a)
{
    return _mm256_cvtps_epi32(a);
}

static inline lanes ilanes_to_float(ilanes a)
{
    return _mm256_cvtepi32_ps(a);
}

static inline void ilanes_store(int32_t *to, ilanes a)
{
    _mm256_storeu_si256((__m256i *)(void *)to, a);
}

static inline void ilanes_store_int16(int16_t *to, ilanes a)
{
    _mm_storeu_si128((__m128i *)(void *)to,
                     _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)));
}

/* 2 WIDTH int8 as int16. */
static inline ilanes ilanes_load_int8(const int8_t *from)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)from));
}

/* Pairs of int8. */
static inline ilanes ilanes_load_int8_until(const int8_t *from, size_t pairs_left)
{
    int8_t bytes[2 * WIDTH] = { 0 };
    if (pairs_left >= WIDTH)
        return ilanes_load_int8(from);
    memcpy(bytes, from, 2 * pairs_left);
    return ilanes_load_int8(bytes);
}

/* One pair of int16 in all lanes. */
static inline ilanes ilanes_pair(const int16_t *from)
{
    int32_t pair;
    memcpy(&pair, from, sizeof(pair));
    return _mm256_set1_epi32(pair);
}

/* sum + a[2i] b[2i] + a[2i+1] b[2i+1] */
static inline ilanes ilanes_dot(ilanes sum, ilanes a, ilanes b)
{
    __m256i products;
    __asm__("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0"
            : "+x"(sum), "=&x"(products)
            : "x"(a), "x"(b));
    return sum;
}

#endif
#endif
