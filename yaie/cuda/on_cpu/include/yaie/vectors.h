// The vector types. Loads and stores of a whole one are single accesses, as on a GPU, because they are
// plain aligned structs and the compiler is told not to take structs apart (-fno-tree-sra).
#pragma once

#include <cstdint>

// For whatever returns a struct, see build.py.
#define YAIE_INLINE inline __attribute__((always_inline))

#define YAIE_VECTORS(name, T, align2, align4)                                                      \
    struct name##1 {                                                                               \
        T x;                                                                                       \
    };                                                                                             \
    struct alignas(align2) name##2 {                                                               \
        T x, y;                                                                                    \
    };                                                                                             \
    struct name##3 {                                                                               \
        T x, y, z;                                                                                 \
    };                                                                                             \
    struct alignas(align4) name##4 {                                                               \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    YAIE_INLINE name##1 make_##name##1(T x) { return {x}; }                                             \
    YAIE_INLINE name##2 make_##name##2(T x, T y) { return {x, y}; }                                     \
    YAIE_INLINE name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                             \
    YAIE_INLINE name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

YAIE_VECTORS(char, signed char, 2, 4)
YAIE_VECTORS(uchar, unsigned char, 2, 4)
YAIE_VECTORS(short, short, 4, 8)
YAIE_VECTORS(ushort, unsigned short, 4, 8)
YAIE_VECTORS(int, int, 8, 16)
YAIE_VECTORS(uint, unsigned int, 8, 16)
YAIE_VECTORS(long, long, 16, 16)
YAIE_VECTORS(ulong, unsigned long, 16, 16)
YAIE_VECTORS(longlong, long long, 16, 16)
YAIE_VECTORS(ulonglong, unsigned long long, 16, 16)
YAIE_VECTORS(float, float, 8, 16)
YAIE_VECTORS(double, double, 16, 16)
#undef YAIE_VECTORS

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
