// The smallest place of a difference, by atomics in shared memory: 256 entries in a turn, and a
// turn in which no thread finds one is followed by the next. The reference counts votes warp by
// warp.
#include "paged.cuh"

constexpr int ENTRIES = 256;

__global__ void first_difference(const int *tokens, int length, const int *keys,
                                 int64_t key_stride, const int *key_lens, int *out, int64_t n) {
    __shared__ int smallest;
    for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
        const int limit = length < key_lens[row] ? length : key_lens[row];
        if (threadIdx.x == 0) smallest = limit;
        __syncthreads();
        for (int first = 0; first < limit; first += ENTRIES) {
            const int i = first + int(threadIdx.x);
            const bool differs = i < limit && tokens[i] != keys[row * key_stride + i];
            if (differs) atomicMin(&smallest, i);
            if (__syncthreads_or(differs)) break;
        }
        if (threadIdx.x == 0) out[row] = smallest;
        __syncthreads();
    }
}

YAIE_API int longest_common_prefix(const int *tokens, const int *keys, const int *key_lens,
                                   int *out, int64_t length, int64_t key_stride, int64_t n,
                                   cudaStream_t stream) {
    return launch(first_difference, dim3(n < 1000 ? n : 1000), dim3(ENTRIES), 0, stream, tokens,
                  length, keys, key_stride, key_lens, out, n);
}
