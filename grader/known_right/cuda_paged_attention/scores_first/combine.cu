// Combine with an online softmax over the parts, in one pass.
#include "paged.cuh"

template <typename T>
__global__ void combine_kernel(const float *acc, const float *stats, const int *seq_lens,
                               const float *sinks, int window, int parts, int keys_per_part,
                               int dim, T *out) {
    const int head = blockIdx.x, sequence = blockIdx.y, seq_len = seq_lens[sequence];
    const int visible = seq_len - (window > 0 ? first_visible(seq_len, window) : 0);
    const int64_t row = int64_t(sequence) * gridDim.x + head;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        float maximum = LOWEST, sum = 0.0f, total = 0.0f;
        if (sinks != nullptr) {
            maximum = sinks[head];
            sum = 1.0f;
        }
        for (int part = 0; part < parts && part * keys_per_part < visible; ++part) {
            const float theirs = stats[(row * parts + part) * 2];
            const float largest = fmaxf(maximum, theirs);
            const float old = __expf(maximum - largest), added = __expf(theirs - largest);
            maximum = largest;
            sum = sum * old + added * stats[(row * parts + part) * 2 + 1];
            total = total * old + added * acc[(row * parts + part) * dim + i];
        }
        out[row * dim + i] = from_float<T>(visible > 0 ? total / sum : 0.0f);
    }
}

YAIE_API int combine(const float *acc, const float *stats, const int *seq_lens, const float *sinks,
                     void *out, int64_t dtype, int64_t n, int64_t heads, int64_t dim,
                     int64_t parts, int64_t keys_per_part, int64_t window, cudaStream_t stream) {
    DISPATCH(dtype, T,
             return launch(combine_kernel<T>, dim3(heads, n), dim3(64), 0, stream, acc, stats,
                           seq_lens, sinks, window, parts, keys_per_part, dim,
                           static_cast<T *>(out)));
    return 0;
}
