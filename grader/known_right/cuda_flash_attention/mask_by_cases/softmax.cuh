// The softmax of rows with shuffles inside 16 lanes, whose first lane hands the result round;
// weights first, and the old sums are rescaled only where the maximum rose. The reference exchanges
// with xor.
#pragma once

#include "tiles.cuh"

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float LOWEST = -1e30f; // where a running maximum starts: LOWEST - LOWEST is 0

// A row of a product lies in the registers of 16 neighbouring lanes. The largest of their values,
// and the sum of their values, in each of them.
__device__ inline float row_max(float value) {
    for (int distance = 8; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_down_sync(ALL_LANES, value, distance, COLUMNS_OF_THREADS));
    return __shfl_sync(ALL_LANES, value, 0, COLUMNS_OF_THREADS);
}

__device__ inline float row_sum(float value) {
    for (int distance = 8; distance > 0; distance /= 2)
        value += __shfl_down_sync(ALL_LANES, value, distance, COLUMNS_OF_THREADS);
    return __shfl_sync(ALL_LANES, value, 0, COLUMNS_OF_THREADS);
}

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
        for (int r = 0; r < ROWS; ++r) {
            float tile = -INFINITY;
            for (int c = KEYS; c > 0; --c) tile = fmaxf(score[r][c - 1], tile);
            tile = row_max(tile);
            if (tile > maximum[r]) { // for all lanes of the row, or for none
                const float rescale = expf(maximum[r] - tile);
                sum[r] *= rescale;
                for (int c = 0; c < COLUMNS; ++c) acc[r][c] *= rescale;
                maximum[r] = tile;
            }
            float added = 0.0f;
            for (int c = 0; c < KEYS; ++c) added += score[r][c] = expf(score[r][c] - maximum[r]);
            sum[r] += row_sum(added);
        }
    }

    // 1 / sum, 0 for a row that saw no key.
    __device__ float share(int r) const {
        return sum[r] > 0.0f ? 1.0f / sum[r] : 0.0f;
    }

    // The natural logarithm of the softmax's denominator, -infinity for a row that saw no key.
    __device__ float lse(int r) const {
        return sum[r] > 0.0f ? maximum[r] + logf(sum[r]) : -INFINITY;
    }
};
