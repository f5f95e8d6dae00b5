// Copies and transposes whose traffic is known.
#include "yaie.cuh"

// Thread t takes element t * stride: neighbours in a warp are `stride` floats apart.
__global__ void copy(const float* x, float* out, int stride) {
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) * stride;
    out[i] = x[i];
}
YAIE_API int copy_strided(const float* x, float* out, int64_t blocks, int64_t stride,
                          cudaStream_t stream) {
    return launch(copy, int(blocks), 64, 0, stream, x, out, int(stride));
}

__global__ void copy_four(const float* x, float* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    reinterpret_cast<float4*>(out)[i] = reinterpret_cast<const float4*>(x)[i];
}
YAIE_API int copy_vectors_of_four(const float* x, float* out, int64_t blocks, cudaStream_t stream) {
    return launch(copy_four, int(blocks), 64, 0, stream, x, out);
}

__global__ void broadcast(const float* x, float* out) { out[threadIdx.x] = x[0]; }
YAIE_API int all_read_one(const float* x, float* out, cudaStream_t stream) {
    return launch(broadcast, 1, 32, 0, stream, x, out);
}

// Transposes 32 x 32 floats by way of shared memory: written by rows, read by columns.
template <int WIDTH> __global__ void transpose(const float* x, float* out) {
    __shared__ float tile[32][WIDTH];
    for (int row = 0; row < 32; ++row) tile[row][threadIdx.x] = x[row * 32 + threadIdx.x];
    __syncthreads();
    for (int row = 0; row < 32; ++row) out[row * 32 + threadIdx.x] = tile[threadIdx.x][row];
}
YAIE_API int transpose_conflicting(const float* x, float* out, cudaStream_t stream) {
    return launch(transpose<32>, 1, 32, 0, stream, x, out);
}
YAIE_API int transpose_padded(const float* x, float* out, cudaStream_t stream) {
    return launch(transpose<33>, 1, 32, 0, stream, x, out);
}

__global__ void shared_vectors(float4* out) {
    __shared__ float4 row[32];
    row[threadIdx.x] = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
    __syncwarp();
    out[threadIdx.x] = row[threadIdx.x];
}
YAIE_API int shared_vectors_of_four(float* out, cudaStream_t stream) {
    return launch(shared_vectors, 1, 32, 0, stream, reinterpret_cast<float4*>(out));
}

__global__ void add_up(int* total) {
    int value = __reduce_add_sync(0xffffffff, int(threadIdx.x));
    if (threadIdx.x % 32 == 0) atomicAdd(total, value);
    __syncthreads();
    __syncthreads();
}
YAIE_API int barriers_and_atomics(int* total, int64_t blocks, cudaStream_t stream) {
    return launch(add_up, int(blocks), 64, 0, stream, total);
}
