// Products of bytes, four at a time, summed in 32 bits: what processors have instructions for that do in one
// go what floats take four for, after four conversions.
#pragma once

#include "vectors.h"

#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

// Whether there is an instruction for it, so that products of many rows are best made by these, too.
#if defined(__AVX512VNNI__) || (defined(__AVXVNNI__) && !defined(__AVX512F__)) || defined(__ARM_FEATURE_DOTPROD)
constexpr bool HAS_DOTS = true;
#else
constexpr bool HAS_DOTS = false;
#endif

inline Ints everywhere(int32_t x) { return Ints{} + x; }

// sums + in each lane the four products of its codes with the signed bytes of x. Codes are below 128.
inline Ints dot(Ints sums, Words codes, int32_t x) {
#if defined(__AVX512VNNI__)
    return (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)codes, _mm512_set1_epi32(x));
#elif defined(__AVXVNNI__) && !defined(__AVX512F__)
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)codes, _mm256_set1_epi32(x));
#elif defined(__AVX2__) && !defined(__AVX512F__)
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)codes, _mm256_set1_epi32(x));
    return sums + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#elif defined(__ARM_FEATURE_DOTPROD)
    return (Ints)vdotq_s32((int32x4_t)sums, (int8x16_t)codes, vreinterpretq_s8_s32(vdupq_n_s32(x)));
#else
    for (int byte = 0; byte < 4; byte++)
        sums += (Ints)(codes >> (8 * byte) & 255) * int32_t(int8_t(x >> (8 * byte)));
    return sums;
#endif
}

// The same with codes up to 255.
inline Ints dot_of_bytes(Ints sums, Words codes, int32_t x) {
#if defined(__AVX512VNNI__) || (defined(__AVXVNNI__) && !defined(__AVX512F__))
    return dot(sums, codes, x);
#elif defined(__AVX2__) && !defined(__AVX512F__)
    // Two products of eight bits and seven do not fit into 16, of four and seven they do.
    const __m256i all = _mm256_set1_epi32(x), low = _mm256_set1_epi8(15);
    const __m256i small = _mm256_maddubs_epi16(_mm256_and_si256((__m256i)codes, low), all);
    const __m256i upper = _mm256_and_si256(_mm256_srli_epi16((__m256i)codes, 4), low);
    const __m256i large = _mm256_maddubs_epi16(upper, all);
    return sums + (Ints)_mm256_madd_epi16(small, _mm256_set1_epi16(1)) +
           (Ints)_mm256_madd_epi16(large, _mm256_set1_epi16(16));
#elif defined(__ARM_FEATURE_DOTPROD)
    const Words low = codes & 0x7f7f7f7f, top = codes >> 7 & 0x01010101;
    return dot(sums, low, x) + (dot(Ints{}, top, x) << 7);
#else
    return dot(sums, codes, x);
#endif
}
