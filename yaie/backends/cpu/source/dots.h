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

#if !defined(__AVX512VNNI__) && (defined(__AVX512BW__) || (defined(__AVX2__) && !defined(__AVX512F__)))
#define IN_PAIRS  // products of bytes, two of them summed in 16 bits, and of 16 bits, two of them summed in 32

// The four products of each lane, times a factor. Two products fit into 16 bits if codes are below 128.
inline Ints in_pairs(Words codes, int32_t x, int16_t factor) {
#if defined(__AVX512BW__)
    const __m512i pairs = _mm512_maddubs_epi16((__m512i)codes, _mm512_set1_epi32(x));
    return (Ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(factor));
#else
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)codes, _mm256_set1_epi32(x));
    return (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(factor));
#endif
}
#endif

// sums + in each lane the four products of its codes with the signed bytes of x. Codes are below 128.
inline Ints dot(Ints sums, Words codes, int32_t x) {
#if defined(__AVX512VNNI__)
    return (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)codes, _mm512_set1_epi32(x));
#elif defined(__AVXVNNI__) && !defined(__AVX512F__)
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)codes, _mm256_set1_epi32(x));
#elif defined(IN_PAIRS)
    return sums + in_pairs(codes, x, 1);
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
#elif defined(IN_PAIRS)
    return sums + in_pairs(codes & 0x0f0f0f0f, x, 1) + in_pairs(codes >> 4 & 0x0f0f0f0f, x, 16);
#elif defined(__ARM_FEATURE_DOTPROD)
    return dot(sums, codes & 0x7f7f7f7f, x) + (dot(Ints{}, codes >> 7 & 0x01010101, x) << 7);
#else
    return dot(sums, codes, x);
#endif
}
