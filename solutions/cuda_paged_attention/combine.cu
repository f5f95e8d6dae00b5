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
    // BEGIN SOLUTION 16.4
    const int used = (seq_len - first + keys_per_part - 1) / keys_per_part;
    float maximum = sinks != nullptr ? sinks[head] : LOWEST, sum = 0.0f;
    for (int part = lane; part < used; part += WARP) maximum = fmaxf(maximum, stats[part * 2]);
    maximum = warp_max(maximum);
    for (int part = lane; part < used; part += WARP)
        sum += __expf(stats[part * 2] - maximum) * stats[part * 2 + 1];
    sum = warp_sum(sum);
    if (sinks != nullptr) sum += __expf(sinks[head] - maximum);
    for (int i = lane; i < dim; i += WARP) {
        float total = 0.0f;
#pragma unroll 8
        for (int part = warp; part < used; part += THREADS / WARP)
            total += __expf(stats[part * 2] - maximum) * acc[part * dim + i];
        gathered[warp][i] = total;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < dim; i += THREADS) {
        float total = 0.0f;
        for (int other = 0; other < THREADS / WARP; ++other) total += gathered[other][i];
        out[i] = from_float<T>(used > 0 ? total / sum : 0.0f);
    }
    // END SOLUTION
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
