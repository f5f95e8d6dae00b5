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
    // BEGIN SOLUTION 14.4
    const int64_t d = rows.d / 2;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= d) return;
    for (int64_t row = blockIdx.y; row < rows.count; row += gridDim.y) {
        const T* gate = x + rows.start(row);
        out[row * d + i] = silu_mul_one(gate[i], gate[d + i]);
    }
    // END SOLUTION
}

template <typename T>
__global__ void silu_mul_kernel(const T* x, T* out, Rows rows) {
    // BEGIN SOLUTION 14.4
    const int64_t packs = rows.d / 2 / Pack<T>::SIZE;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= packs) return;
    for (int64_t row = blockIdx.y; row < rows.count; row += gridDim.y) {
        const Pack<T>* gates = reinterpret_cast<const Pack<T>*>(x + rows.start(row));
        Pack<T> gate = gates[i];
        const Pack<T> up = gates[packs + i];
#pragma unroll
        for (int e = 0; e < Pack<T>::SIZE; ++e) gate.at[e] = silu_mul_one(gate.at[e], up.at[e]);
        reinterpret_cast<Pack<T>*>(out)[row * packs + i] = gate;
    }
    // END SOLUTION
}

// x: rows of two_d = 2 * d numbers, [gate | up], placed as in rms_norm. out: [count, d].
YAIE_API int silu_mul(const void* x, void* out, int64_t count, int64_t per_token, int64_t stride,
                      int64_t two_d, int64_t dtype, cudaStream_t stream) {
    // BEGIN SOLUTION 14.4
    constexpr int64_t THREADS = 256;
    const Rows rows{count, per_token, stride, two_d};
    int error = 0;
    DISPATCH(dtype, T, {
        const int64_t bytes = sizeof(T);
        const bool fit =
            packs_fit({address(x), address(out), stride * bytes, two_d / 2 * bytes});
        const int64_t work = fit ? two_d / 2 / Pack<T>::SIZE : two_d / 2;
        const dim3 grid(ceil_div(work, THREADS), std::min(count, LARGEST_GRID_YZ));
        error = launch(fit ? silu_mul_kernel<T> : silu_mul_single_kernel<T>, grid, dim3(THREADS), 0,
                       stream, (const T*)x, (T*)out, rows);
    });
    return error;
    // END SOLUTION
}
