// Tiles that a warp loads row by row, and products that go over a tile's columns in the outermost
// loop, with the sums of a step in variables of their own. The reference has a thread for every
// four elements of the tile by number, and adds straight to the results.
#pragma once

#include "yaie.cuh"

constexpr int ROWS_OF_THREADS = 8, COLUMNS_OF_THREADS = 16, PAD = 4;
constexpr int THREADS = ROWS_OF_THREADS * COLUMNS_OF_THREADS;

__device__ inline int thread_row() { return int(threadIdx.x) / COLUMNS_OF_THREADS; }
__device__ inline int thread_column() { return int(threadIdx.x) % COLUMNS_OF_THREADS; }

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

// Copy ROWS rows of `dim` elements, `stride` elements apart, to tile [ROWS, DIM + PAD] in shared
// memory as float, four at a time. Rows from `rows` on and columns from `dim` on (a multiple of 4)
// do not exist: not read, zeros in the tile. Called by all threads; no barrier inside.
template <int ROWS, int DIM, typename T>
__device__ void load_tile(float *tile, const T *from, int64_t stride, int rows, int dim) {
    constexpr int ACROSS = DIM / 4 < 32 ? DIM / 4 : 32; // lanes of a row: a divisor of a warp
    constexpr int STEP = THREADS / ACROSS;
    const float4 nothing = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int row = int(threadIdx.x) / ACROSS; row < ROWS; row += STEP) {
        const T *source = from + int64_t(row) * stride;
        for (int column = int(threadIdx.x) % ACROSS * 4; column < DIM; column += ACROSS * 4) {
            const bool exists = row < rows && column < dim;
            float4 *to = reinterpret_cast<float4 *>(&tile[row * (DIM + PAD) + column]);
            *to = exists ? load_four(source + column) : nothing;
        }
    }
}

// out[r][c] = the product of row r * 8 + y of `a` with row c * 16 + x of `b`, tiles [.., DIM +
// PAD]: this thread's share of a times b transposed.
template <int DIM, int ROWS, int COLUMNS>
__device__ void rows_times_rows(const float *a, const float *b, float (&out)[ROWS][COLUMNS]) {
    const int y = thread_row(), x = thread_column();
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) out[r][c] = 0.0f;
    for (int i = 0; i < DIM / 4; ++i) {
        float4 right[COLUMNS];
        for (int c = 0; c < COLUMNS; ++c)
            right[c] = reinterpret_cast<const float4 *>(b + (c * 16 + x) * (DIM + PAD))[i];
        for (int r = 0; r < ROWS; ++r) {
            const float4 left = reinterpret_cast<const float4 *>(a + (r * 8 + y) * (DIM + PAD))[i];
            for (int c = 0; c < COLUMNS; ++c)
                out[r][c] += left.x * right[c].x + left.y * right[c].y + left.z * right[c].z +
                             left.w * right[c].w;
        }
    }
}

// acc[r][c] += the sum over j of weights[r * 8 + y][j] * rows[j][c * 16 + x], for weights [..,
// COUNT + PAD] and rows [COUNT, 16 * COLUMNS + PAD]: this thread's share of weights times rows.
template <int COUNT, int ROWS, int COLUMNS>
__device__ void weights_times_rows(const float *weights, const float *rows,
                                   float (&acc)[ROWS][COLUMNS]) {
    constexpr int STRIDE = COLUMNS * COLUMNS_OF_THREADS + PAD;
    const int y = thread_row(), x = thread_column();
    for (int c = 0; c < COLUMNS; ++c) {
        float sums[ROWS];
        for (int r = 0; r < ROWS; ++r) sums[r] = 0.0f;
        for (int j = 0; j < COUNT; j += 4) {
            const float *column = rows + j * STRIDE + c * COLUMNS_OF_THREADS + x;
            const float first = column[0], second = column[STRIDE];
            const float third = column[2 * STRIDE], fourth = column[3 * STRIDE];
            for (int r = 0; r < ROWS; ++r) {
                const float4 weight = *reinterpret_cast<const float4 *>(
                    &weights[(r * ROWS_OF_THREADS + y) * (COUNT + PAD) + j]);
                sums[r] += weight.x * first + weight.y * second + weight.z * third +
                           weight.w * fourth;
            }
        }
        for (int r = 0; r < ROWS; ++r) acc[r][c] += sums[r];
    }
}

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
