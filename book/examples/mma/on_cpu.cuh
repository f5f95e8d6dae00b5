// mma.m16n8k16 without tensor cores: by the table of which lane holds what, with a shuffle for each number.
#pragma once

#include "yaie.cuh"

// The number of a register's lower or upper half, a bfloat16.
__device__ inline float half_of(uint32_t pair, int upper) {
    return __bfloat162float(__ushort_as_bfloat16((unsigned short)(pair >> 16 * upper)));
}

__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int i = 0; i < 4; ++i) {  // row g + 8 * (i / 2) and column 2 * t + i % 2 of C
        for (int k = 0; k < 16; ++k) {
            const int register_of_a = i / 2 + 2 * (k / 8), lane = k % 8 / 2;
            const uint32_t left = __shfl_sync(0xffffffff, a[register_of_a], 4 * g + lane);
            const uint32_t right = __shfl_sync(0xffffffff, b[k / 8], 4 * (2 * t + i % 2) + lane);
            c[i] += half_of(left, k % 2) * half_of(right, k % 2);
        }
    }
}
