// Lab 14, your part: task 14.4. The rest is given.
// Task 14.4: silu(gate) * up (Shazeer 2020), number by number.
#include <algorithm>

#include "pack.cuh"

// ANCHOR: silu_mul
// silu(gate) * up, with the product's first factor rounded, as two operations of PyTorch would.
template <typename T> __device__ T silu_mul_one(T gate, T up) {
    const float x = to_float(gate);
    return from_float<T>(to_float(from_float<T>(__fdividef(x, 1.0f + __expf(-x)))) * to_float(up));
}
// ANCHOR_END: silu_mul

// Any d and any alignment, a number at a time; rows.d is 2 * d. Block (part of the row, row): neighbours in time are
// neighbours in memory.
template <typename T>
__global__ void silu_mul_single_kernel(const T* x, T* out, Rows rows) {
    // TODO 14.4: your code here (the reference: 7 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.4: not implemented yet; see chapter CUDA reductions");
}

template <typename T>
__global__ void silu_mul_kernel(const T* x, T* out, Rows rows) {
    // TODO 14.4: your code here (the reference: 10 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.4: not implemented yet; see chapter CUDA reductions");
}

// x: rows of two_d = 2 * d numbers, [gate | up], placed as in rms_norm. out: [count, d].
YAIE_API int silu_mul(const void* x, void* out, int64_t count, int64_t per_token, int64_t stride,
                      int64_t two_d, int64_t dtype, cudaStream_t stream) {
    // TODO 14.4: your code here (the reference: 13 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.4: not implemented yet; see chapter CUDA reductions");
}
