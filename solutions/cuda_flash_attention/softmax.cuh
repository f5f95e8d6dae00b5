// The softmax of rows that come tile by tile (Milakov and Gimelshein 2018).
#pragma once

#include "tiles.cuh"

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float LOWEST = -1e30f; // where a running maximum starts: LOWEST - LOWEST is 0

// ANCHOR: across_row
// A row of a product lies in the registers of 16 neighbouring lanes. The largest of their values,
// and the sum of their values, in each of them.
__device__ inline float row_max(float value) {
    // BEGIN SOLUTION 15.2
#pragma unroll
    for (int distance = COLUMNS_OF_THREADS / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
    // END SOLUTION
}

__device__ inline float row_sum(float value) {
    // BEGIN SOLUTION 15.2
#pragma unroll
    for (int distance = COLUMNS_OF_THREADS / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
    // END SOLUTION
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
        // BEGIN SOLUTION 15.2
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float largest = score[r][0];
#pragma unroll
            for (int c = 1; c < KEYS; ++c) largest = fmaxf(largest, score[r][c]);
            largest = fmaxf(maximum[r], row_max(largest));
            const float rescale = __expf(maximum[r] - largest);
            maximum[r] = largest;
            float added = 0.0f;
#pragma unroll
            for (int c = 0; c < KEYS; ++c) {
                score[r][c] = __expf(score[r][c] - largest);
                added += score[r][c];
            }
            sum[r] = sum[r] * rescale + row_sum(added);
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) acc[r][c] *= rescale;
        }
        // END SOLUTION
    }

    // 1 / sum, 0 for a row that saw no key.
    __device__ float share(int r) const {
        // BEGIN SOLUTION 15.2
        return sum[r] > 0.0f ? 1.0f / sum[r] : 0.0f;
        // END SOLUTION
    }

    // The natural logarithm of the softmax's denominator, -infinity for a row that saw no key.
    __device__ float lse(int r) const {
        // BEGIN SOLUTION 15.2
        return sum[r] > 0.0f ? maximum[r] + logf(sum[r]) : -INFINITY;
        // END SOLUTION
    }
};
// ANCHOR_END: softmax_rows
