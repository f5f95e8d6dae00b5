// How wide a copy may be. A memory operation never looks at the numbers that it moves, so it moves
// bytes, as many at a time as the addresses allow: a thread reads or writes at most 16 in one
// instruction, and only at an address that the size of what it reads divides.
#pragma once

#include <initializer_list>

#include "yaie.cuh"

// ANCHOR: widest_copy
// The largest of 16, 8, 4, 2 and 1 that divides each of these addresses, strides and sizes, in
// bytes.
inline int64_t widest_copy(std::initializer_list<int64_t> numbers) {
    int64_t bits = 16;
    for (int64_t number : numbers) bits |= number;
    return bits & -bits;
}

inline int64_t address(const void* pointer) { return reinterpret_cast<int64_t>(pointer); }

// Runs the statements with Unit as an unsigned type of that many bytes.
#define DISPATCH_WIDTH(bytes, Unit, ...)                                                           \
    do {                                                                                           \
        if ((bytes) == 16) { using Unit = uint4; __VA_ARGS__; }                                    \
        else if ((bytes) == 8) { using Unit = uint2; __VA_ARGS__; }                                \
        else if ((bytes) == 4) { using Unit = uint32_t; __VA_ARGS__; }                             \
        else if ((bytes) == 2) { using Unit = uint16_t; __VA_ARGS__; }                             \
        else { using Unit = uint8_t; __VA_ARGS__; }                                                \
    } while (0)
// ANCHOR_END: widest_copy

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The largest grid in y and z: 65,535 on a GPU, fewer where a CPU plays one. In x it is 2^31 - 1.
constexpr int64_t LARGEST_GRID_YZ = YAIE_LARGEST_GRID_YZ;
