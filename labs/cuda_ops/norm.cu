// Lab 14, your part: tasks 14.2, 14.3. The rest is given.
// Tasks 14.2 and 14.3: RMSNorm (Zhang and Sennrich 2019), alone and after an addition.
#include <algorithm>

#include "pack.cuh"
#include "reduce.cuh"

// ANCHOR: layout
// How threads share rows: `threads` for each row, of which each keeps up to `kept` packs in
// registers; `rows` rows a block, more than one only where a row has a single warp. kept is 0 where
// packs do not fit, or where a row is too long for registers.
struct Layout {
    int kept;
    int64_t threads, rows;

    dim3 block() const { return dim3(threads, rows); }
    dim3 grid(int64_t count) const { return dim3(ceil_div(count, rows)); }
};
// ANCHOR_END: layout

constexpr int64_t MOST_THREADS = 512;
constexpr int MOST_KEPT = 4;

// packs: of a row; 0 if packs do not fit. threads: how many would be best for a long row, and how
// many a row has where kept is 0.
static Layout layout_of(int64_t packs, int64_t threads) {
    // TODO 14.2: your code here (the reference: 6 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.2: not implemented yet; see chapter CUDA reductions");
}

#define DISPATCH_KEPT(kept, K, ...)                                                                \
    do {                                                                                           \
        if ((kept) == 1) { constexpr int K = 1; __VA_ARGS__; }                                     \
        else if ((kept) == 2) { constexpr int K = 2; __VA_ARGS__; }                                \
        else { constexpr int K = MOST_KEPT; __VA_ARGS__; }                                         \
    } while (0)

// ANCHOR: normalised
// One number of the result: rounded to its dtype before the weight, as in Llama's own code.
template <typename T> __device__ T normalised(float x, float scale, T weight) {
    return from_float<T>(to_float(from_float<T>(x * scale)) * to_float(weight));
}

template <typename T> __device__ Pack<T> normalised(Pack<T> x, float scale, Pack<T> weight) {
#pragma unroll
    for (int e = 0; e < Pack<T>::SIZE; ++e)
        x.at[e] = normalised(to_float(x.at[e]), scale, weight.at[e]);
    return x;
}
// ANCHOR_END: normalised

template <typename T> __device__ float sum_of_squares(Pack<T> x) {
    // TODO 14.2: your code here (the reference: 3 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.2: not implemented yet; see chapter CUDA reductions");
}

// The sum over the threads that share a row; see Layout.
__device__ inline float row_sum(float value, float* partial) {
    // TODO 14.2: your code here (the reference: 1 line).
    NOT_IMPLEMENTED("cuda_ops task 14.2: not implemented yet; see chapter CUDA reductions");
}

// Any d, any alignment: the row is read twice, a number at a time. One block for each row.
template <typename T>
__global__ void rms_norm_long_kernel(const T* x, const T* weight, T* out, Rows rows, float eps) {
    // TODO 14.2: your code here (the reference: 8 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.2: not implemented yet; see chapter CUDA reductions");
}

// The row is read once: thread x of a row keeps its packs x, x + threads, ... in registers until
// the sum is known.
template <typename T, int K>
__global__ void __launch_bounds__(MOST_THREADS)
    rms_norm_kernel(const T* x, const T* weight, T* out, Rows rows, float eps) {
    // TODO 14.2: your code here (the reference: 26 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.2: not implemented yet; see chapter CUDA reductions");
}

// x: rows of d numbers, per_token of them contiguous, a token's `stride` numbers after the last
// one's. weight: [d]. out: [count, d].
YAIE_API int rms_norm(const void* x, const void* weight, void* out, int64_t count,
                      int64_t per_token, int64_t stride, int64_t d, float eps, int64_t dtype,
                      cudaStream_t stream) {
    // TODO 14.2: your code here (the reference: 17 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.2: not implemented yet; see chapter CUDA reductions");
}

template <typename T>
__global__ void fused_add_rms_norm_long_kernel(T* x, T* residual, const T* weight, Rows x_rows,
                                               Rows residual_rows, float eps) {
    // TODO 14.3: your code here (the reference: 11 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.3: not implemented yet; see chapter CUDA reductions");
}

template <typename T, int K>
__global__ void __launch_bounds__(MOST_THREADS)
    fused_add_rms_norm_kernel(T* x, T* residual, const T* weight, Rows x_rows, Rows residual_rows,
                              float eps) {
    // TODO 14.3: your code here (the reference: 36 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.3: not implemented yet; see chapter CUDA reductions");
}

// As rms_norm, of x + residual: the norm is written over x, the sum over residual.
YAIE_API int fused_add_rms_norm(void* x, void* residual, const void* weight, int64_t count,
                                int64_t per_token, int64_t x_stride, int64_t residual_stride,
                                int64_t d, float eps, int64_t dtype, cudaStream_t stream) {
    // TODO 14.3: your code here (the reference: 19 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.3: not implemented yet; see chapter CUDA reductions");
}
