// Sums handed down to lane 0 and broadcast from there; the block's sum made by its first warp.
#pragma once

#include "yaie.cuh"

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffff;

__device__ inline float warp_sum(float value) {
    for (int distance = 1; distance < WARP; distance *= 2)
        value += __shfl_down_sync(ALL_LANES, value, distance);
    return __shfl_sync(ALL_LANES, value, 0);
}

__device__ inline float block_sum(float value, float* partial) {
    value = warp_sum(value);
    if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = value;
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < int(blockDim.x) / WARP; ++warp) total += partial[warp];
    __syncthreads();
    return total;
}
