// Races, each with the right kernel beside it.
#include "yaie.cuh"

// Sums a block's 64 numbers: without the barrier the last warp's partial sum may not be there yet.
template <bool WAIT> __global__ void block_sum(const float* x, float* out) {
    __shared__ float partial[2];
    float sum = x[threadIdx.x];
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    if (WAIT) __syncthreads();
    if (threadIdx.x == 0) out[0] = partial[0] + partial[1];
}
YAIE_API int missing_barrier(const float* x, float* out, cudaStream_t stream) {
    return launch(block_sum<false>, 1, 64, 0, stream, x, out);
}
YAIE_API int with_barrier(const float* x, float* out, cudaStream_t stream) {
    return launch(block_sum<true>, 1, 64, 0, stream, x, out);
}

// Neighbours within a warp exchange values through shared memory.
template <bool WAIT> __global__ void neighbours(const float* x, float* out) {
    extern __shared__ float row[];
    row[threadIdx.x] = x[threadIdx.x];
    if (WAIT) __syncwarp();
    out[threadIdx.x] = row[threadIdx.x ^ 1];
}
YAIE_API int missing_syncwarp(const float* x, float* out, cudaStream_t stream) {
    return launch(neighbours<false>, 1, 32, 32 * sizeof(float), stream, x, out);
}
YAIE_API int with_syncwarp(const float* x, float* out, cudaStream_t stream) {
    return launch(neighbours<true>, 1, 32, 32 * sizeof(float), stream, x, out);
}

// All blocks add to one number.
template <bool ATOMIC> __global__ void count(float* total) {
    if (threadIdx.x == 0) {
        if (ATOMIC) atomicAdd(total, 1.0f);
        else total[0] += 1.0f;
    }
}
YAIE_API int race_of_blocks(float* total, cudaStream_t stream) {
    return launch(count<false>, 4, 32, 0, stream, total);
}
YAIE_API int atomic_blocks(float* total, cudaStream_t stream) {
    return launch(count<true>, 4, 32, 0, stream, total);
}

// Reads the neighbour's input while the neighbour overwrites it.
__global__ void shift_in_place(float* x) {
    const float next = x[(threadIdx.x + 1) % blockDim.x];
    x[threadIdx.x] = next;
}
YAIE_API int write_after_read(float* x, cudaStream_t stream) {
    return launch(shift_in_place, 1, 64, 0, stream, x);
}

// The last block to finish adds up what all wrote: fence, then atomic, orders it after them.
template <bool FENCE> __global__ void last_block_sums(float* partial, int* done, float* out) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = float(blockIdx.x);
        if (FENCE) __threadfence();
        last = atomicAdd(done, 1) == int(gridDim.x) - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0.0f;
        for (int i = 0; i < int(gridDim.x); ++i) sum += partial[i];
        out[0] = sum;
    }
}
YAIE_API int missing_fence(float* partial, int* done, float* out, cudaStream_t stream) {
    return launch(last_block_sums<false>, 8, 32, 0, stream, partial, done, out);
}
YAIE_API int with_fence(float* partial, int* done, float* out, cudaStream_t stream) {
    return launch(last_block_sums<true>, 8, 32, 0, stream, partial, done, out);
}

// Threads of a warp that write the two halves of one word, and the bytes of one: no race.
__global__ void halves(__half* out, signed char* bytes) {
    out[threadIdx.x] = from_float<__half>(float(threadIdx.x));
    bytes[threadIdx.x] = (signed char)threadIdx.x;
}
YAIE_API int neighbouring_halves(__half* out, signed char* bytes, cudaStream_t stream) {
    return launch(halves, 1, 64, 0, stream, out, bytes);
}

// Atomics, then a plain read by a thread of another warp.
__global__ void histogram_of(const int* x, int* out) {
    __shared__ int bins[4];
    if (threadIdx.x < 4) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[x[threadIdx.x] & 3], 1);
    if (threadIdx.x < 4) out[threadIdx.x] = bins[threadIdx.x];
}
YAIE_API int read_beside_atomic(const int* x, int* out, cudaStream_t stream) {
    return launch(histogram_of, 1, 128, 0, stream, x, out);
}
