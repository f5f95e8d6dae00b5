// Sixteen bytes at a time: the most that one thread reads or writes in one instruction.
#pragma once

#include <initializer_list>

#include "yaie.cuh"

// ANCHOR: pack
// As many neighbouring numbers as fit into 16 bytes. Read and written whole, through a pointer to
// packs, it is one instruction; its address must then be a multiple of 16.
template <typename T> struct alignas(16) Pack {
    static constexpr int SIZE = 16 / sizeof(T);
    T at[SIZE];
};

inline int64_t address(const void* pointer) { return reinterpret_cast<int64_t>(pointer); }

// Whether packs may be read at all of these addresses, strides and sizes, which count bytes.
inline bool packs_fit(std::initializer_list<int64_t> numbers) {
    int64_t bits = 0;
    for (int64_t number : numbers) bits |= number;
    return bits % 16 == 0;
}
// ANCHOR_END: pack

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The largest grid in y and z: 65,535 on a GPU, fewer where a CPU plays one. In x it is 2^31 - 1.
constexpr int64_t LARGEST_GRID_YZ = YAIE_LARGEST_GRID_YZ;

// ANCHOR: rows
// Where the rows of x [tokens, per_token, d] lie: a token's rows are neighbours, `stride` numbers
// are between one token and the next. A plain matrix has one row for each token.
struct Rows {
    int64_t count, per_token, stride, d;

    __host__ __device__ int64_t start(int64_t row) const {
        return row / per_token * stride + row % per_token * d;
    }
};
// ANCHOR_END: rows
