// Vectors of floats as wide as the processor's registers, through the compiler's vector extension: the
// same source becomes AVX-512, AVX2 or NEON. Every number is computed in float32.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

// Vectors of accumulators that stay in registers: AVX2 has 16 registers, the others have 32.
constexpr int COLUMNS = LANES == 8 ? 2 : 4;

typedef float Floats __attribute__((vector_size(LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(LANES * 4)));
typedef uint32_t Words __attribute__((vector_size(LANES * 4)));
typedef uint16_t Halves __attribute__((vector_size(LANES * 2)));
typedef int8_t Bytes __attribute__((vector_size(LANES)));

constexpr float INFINITE = std::numeric_limits<float>::infinity();

// The upper half of a float32.
struct BFloat16 {
    uint16_t bits;
};

template <typename V, typename T>
inline V read(const T* at) {
    V value;
    std::memcpy(&value, at, sizeof(V));
    return value;
}

inline Floats load(const float* at) { return read<Floats>(at); }

inline Floats load(const BFloat16* at) {
#if defined(__AVX512F__)  // g++ 12 widens half a register at a time
    return (Floats)((Words)_mm512_cvtepu16_epi32(read<__m256i>(at)) << 16);
#elif defined(__AVX2__)
    return (Floats)((Words)_mm256_cvtepu16_epi32(read<__m128i>(at)) << 16);
#else
    return (Floats)(__builtin_convertvector(read<Halves>(at), Words) << 16);
#endif
}

inline Floats load(const int8_t* at) {
#if defined(__AVX512F__)  // as above
    return __builtin_convertvector((Ints)_mm512_cvtepi8_epi32(read<__m128i>(at)), Floats);
#elif defined(__AVX2__)
    return __builtin_convertvector((Ints)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)at)), Floats);
#else
    return __builtin_convertvector(read<Bytes>(at), Floats);
#endif
}

inline float load_one(const float* at) { return *at; }

inline float load_one(const int8_t* at) { return *at; }

inline float load_one(const BFloat16* at) {
    const uint32_t bits = uint32_t(at->bits) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline void store(float* at, Floats x) { std::memcpy(at, &x, sizeof x); }

// To nearest, ties to even; NaN stays NaN.
inline void store(BFloat16* at, Floats x) {
    const Words bits = (Words)x;
    const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const Words kept = x == x ? rounded : (Words{} + 0x7fc0);
    const Halves halves = __builtin_convertvector(kept, Halves);
    std::memcpy(at, &halves, sizeof halves);
}

inline void store_one(float* at, float x) { *at = x; }

inline void store_one(BFloat16* at, float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    at->bits = x == x ? uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) : 0x7fc0;
}

inline Floats all(float x) { return Floats{} + x; }

// The first `count` of a vector, which may be more than it has; zeros behind them.
template <typename T>
inline Floats load_some(const T* from, int count) {
    if (count >= LANES) return load(from);
    float some[LANES] = {};
    for (int i = 0; i < count; i++) some[i] = load_one(from + i);
    return load(some);
}

// To the first `count` of a vector, which may be more than it has.
template <typename T>
inline void store_some(T* to, Floats x, int64_t count) {
    if (count >= LANES) return store(to, x);
    for (int64_t i = 0; i < count; i++) store_one(to + i, x[i]);
}

// To a T and back.
template <typename T>
inline Floats rounded(Floats x) {
    T some[LANES];
    store(some, x);
    return load(some);
}

template <>
inline Floats rounded<float>(Floats x) {
    return x;
}

// Lane i of a where i / W is even, of b where it is odd; SWAPPED: lane i + W of a and lane i - W of b.
template <int W, bool SWAPPED, int... I>
inline Floats pick(Floats a, Floats b, std::integer_sequence<int, I...>) {
#define LANE ((I) / W % 2 == 0 ? (I) + (SWAPPED ? W : 0) : (I) - (SWAPPED ? W : 0) + LANES)
#if __has_builtin(__builtin_shufflevector)
    return __builtin_shufflevector(a, b, LANE...);
#else
    return __builtin_shuffle(a, b, Ints{LANE...});
#endif
#undef LANE
}

// Pairs of lanes that are W apart, added: of a where i / W is even, of b where it is odd.
template <int W>
inline Floats fold(Floats a, Floats b) {
    const std::make_integer_sequence<int, LANES> lanes;
    return pick<W, false>(a, b, lanes) + pick<W, true>(a, b, lanes);
}

// Lane i is a part of the sum of the lanes of the (i % 4)-th. `joined` adds the parts of LANES / 4 quads: its
// lane i is the sum of the lanes of the i-th of all vectors.
inline Floats quad(Floats a, Floats b, Floats c, Floats d) { return fold<2>(fold<1>(a, b), fold<1>(c, d)); }

inline Floats joined(const Floats* quads) {
    if constexpr (LANES == 4) return quads[0];
    if constexpr (LANES == 8) return fold<4>(quads[0], quads[1]);
    if constexpr (LANES == 16) return fold<8>(fold<4>(quads[0], quads[1]), fold<4>(quads[2], quads[3]));
}

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// All lanes in one, with each other's.
template <typename Both>
inline float across(Floats x, const Both& both) {
    const std::make_integer_sequence<int, LANES> lanes;
    if constexpr (LANES > 8) x = both(x, pick<8, true>(x, x, lanes));
    if constexpr (LANES > 4) x = both(x, pick<4, true>(x, x, lanes));
    x = both(x, pick<2, true>(x, x, lanes));
    return both(x, pick<1, true>(x, x, lanes))[0];
}

inline float largest(Floats x) { return across(x, larger); }

inline float sum_of(Floats x) {
    return across(x, [](Floats a, Floats b) { return a + b; });
}

template <int... I>
inline Ints numbered(std::integer_sequence<int, I...>) {
    return Ints{I...};
}

inline Ints numbered() { return numbered(std::make_integer_sequence<int, LANES>()); }

// e^x for x <= 88, within 2 units in the last place; 0 below -87. By 2^n times a polynomial on
// [-ln(2)/2, ln(2)/2], as in Cephes (Moshier 1992).
inline Floats exponential(Floats x) {
    const float to_integer = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to an integer
    const Floats in_range = x < -87.0f ? all(-87.0f) : x;
    const Floats shifted = in_range * 1.44269504f + to_integer;
    const Floats n = shifted - to_integer;
    const Floats r = in_range - n * 0.693359375f + n * 2.12194440e-4f;
    Floats p = all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const Ints power = ((Ints)shifted - 0x4b400000 + 127) << 23;
    const Floats result = p * (Floats)power;
    return x < -87.0f ? Floats{} : result;
}

inline Floats silu_of(Floats x) {
    const Floats power = -x > 88.0f ? all(88.0f) : -x;
    return x / (1.0f + exponential(power));
}

inline Floats hyperbolic_tangent(Floats x) {
    const Floats size = x < 0.0f ? -x : x;
    const Floats e = exponential(larger(size * -2.0f, all(-80.0f)));
    const Floats t = (1.0f - e) / (1.0f + e);
    return x < 0.0f ? -t : t;
}
