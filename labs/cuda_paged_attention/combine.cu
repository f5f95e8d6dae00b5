// Lab 16, your part: task 16.4. The rest is given.
// Combine: the parts of each sequence as one softmax.
#include "paged.cuh"

// The largest of a warp's values, and their sum, in every lane: as in lab 14.
__device__ inline float warp_max(float value) {
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

__device__ inline float warp_sum(float value) {
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

// ANCHOR: combine_kernel
// acc: [n, heads, parts, dim]; stats: [n, heads, parts, 2] (maximum, sum); sinks: [heads] or null;
// out: [n, heads, dim]. Grid: (heads, n). Parts without keys were not written: what lies there
// means nothing. gathered: each warp's sum over the parts that it took.
template <typename T>
__global__ void __launch_bounds__(THREADS)
    combine_kernel(const float *acc, const float *stats, const int *seq_lens, const float *sinks,
                   int window, int parts, int keys_per_part, int dim, T *out) {
    __shared__ float gathered[THREADS / WARP][MAX_DIM];
    const int head = blockIdx.x, sequence = blockIdx.y, seq_len = seq_lens[sequence];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int64_t row = int64_t(sequence) * gridDim.x + head;
    const int first = window > 0 ? first_visible(seq_len, window) : 0;
    stats += row * parts * 2;
    acc += row * parts * dim;
    out += row * dim;
    // TODO 16.4: your code here (the reference: 20 lines).
    NOT_IMPLEMENTED("cuda_paged_attention task 16.4: not implemented yet; see chapter Paged attention in CUDA");
}
// ANCHOR_END: combine_kernel

// See PagedAttention.combine in paged_attention.py.
YAIE_API int combine(const float *acc, const float *stats, const int *seq_lens, const float *sinks,
                     void *out, int64_t dtype, int64_t n, int64_t heads, int64_t dim,
                     int64_t parts, int64_t keys_per_part, int64_t window, cudaStream_t stream) {
    DISPATCH(dtype, T,
             return launch(combine_kernel<T>, dim3(heads, n), dim3(THREADS), 0, stream, acc, stats,
                           seq_lens, sinks, window, parts, keys_per_part, dim,
                           static_cast<T *>(out)));
    return 0;
}
