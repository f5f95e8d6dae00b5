// Lab 14, your part: task 14.1. The rest is given.
// Task 14.1: one sum of what many threads hold.
#pragma once

#include "yaie.cuh"

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffff;

// The sum of `value` over the 32 lanes of this thread's warp, in every lane. All of them call it.
__device__ inline float warp_sum(float value) {
    // TODO 14.1: your code here (the reference: 3 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.1: not implemented yet; see chapter CUDA reductions");
}

// The sum of `value` over all threads of a block of one dimension, in every thread. The number of
// threads is a multiple of 32, at most 1024; all of them call it. partial: 32 floats of shared
// memory. It may be called again at once with the same partial.
__device__ inline float block_sum(float value, float* partial) {
    // TODO 14.1: your code here (the reference: 6 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.1: not implemented yet; see chapter CUDA reductions");
}
