// What __half and __nv_bfloat16 share: 16 bits, converted to float for all arithmetic and rounded to the
// nearest value, ties to even, after each operation, as the GPU's instructions do.
#pragma once

#include "numbers.h"

inline float yaie_half_to_float(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16;
    const uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31) return yaie_bits<float>(sign | 0x7f800000u | fraction << 13);
    if (exponent) return yaie_bits<float>(sign | (exponent + 112) << 23 | fraction << 13);
    const float small = float(fraction) * 5.9604644775390625e-8f;  // 2**-24
    return sign ? -small : small;
}

inline uint16_t yaie_float_to_half(float x) {
    const uint32_t bits = yaie_bits<uint32_t>(x);
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fff;                       // not a number
    if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00);     // rounds to infinity
    if (magnitude < 0x38800000u) {                                    // subnormal: units of 2**-24
        const float scaled = yaie_bits<float>(magnitude) * 16777216.0f;
        return uint16_t(sign | uint32_t(rintf(scaled)));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
    return uint16_t(sign | (rounded - 0x38000000u) >> 13);
}

inline float yaie_bfloat16_to_float(uint16_t bits) { return yaie_bits<float>(uint32_t(bits) << 16); }

inline uint16_t yaie_float_to_bfloat16(float x) {
    const uint32_t bits = yaie_bits<uint32_t>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return uint16_t((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

#define YAIE_SMALL_FLOAT(Type, Type2, from_bits, to_bits)                                          \
    struct Type {                                                                                  \
        uint16_t bits;                                                                             \
        Type() = default;                                                                          \
        Type(float x) : bits(to_bits(x)) {}                                                        \
        Type(double x) : bits(to_bits(float(x))) {}                                                \
        Type(int x) : bits(to_bits(float(x))) {}                                                   \
        Type(unsigned int x) : bits(to_bits(float(x))) {}                                          \
        operator float() const { return from_bits(bits); }                                         \
        Type& operator+=(Type y) { return *this = Type(float(*this) + float(y)); }                 \
        Type& operator-=(Type y) { return *this = Type(float(*this) - float(y)); }                 \
        Type& operator*=(Type y) { return *this = Type(float(*this) * float(y)); }                 \
        Type& operator/=(Type y) { return *this = Type(float(*this) / float(y)); }                 \
    };                                                                                             \
    struct alignas(4) Type2 {                                                                      \
        Type x, y;                                                                                 \
        Type2() = default;                                                                         \
        Type2(Type a, Type b) : x(a), y(b) {}                                                      \
    };                                                                                             \
    YAIE_INLINE Type operator+(Type a, Type b) { return Type(float(a) + float(b)); }                    \
    YAIE_INLINE Type operator-(Type a, Type b) { return Type(float(a) - float(b)); }                    \
    YAIE_INLINE Type operator*(Type a, Type b) { return Type(float(a) * float(b)); }                    \
    YAIE_INLINE Type operator/(Type a, Type b) { return Type(float(a) / float(b)); }                    \
    YAIE_INLINE Type operator-(Type a) { return Type(-float(a)); }                                      \
    inline bool operator<(Type a, Type b) { return float(a) < float(b); }                          \
    inline bool operator>(Type a, Type b) { return float(a) > float(b); }                          \
    inline bool operator<=(Type a, Type b) { return float(a) <= float(b); }                        \
    inline bool operator>=(Type a, Type b) { return float(a) >= float(b); }                        \
    inline bool operator==(Type a, Type b) { return float(a) == float(b); }                        \
    inline bool operator!=(Type a, Type b) { return float(a) != float(b); }                        \
    YAIE_INLINE Type __hadd(Type a, Type b) { return a + b; }                                           \
    YAIE_INLINE Type __hsub(Type a, Type b) { return a - b; }                                           \
    YAIE_INLINE Type __hmul(Type a, Type b) { return a * b; }                                           \
    YAIE_INLINE Type __hdiv(Type a, Type b) { return a / b; }                                           \
    YAIE_INLINE Type __hneg(Type a) { return -a; }                                                      \
    YAIE_INLINE Type __habs(Type a) { return Type(fabsf(float(a))); }                                   \
    YAIE_INLINE Type __hfma(Type a, Type b, Type c) {                                                   \
        return Type(float(double(float(a)) * double(float(b)) + double(float(c))));                \
    }                                                                                              \
    YAIE_INLINE Type __hmax(Type a, Type b) { return Type(fmaxf(float(a), float(b))); }                 \
    YAIE_INLINE Type __hmin(Type a, Type b) { return Type(fminf(float(a), float(b))); }                 \
    inline bool __hlt(Type a, Type b) { return a < b; }                                            \
    inline bool __hle(Type a, Type b) { return a <= b; }                                           \
    inline bool __hgt(Type a, Type b) { return a > b; }                                            \
    inline bool __hge(Type a, Type b) { return a >= b; }                                           \
    inline bool __heq(Type a, Type b) { return a == b; }                                           \
    inline bool __hne(Type a, Type b) { return a != b; }                                           \
    inline bool __hisnan(Type a) { return float(a) != float(a); }                                  \
    YAIE_INLINE Type hexp(Type a) { return Type(expf(float(a))); }                                      \
    YAIE_INLINE Type hexp2(Type a) { return Type(exp2f(float(a))); }                                    \
    YAIE_INLINE Type hlog(Type a) { return Type(logf(float(a))); }                                      \
    YAIE_INLINE Type hsqrt(Type a) { return Type(sqrtf(float(a))); }                                    \
    YAIE_INLINE Type hrsqrt(Type a) { return Type(rsqrtf(float(a))); }                                  \
    YAIE_INLINE Type hrcp(Type a) { return Type(1.0f / float(a)); }                                     \
    YAIE_INLINE Type2 operator+(Type2 a, Type2 b) { return {a.x + b.x, a.y + b.y}; }                    \
    YAIE_INLINE Type2 operator-(Type2 a, Type2 b) { return {a.x - b.x, a.y - b.y}; }                    \
    YAIE_INLINE Type2 operator*(Type2 a, Type2 b) { return {a.x * b.x, a.y * b.y}; }                    \
    YAIE_INLINE Type2 __hadd2(Type2 a, Type2 b) { return a + b; }                                       \
    YAIE_INLINE Type2 __hsub2(Type2 a, Type2 b) { return a - b; }                                       \
    YAIE_INLINE Type2 __hmul2(Type2 a, Type2 b) { return a * b; }                                       \
    YAIE_INLINE Type2 __hmax2(Type2 a, Type2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }        \
    YAIE_INLINE Type2 __hmin2(Type2 a, Type2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }        \
    YAIE_INLINE Type2 __hfma2(Type2 a, Type2 b, Type2 c) {                                              \
        return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                     \
    }                                                                                              \
    inline float __low2float(Type2 a) { return float(a.x); }                                       \
    inline float __high2float(Type2 a) { return float(a.y); }
