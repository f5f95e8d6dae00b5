// Lab 16, your part: task 16.5. The rest is given.
// The radix tree's question, put to many keys at once: how long is the common prefix?
#include "paged.cuh"

// ANCHOR: prefix_kernel
// tokens: [length]; keys: [n, width], row i of which has key_lens[i] real entries; out: [n].
// Grid: n. A thread block compares THREADS entries of its row at a time, until one differs.
__global__ void __launch_bounds__(THREADS)
    prefix_kernel(const int *tokens, int length, const int *keys, int64_t key_stride,
                  const int *key_lens, int *out) {
    __shared__ int first_difference[THREADS / WARP]; // in each warp's 32 entries; 32 if none
    const int *key = keys + blockIdx.x * key_stride;
    const int limit = min(length, key_lens[blockIdx.x]);
    const int warp = int(threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    // TODO 16.5: your code here (the reference: 17 lines).
    NOT_IMPLEMENTED("cuda_paged_attention task 16.5: not implemented yet; see chapter Paged attention in CUDA");
}
// ANCHOR_END: prefix_kernel

// See PrefixKernel in paged_attention.py.
YAIE_API int longest_common_prefix(const int *tokens, const int *keys, const int *key_lens,
                                   int *out, int64_t length, int64_t key_stride, int64_t n,
                                   cudaStream_t stream) {
    return launch(prefix_kernel, dim3(n), dim3(THREADS), 0, stream, tokens, length, keys,
                  key_stride, key_lens, out);
}
