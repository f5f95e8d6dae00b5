// What both kernels of the backward pass need.
#pragma once

#include "mask.cuh"
#include "shapes.cuh"
#include "tiles.cuh"

// Rows of a thread block's own tile for each thread: fewer for large heads, whose sums fill the
// registers.
__host__ __device__ constexpr int rows_for(int columns) { return columns > 8 ? 4 : 8; }

// The tile that comes by has 32 rows.
constexpr int PASSING_COLUMNS = 2, PASSING = PASSING_COLUMNS * COLUMNS_OF_THREADS;

// Floats of shared memory: two own tiles, two that come by, and a tile of weights.
__host__ __device__ constexpr int backward_floats(int columns) {
    const int own = rows_for(columns) * ROWS_OF_THREADS;
    return 2 * (own + PASSING) * (columns * COLUMNS_OF_THREADS + PAD) + own * (PASSING + PAD);
}

// Per query, from the forward pass: lse, and delta, the product of the output with its gradient.
// [n, heads, tq] float32.
struct PerQuery {
    const float *lse, *delta;

    __device__ int64_t at(int sequence, int head, int heads, int query, int tq) const {
        return (int64_t(sequence) * heads + head) * tq + query;
    }
};

// ANCHOR: weight_and_gradient
// From the scaled score of a query with a key and the product of its output's gradient with the
// value: the weight, exp(score - lse), and the gradient of the score, weight * (product - delta).
struct Pair {
    float weight, gradient;
};

__device__ inline Pair weight_and_gradient(float score, float product, float lse, float delta) {
    const float weight = __expf(score - lse);
    return {weight, weight * (product - delta)};
}
// ANCHOR_END: weight_and_gradient
