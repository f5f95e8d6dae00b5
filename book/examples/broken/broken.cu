// Four kernels, each with one thing wrong that a GPU may let pass. Run by broken_kernels.py.
#include "yaie.cuh"

// ANCHOR: block_sum
// The sum of a block's 64 numbers: a sum in each warp, then a sum of the two sums.
__global__ void block_sum(const float* x, float* out) {
    __shared__ float partial[2];
    float sum = x[threadIdx.x];
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    if (threadIdx.x == 0) out[0] = partial[0] + partial[1];
}
// ANCHOR_END: block_sum
YAIE_API int missing_barrier(const float* x, float* out, cudaStream_t stream) {
    return launch(block_sum, 1, 64, 0, stream, x, out);
}

__global__ void double_all(const float* x, float* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 2.0f * x[i];
}
YAIE_API int unmasked_tail(const float* x, float* out, int64_t n, cudaStream_t stream) {
    return launch(double_all, int((n + 63) / 64), 64, 0, stream, x, out);
}

__global__ void reverse(const float* x, float* out, int n) {
    __shared__ float row[64];
    if (int(threadIdx.x) >= n) return;
    row[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = row[n - 1 - threadIdx.x];
}
YAIE_API int early_return(const float* x, float* out, int64_t n, cudaStream_t stream) {
    return launch(reverse, 1, 64, 0, stream, x, out, int(n));
}

__global__ void copy_vectors(const float* x, float* out) {
    const int i = 4 * threadIdx.x;
    *reinterpret_cast<float4*>(out + i) = *reinterpret_cast<const float4*>(x + i);
}
YAIE_API int odd_row(const float* x, float* out, cudaStream_t stream) {
    return launch(copy_vectors, 1, 8, 0, stream, x, out);
}
