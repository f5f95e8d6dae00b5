// Lab 15, your part: task 15.1. The rest is given.
// Tiles in shared memory, and products of two of them that are spread over a thread block's
// registers.
//
// A block has 128 threads, in ROWS_OF_THREADS rows of COLUMNS_OF_THREADS. In every product thread
// (y, x) computes the elements of rows y, y + 8, y + 16, ... and of columns x, x + 16, x + 32, ...:
// neighbouring threads read neighbouring rows of a tile, and with PAD floats at the end of each row
// those begin in different banks.
#pragma once

#include "yaie.cuh"

constexpr int ROWS_OF_THREADS = 8, COLUMNS_OF_THREADS = 16, PAD = 4;
constexpr int THREADS = ROWS_OF_THREADS * COLUMNS_OF_THREADS;

__device__ inline int thread_row() { return int(threadIdx.x) / COLUMNS_OF_THREADS; }
__device__ inline int thread_column() { return int(threadIdx.x) % COLUMNS_OF_THREADS; }

// ANCHOR: load_four
// Four neighbouring elements of global memory in one load: 16 bytes of float, 8 of a half type.
template <typename T> __device__ inline float4 load_four(const T *from) {
    if constexpr (sizeof(T) == sizeof(float)) {
        return *reinterpret_cast<const float4 *>(from);
    } else {
        const uint2 raw = *reinterpret_cast<const uint2 *>(from);
        const T *element = reinterpret_cast<const T *>(&raw);
        return make_float4(to_float(element[0]), to_float(element[1]), to_float(element[2]),
                           to_float(element[3]));
    }
}
// ANCHOR_END: load_four

// ANCHOR: load_tile
// Copy ROWS rows of `dim` elements, `stride` elements apart, to tile [ROWS, DIM + PAD] in shared
// memory as float, four at a time. Rows from `rows` on and columns from `dim` on (a multiple of 4)
// do not exist: not read, zeros in the tile. Called by all threads; no barrier inside.
template <int ROWS, int DIM, typename T>
__device__ void load_tile(float *tile, const T *from, int64_t stride, int rows, int dim) {
    constexpr int CHUNKS = DIM / 4;
    // TODO 15.1: your code here (the reference: 5 lines).
    NOT_IMPLEMENTED("cuda_flash_attention task 15.1: not implemented yet; see chapter FlashAttention in CUDA");
}
// ANCHOR_END: load_tile

// ANCHOR: rows_times_rows
// out[r][c] = the product of row r * 8 + y of `a` with row c * 16 + x of `b`, tiles [.., DIM +
// PAD]: this thread's share of a times b transposed.
template <int DIM, int ROWS, int COLUMNS>
__device__ void rows_times_rows(const float *a, const float *b, float (&out)[ROWS][COLUMNS]) {
    const int y = thread_row(), x = thread_column();
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) out[r][c] = 0.0f;
    // TODO 15.1: your code here (the reference: 18 lines).
    NOT_IMPLEMENTED("cuda_flash_attention task 15.1: not implemented yet; see chapter FlashAttention in CUDA");
}
// ANCHOR_END: rows_times_rows

// ANCHOR: weights_times_rows
// acc[r][c] += the sum over j of weights[r * 8 + y][j] * rows[j][c * 16 + x], for weights [..,
// COUNT + PAD] and rows [COUNT, 16 * COLUMNS + PAD]: this thread's share of weights times rows.
template <int COUNT, int ROWS, int COLUMNS>
__device__ void weights_times_rows(const float *weights, const float *rows,
                                   float (&acc)[ROWS][COLUMNS]) {
    constexpr int STRIDE = COLUMNS * COLUMNS_OF_THREADS + PAD;
    const int y = thread_row(), x = thread_column();
    // TODO 15.1: your code here (the reference: 17 lines).
    NOT_IMPLEMENTED("cuda_flash_attention task 15.1: not implemented yet; see chapter FlashAttention in CUDA");
}
// ANCHOR_END: weights_times_rows

// Write this thread's elements of a product to a tile [.., 16 * COLUMNS + PAD] in shared memory.
template <int ROWS, int COLUMNS>
__device__ void store_tile(float *tile, const float (&value)[ROWS][COLUMNS]) {
    constexpr int STRIDE = COLUMNS * COLUMNS_OF_THREADS + PAD;
    const int y = thread_row(), x = thread_column();
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c)
            tile[(r * ROWS_OF_THREADS + y) * STRIDE + c * COLUMNS_OF_THREADS + x] = value[r][c];
}

// Write this thread's elements of a product to global memory, row r times factor[r].
template <int ROWS, int COLUMNS, typename T>
__device__ void store_rows(T *to, int64_t stride, int rows, int dim,
                           const float (&value)[ROWS][COLUMNS], const float (&factor)[ROWS]) {
    const int y = thread_row(), x = thread_column();
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = r * ROWS_OF_THREADS + y;
        if (row >= rows) continue;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const int column = c * COLUMNS_OF_THREADS + x;
            if (column < dim) to[row * stride + column] = from_float<T>(value[r][c] * factor[r]);
        }
    }
}
