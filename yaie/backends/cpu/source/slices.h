// Rows of x as whole numbers in slices of eight bits, so that products with codes are sums of whole numbers
// and exact. 32 neighbours share a power of two, by which the largest of them takes all bits:
//
//     x[i] = scale * (slices[0][i] * 256 + slices[1][i])        two slices: 15 bits, for bfloat16
//     x[i] = scale * ((slices[0][i] * 256 + slices[1][i]) * 256 + slices[2][i])   three: 23, for float32
//
// Cutting numbers so is how Ozaki et al. (2012) multiply exactly on units of few bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "vectors.h"

constexpr int PART = 32;   // numbers that share a scale
constexpr int GROUPS = 8;  // of four numbers, which meet four codes in one instruction

// slices: of each eight numbers 0, 2, 4, 6 before 1, 3, 5, 7: so codes of four bits come out of a word. halves:
// the sums of 16 numbers. total: of x.
template <int S>
struct Part {
    int32_t slices[S][GROUPS];
    int32_t halves[S][2];
    float scale, total;
};

// from: PART numbers. A row with one that is not finite becomes NaN.
template <int S>
inline void slice(const float* from, Part<S>& part) {
    constexpr int BITS = 8 * S - 2;
    constexpr float TO_INTEGER = 12582912.0f;  // 1.5 * 2^23: see `exponential`
    Floats most{}, total{};
    for (int i = 0; i < PART; i += LANES) {
        const Floats some = load(from + i);
        most = larger(most, larger(some, -some));
        total += some;
    }
    part.total = sum_of(total);
    int exponent = 0;
    const bool is_finite = part.total - part.total == 0.0f;
    if (is_finite) std::frexp(largest(most), &exponent);
    // The inverse of a smaller one is no float32. What is lost there is less than the least normal number.
    exponent = std::max(exponent, -100);
    const float inverse = is_finite ? std::ldexp(1.0f, BITS - exponent) : 0.0f;
    part.scale = is_finite ? std::ldexp(1.0f, exponent - BITS) : std::numeric_limits<float>::quiet_NaN();
    alignas(64) int32_t whole[PART];
    for (int i = 0; i < PART; i += LANES) {
        const Ints bits = (Ints)(load(from + i) * inverse + TO_INTEGER) - 0x4b400000;
        std::memcpy(whole + i, &bits, sizeof bits);
    }
    alignas(64) int8_t bytes[S][PART];
    for (int s = S - 1; s >= 0; s--) {
        for (int i = 0; i < PART; i++) {
            const int8_t one = int8_t(whole[i]);
            bytes[s][i / 8 * 8 + i % 2 * 4 + i % 8 / 2] = one;
            whole[i] = (whole[i] - one) >> 8;
        }
        for (int half = 0; half < 2; half++) {
            int32_t sum = 0;
            for (int i = 0; i < 16; i++) sum += bytes[s][16 * half + i];
            part.halves[s][half] = sum;
        }
    }
    std::memcpy(part.slices, bytes, sizeof bytes);
}
