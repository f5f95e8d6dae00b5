// Lab 15, your part: task 15.2. The rest is given.
// The softmax of rows that come tile by tile (Milakov and Gimelshein 2018).
#pragma once

#include "tiles.cuh"

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float LOWEST = -1e30f; // where a running maximum starts: LOWEST - LOWEST is 0

// ANCHOR: across_row
// A row of a product lies in the registers of 16 neighbouring lanes. The largest of their values,
// and the sum of their values, in each of them.
__device__ inline float row_max(float value) {
    // TODO 15.2: your code here (the reference: 3 lines).
    NOT_IMPLEMENTED("cuda_flash_attention task 15.2: not implemented yet; see chapter FlashAttention in CUDA");
}

__device__ inline float row_sum(float value) {
    // TODO 15.2: your code here (the reference: 3 lines).
    NOT_IMPLEMENTED("cuda_flash_attention task 15.2: not implemented yet; see chapter FlashAttention in CUDA");
}
// ANCHOR_END: across_row

// ANCHOR: softmax_rows
// What this thread knows of its ROWS query rows: maximum and sum of each (all lanes of the row hold
// the same), and its elements of the sums of exp(score - maximum) * value.
template <int ROWS, int COLUMNS> struct SoftmaxRows {
    float maximum[ROWS], sum[ROWS], acc[ROWS][COLUMNS];

    __device__ SoftmaxRows() {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            maximum[r] = LOWEST;
            sum[r] = 0.0f;
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) acc[r][c] = 0.0f;
        }
    }

    // Take in the scores of one more tile (-infinity where a query sees no key): maximum and sum
    // are brought up to date, acc is rescaled, and each score becomes its weight exp(score -
    // maximum).
    template <int KEYS> __device__ void update(float (&score)[ROWS][KEYS]) {
        // TODO 15.2: your code here (the reference: 14 lines).
        NOT_IMPLEMENTED("cuda_flash_attention task 15.2: not implemented yet; see chapter FlashAttention in CUDA");
    }

    // 1 / sum, 0 for a row that saw no key.
    __device__ float share(int r) const {
        // TODO 15.2: your code here (the reference: 1 line).
        NOT_IMPLEMENTED("cuda_flash_attention task 15.2: not implemented yet; see chapter FlashAttention in CUDA");
    }

    // The natural logarithm of the softmax's denominator, -infinity for a row that saw no key.
    __device__ float lse(int r) const {
        // TODO 15.2: your code here (the reference: 1 line).
        NOT_IMPLEMENTED("cuda_flash_attention task 15.2: not implemented yet; see chapter FlashAttention in CUDA");
    }
};
// ANCHOR_END: softmax_rows
