// Accesses outside of what is a kernel's own.
#include "yaie.cuh"

template <bool MASKED> __global__ void double_all(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (MASKED && i >= n) return;
    out[i] = 2.0f * x[i];
}
YAIE_API int unmasked_tail(const float* x, float* out, int64_t n, cudaStream_t stream) {
    return launch(double_all<false>, int((n + 63) / 64), 64, 0, stream, x, out, int(n));
}
YAIE_API int masked_tail(const float* x, float* out, int64_t n, cudaStream_t stream) {
    return launch(double_all<true>, int((n + 63) / 64), 64, 0, stream, x, out, int(n));
}

__global__ void shift_left(const float* x, float* out) {
    out[threadIdx.x] = x[int(threadIdx.x) - 1];
}
YAIE_API int before_the_start(const float* x, float* out, cudaStream_t stream) {
    return launch(shift_left, 1, 32, 0, stream, x, out);
}

// Copies rows of a strided view as if they lay side by side.
__global__ void copy_rows(const float* x, float* out, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = x[i];
}
YAIE_API int ignores_strides(const float* x, float* out, int64_t n, cudaStream_t stream) {
    return launch(copy_rows, 1, 32, 0, stream, x, out, int(n));
}

__global__ void fill_shared(float* out) {
    extern __shared__ float scratch[];
    scratch[threadIdx.x] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = scratch[threadIdx.x];
}
YAIE_API int too_little_shared(float* out, cudaStream_t stream) {
    return launch(fill_shared, 1, 64, 32 * sizeof(float), stream, out);
}
YAIE_API int enough_shared(float* out, cudaStream_t stream) {
    return launch(fill_shared, 1, 64, 64 * sizeof(float), stream, out);
}

__global__ void fill_tile(float* out) {
    __shared__ float tile[4][8];
    tile[threadIdx.x / 8][threadIdx.x % 8 + 1] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x / 8][threadIdx.x % 8];
}
YAIE_API int static_index(float* out, cudaStream_t stream) {
    return launch(fill_tile, 1, 32, 0, stream, out);
}

__global__ void read_unwritten(float* out) {
    __shared__ float row[32];
    if (threadIdx.x < 31) row[threadIdx.x] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = row[threadIdx.x];
}
YAIE_API int uninitialized(float* out, cudaStream_t stream) {
    return launch(read_unwritten, 2, 32, 0, stream, out);
}

__global__ void copy_vectors(const float* x, float* out) {
    *reinterpret_cast<float4*>(out + 4 * threadIdx.x) =
        *reinterpret_cast<const float4*>(x + 4 * threadIdx.x);
}
YAIE_API int misaligned(const float* x, float* out, cudaStream_t stream) {
    return launch(copy_vectors, 1, 8, 0, stream, x, out);
}

__global__ void write_one(float* out) { out[0] = 1.0f; }
YAIE_API int null_pointer(float* out, cudaStream_t stream) {
    return launch(write_one, 1, 1, 0, stream, out);
}

YAIE_API int host_reads(const float* x, float* out, cudaStream_t stream) {
    if (x[0] > 0.0f) return launch(write_one, 1, 1, 0, stream, out);
    return 0;
}

__device__ int deep(int n, float* out) {
    volatile float local[1024];
    local[n % 1024] = out[0];
    return n == 0 ? 0 : deep(n - 1, out) + int(local[n % 1024]);
}
__global__ void recurse(float* out) { out[0] = float(deep(100, out)); }
YAIE_API int stack_overflow(float* out, cudaStream_t stream) {
    return launch(recurse, 1, 1, 0, stream, out);
}

// Asks its bound after it has read. What was read is used only within the bound.
__global__ void double_late(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float value = x[i];
    if (i >= n) return;
    out[i] = 2.0f * value;
}
YAIE_API int late_bound(const float* x, float* out, int64_t n, cudaStream_t stream) {
    return launch(double_late, int((n + 63) / 64), 64, 0, stream, x, out, int(n));
}
