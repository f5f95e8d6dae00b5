// Where the tensors of an attention lie.
#pragma once

#include "yaie.cuh"

// A tensor [n, tokens, heads, dim]: heads lie side by side, tokens and sequences at any distance.
template <typename T> struct Heads {
    T *data;
    int64_t sequence_stride, token_stride;

    __device__ T *at(int sequence, int token, int head, int dim) const {
        return data + sequence * sequence_stride + token * token_stride + int64_t(head) * dim;
    }
};

// The head size that a kernel is compiled for: the next of these, in columns of 16. A smaller head
// is padded with zeros in shared memory, never in global memory. On a CPU, where nobody wants speed
// and everybody waits for the compiler, three sizes do for all.
#ifdef YAIE_ON_CPU
#define DISPATCH_DIM(dim, COLUMNS, ...)                                                            \
    do {                                                                                           \
        if ((dim) <= 32) { constexpr int COLUMNS = 2; __VA_ARGS__; }                               \
        else if ((dim) <= 128) { constexpr int COLUMNS = 8; __VA_ARGS__; }                         \
        else { constexpr int COLUMNS = 16; __VA_ARGS__; }                                          \
    } while (0)
#else
#define DISPATCH_DIM(dim, COLUMNS, ...)                                                            \
    do {                                                                                           \
        if ((dim) <= 32) { constexpr int COLUMNS = 2; __VA_ARGS__; }                               \
        else if ((dim) <= 64) { constexpr int COLUMNS = 4; __VA_ARGS__; }                          \
        else if ((dim) <= 80) { constexpr int COLUMNS = 5; __VA_ARGS__; }                          \
        else if ((dim) <= 96) { constexpr int COLUMNS = 6; __VA_ARGS__; }                          \
        else if ((dim) <= 128) { constexpr int COLUMNS = 8; __VA_ARGS__; }                         \
        else { constexpr int COLUMNS = 16; __VA_ARGS__; }                                          \
    } while (0)
#endif
