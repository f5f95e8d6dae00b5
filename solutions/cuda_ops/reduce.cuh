// Task 14.1: one sum of what many threads hold.
#pragma once

#include "yaie.cuh"

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffff;

// The sum of `value` over the 32 lanes of this thread's warp, in every lane. All of them call it.
__device__ inline float warp_sum(float value) {
    // BEGIN SOLUTION 14.1
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
    // END SOLUTION
}

// The sum of `value` over all threads of a block of one dimension, in every thread. The number of
// threads is a multiple of 32, at most 1024; all of them call it. partial: 32 floats of shared
// memory. It may be called again at once with the same partial.
__device__ inline float block_sum(float value, float* partial) {
    // BEGIN SOLUTION 14.1
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    value = warp_sum(value);
    __syncthreads();  // Whoever still reads the partial sums of the call before has read them.
    if (lane == 0) partial[warp] = value;
    __syncthreads();  // The partial sums of all warps are there.
    return warp_sum(lane < warps ? partial[lane] : 0.0f);
    // END SOLUTION
}
