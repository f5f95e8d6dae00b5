// A block of 64 threads has a head; each finds maximum and sum by itself, and the weights of 64
// parts at a time lie in shared memory, divided by the sum. The reference's warps have parts of
// their own.
#include "paged.cuh"

constexpr int AT_ONCE = 64;

template <typename T>
__global__ void combine_head(const float *acc, const float *stats, const int *seq_lens,
                             const float *sinks, int window, int parts, int keys_per_part, int dim,
                             T *out) {
    __shared__ float weights[AT_ONCE];
    const int64_t row = blockIdx.x;
    const int heads = gridDim.y, head = blockIdx.y;
    const int64_t at = (row * heads + head) * parts;
    int visible = seq_lens[row];
    if (window > 0 && visible > window) visible = window;
    const int used = (visible + keys_per_part - 1) / keys_per_part;
    // Each thread finds maximum and sum by itself: two numbers a part are little.
    float maximum = LOWEST, sum = 0.0f;
    for (int part = 0; part < used; ++part) maximum = fmaxf(maximum, stats[(at + part) * 2]);
    if (sinks) maximum = fmaxf(maximum, sinks[head]);
    for (int part = 0; part < used; ++part)
        sum += stats[(at + part) * 2 + 1] * expf(stats[(at + part) * 2] - maximum);
    if (sinks) sum += expf(sinks[head] - maximum);
    float totals[MAX_DIM / 64];
    for (float &total : totals) total = 0.0f;
    for (int first = 0; first < used; first += AT_ONCE) {
        const int count = min(AT_ONCE, used - first);
        __syncthreads();
        if (threadIdx.x < count)
            weights[threadIdx.x] = expf(stats[(at + first + threadIdx.x) * 2] - maximum) / sum;
        __syncthreads();
        for (int j = 0; j * 64 + threadIdx.x < dim; ++j)
            for (int part = 0; part < count; ++part)
                totals[j] += weights[part] * acc[(at + first + part) * dim + j * 64 + threadIdx.x];
    }
    for (int j = 0; j * 64 + threadIdx.x < dim; ++j)
        out[(row * heads + head) * dim + j * 64 + threadIdx.x] = from_float<T>(totals[j]);
}

YAIE_API int combine(const float *acc, const float *stats, const int *seq_lens, const float *sinks,
                     void *out, int64_t dtype, int64_t n, int64_t heads, int64_t dim,
                     int64_t parts, int64_t keys_per_part, int64_t window, cudaStream_t stream) {
    DISPATCH(dtype, T,
             return launch(combine_head<T>, dim3(n, heads), dim3(64), 0, stream, acc, stats,
                           seq_lens, sinks, window, parts, keys_per_part, dim,
                           static_cast<T *>(out)));
    return 0;
}
