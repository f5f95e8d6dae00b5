// The softmax of rows in powers of two, with maxima that begin at -infinity.
#pragma once

#include "tiles.cuh"

constexpr float LOG2_E = 1.44269504f;

__device__ inline float row_max(float value) {
    for (int distance = 1; distance < COLUMNS_OF_THREADS; distance *= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
}

__device__ inline float row_sum(float value) {
    for (int distance = 1; distance < COLUMNS_OF_THREADS; distance *= 2)
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

template <int ROWS, int COLUMNS> struct SoftmaxRows {
    float maximum[ROWS], sum[ROWS], acc[ROWS][COLUMNS];

    __device__ SoftmaxRows() {
        for (int r = 0; r < ROWS; ++r) {
            maximum[r] = -INFINITY;
            sum[r] = 0.0f;
            for (int c = 0; c < COLUMNS; ++c) acc[r][c] = 0.0f;
        }
    }

    template <int KEYS> __device__ void update(float (&score)[ROWS][KEYS]) {
        for (int r = 0; r < ROWS; ++r) {
            float largest = maximum[r];
            for (int c = 0; c < KEYS; ++c) largest = fmaxf(largest, LOG2_E * score[r][c]);
            largest = row_max(largest);
            const float subtracted = largest == -INFINITY ? 0.0f : largest;
            const float rescale = exp2f(maximum[r] - subtracted);
            sum[r] *= rescale;
            for (int c = 0; c < COLUMNS; ++c) acc[r][c] *= rescale;
            float added = 0.0f;
            for (int c = 0; c < KEYS; ++c)
                added += score[r][c] = exp2f(LOG2_E * score[r][c] - subtracted);
            sum[r] += row_sum(added);
            maximum[r] = largest;
        }
    }

    __device__ float share(int r) const { return sum[r] == 0.0f ? 0.0f : 1.0f / sum[r]; }

    __device__ float lse(int r) const { return (maximum[r] + log2f(sum[r])) / LOG2_E; }
};
