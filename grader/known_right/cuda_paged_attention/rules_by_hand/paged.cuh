// The rules by other formulas: the cap by an exponential, the window by a condition, and a part by
// how many keys are left. The reference has tanhf, max and min.
#pragma once

#include <type_traits>

#include "yaie.cuh"

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int THREADS = 128;
constexpr int MAX_DIM = 256;
constexpr int ELEMENTS = 8;      // of a row, held by one lane: 16 bytes of a half type, 32 of float
constexpr float LOWEST = -1e30f; // where a running maximum starts: LOWEST - LOWEST is 0

// Keys and values [blocks, block_size, kv_heads, dim], and the block tables [n, width] that find
// them.
template <typename T> struct Pool {
    const T *keys, *values;
    const int *tables, *seq_lens;
    int64_t table_stride;
    int block_size, kv_heads, dim;

    // Where the row of a slot begins, for one key head.
    __device__ int64_t row(int slot, int kv_head) const {
        return (int64_t(slot) * kv_heads + kv_head) * dim;
    }
};

// window, softcap: 0 if there is none.
struct Rules {
    float scale, softcap;
    int window;
};

// Eight neighbouring elements of a key or a value, as loaded: 16 bytes at a time.
template <typename T> struct Row {
    uint4 raw[ELEMENTS * sizeof(T) / sizeof(uint4)];

    __device__ void load(const T *from) {
#pragma unroll
        for (int i = 0; i < int(ELEMENTS * sizeof(T) / sizeof(uint4)); ++i)
            raw[i] = __ldg(reinterpret_cast<const uint4 *>(from) + i);
    }
    __device__ float operator[](int i) const {
        if constexpr (std::is_same_v<T, __nv_bfloat16>) { // the upper half of a float
            const unsigned pair = reinterpret_cast<const unsigned *>(raw)[i / 2];
            return __uint_as_float(i % 2 ? pair & 0xffff0000u : pair << 16);
        }
        return to_float(reinterpret_cast<const T *>(raw)[i]);
    }
};

// How many lanes share a row of `dim` elements, 8 each: a power of two.
__host__ __device__ inline int lanes_for(int dim) {
    int lanes = 1;
    while (lanes * ELEMENTS < dim) lanes *= 2;
    return lanes;
}

// The first key that the query of a decode sees: it stands at seq_len - 1 and sees the last
// `window`.
__device__ inline int first_visible(int seq_len, int window) {
    if (seq_len <= window) return 0;
    return seq_len - window;
}

// A scaled score under a softcap: within (-softcap, softcap).
__device__ inline float capped(float score, float softcap) {
    // tanh(x) = 1 - 2 / (exp(2 x) + 1), which is 1 and -1 far out.
    return softcap - 2.0f * softcap / (expf(2.0f * score / softcap) + 1.0f);
}


// Keys begin to end - 1; none if begin >= end.
struct Span {
    int begin, end;
};

// The keys of a part of a sequence. The visible keys first to seq_len - 1 are cut into pieces of
// keys_per_part; the last may be shorter, and parts after it have none.
__device__ inline Span keys_of_part(int first, int seq_len, int part, int keys_per_part) {
    const int left = seq_len - first - part * keys_per_part;
    if (left <= 0) return {seq_len, seq_len};
    return {seq_len - left, left < keys_per_part ? seq_len : seq_len - left + keys_per_part};
}
