// A warp's sum by groups of lanes that grow, with the shuffle's own width; a block's by atomic
// additions to one number. The reference exchanges partial sums through shared memory.
#pragma once

#include "yaie.cuh"

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffff;

__device__ inline float warp_sum(float value) {
    for (int width = 2; width <= WARP; width *= 2) {
        const int lane = threadIdx.x % width;
        value += __shfl_sync(ALL_LANES, value, (lane + width / 2) % width, width);
    }
    return value;
}

__device__ inline float block_sum(float value, float* partial) {
    if (threadIdx.x == 0) *partial = 0.0f;
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % WARP == 0) atomicAdd(partial, value);
    __syncthreads();
    value = *partial;
    __syncthreads();
    return value;
}
