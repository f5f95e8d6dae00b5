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
    // BEGIN SOLUTION 14.2
    constexpr int64_t WARPS_A_BLOCK = 4, ONE_WARP = 64;
    if (packs == 0 || packs > MOST_KEPT * MOST_THREADS) return {0, threads, 1};
    if (packs <= ONE_WARP) return {int(ceil_div(packs, WARP)), WARP, WARPS_A_BLOCK};
    int kept = 1;
    while (kept < MOST_KEPT && packs > kept * threads) kept *= 2;
    return {kept, ceil_div(ceil_div(packs, kept), WARP) * WARP, 1};
    // END SOLUTION
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
    // BEGIN SOLUTION 14.2
    float total = 0.0f;
#pragma unroll
    for (int e = 0; e < Pack<T>::SIZE; ++e) total += to_float(x.at[e]) * to_float(x.at[e]);
    return total;
    // END SOLUTION
}

// The sum over the threads that share a row; see Layout.
__device__ inline float row_sum(float value, float* partial) {
    // BEGIN SOLUTION 14.2
    return blockDim.x == WARP ? warp_sum(value) : block_sum(value, partial);
    // END SOLUTION
}

// Any d, any alignment: the row is read twice, a number at a time. One block for each row.
template <typename T>
__global__ void rms_norm_long_kernel(const T* x, const T* weight, T* out, Rows rows, float eps) {
    // BEGIN SOLUTION 14.2
    __shared__ float partial[WARP];
    const T* row = x + rows.start(blockIdx.x);
    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < rows.d; i += blockDim.x)
        squares += to_float(row[i]) * to_float(row[i]);
    const float scale = rsqrtf(row_sum(squares, partial) / rows.d + eps);
    for (int64_t i = threadIdx.x; i < rows.d; i += blockDim.x)
        out[blockIdx.x * rows.d + i] = normalised(to_float(row[i]), scale, weight[i]);
    // END SOLUTION
}

// The row is read once: thread x of a row keeps its packs x, x + threads, ... in registers until
// the sum is known.
template <typename T, int K>
__global__ void __launch_bounds__(MOST_THREADS)
    rms_norm_kernel(const T* x, const T* weight, T* out, Rows rows, float eps) {
    // BEGIN SOLUTION 14.2
    __shared__ float partial[WARP];
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows.count) return;  // A whole warp, and never one of a block that has a barrier.
    const Pack<T>* from = reinterpret_cast<const Pack<T>*>(x + rows.start(row));
    const Pack<T>* weights = reinterpret_cast<const Pack<T>*>(weight);
    Pack<T>* to = reinterpret_cast<Pack<T>*>(out + row * rows.d);
    const int packs = int(rows.d / Pack<T>::SIZE);

    Pack<T> kept[K], weighed[K];
#pragma unroll
    for (int j = 0; j < K; ++j) {
        const int i = threadIdx.x + j * blockDim.x;
        if (i < packs) kept[j] = from[i];
    }
#pragma unroll
    for (int j = 0; j < K; ++j) {
        const int i = threadIdx.x + j * blockDim.x;
        if (i < packs) weighed[j] = weights[i];
    }
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < K; ++j) {
        if (threadIdx.x + j * blockDim.x < packs) squares += sum_of_squares(kept[j]);
    }
    const float scale = rsqrtf(row_sum(squares, partial) / rows.d + eps);
#pragma unroll
    for (int j = 0; j < K; ++j) {
        const int i = threadIdx.x + j * blockDim.x;
        kept[j] = normalised(kept[j], scale, weighed[j]);
        if (i < packs) to[i] = kept[j];
    }
    // END SOLUTION
}

// x: rows of d numbers, per_token of them contiguous, a token's `stride` numbers after the last
// one's. weight: [d]. out: [count, d].
YAIE_API int rms_norm(const void* x, const void* weight, void* out, int64_t count,
                      int64_t per_token, int64_t stride, int64_t d, float eps, int64_t dtype,
                      cudaStream_t stream) {
    // BEGIN SOLUTION 14.2
    const Rows rows{count, per_token, stride, d};
    int error = 0;
    DISPATCH(dtype, T, {
        const int64_t bytes = sizeof(T);
        const bool fit = packs_fit(
            {address(x), address(weight), address(out), stride * bytes, d * bytes});
        const Layout layout = layout_of(fit ? d / Pack<T>::SIZE : 0, 128);
        if (layout.kept == 0)
            error = launch(rms_norm_long_kernel<T>, dim3(count), layout.block(), 0, stream,
                           (const T*)x, (const T*)weight, (T*)out, rows, eps);
        else
            DISPATCH_KEPT(layout.kept, K,
                          error = launch(rms_norm_kernel<T, K>, layout.grid(count), layout.block(),
                                         0, stream, (const T*)x, (const T*)weight, (T*)out, rows,
                                         eps));
    });
    return error;
    // END SOLUTION
}

template <typename T>
__global__ void fused_add_rms_norm_long_kernel(T* x, T* residual, const T* weight, Rows x_rows,
                                               Rows residual_rows, float eps) {
    // BEGIN SOLUTION 14.3
    __shared__ float partial[WARP];
    T* normed = x + x_rows.start(blockIdx.x);
    T* total = residual + residual_rows.start(blockIdx.x);
    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < x_rows.d; i += blockDim.x) {
        total[i] = from_float<T>(to_float(total[i]) + to_float(normed[i]));
        squares += to_float(total[i]) * to_float(total[i]);
    }
    const float scale = rsqrtf(row_sum(squares, partial) / x_rows.d + eps);
    for (int64_t i = threadIdx.x; i < x_rows.d; i += blockDim.x)
        normed[i] = normalised(to_float(total[i]), scale, weight[i]);
    // END SOLUTION
}

template <typename T, int K>
__global__ void __launch_bounds__(MOST_THREADS)
    fused_add_rms_norm_kernel(T* x, T* residual, const T* weight, Rows x_rows, Rows residual_rows,
                              float eps) {
    // BEGIN SOLUTION 14.3
    __shared__ float partial[WARP];
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= x_rows.count) return;
    Pack<T>* normed = reinterpret_cast<Pack<T>*>(x + x_rows.start(row));
    Pack<T>* total = reinterpret_cast<Pack<T>*>(residual + residual_rows.start(row));
    const Pack<T>* weights = reinterpret_cast<const Pack<T>*>(weight);
    const int packs = int(x_rows.d / Pack<T>::SIZE);

    Pack<T> kept[K], added[K], weighed[K];
#pragma unroll
    for (int j = 0; j < K; ++j) {
        const int i = threadIdx.x + j * blockDim.x;
        if (i < packs) {
            kept[j] = total[i];
            added[j] = normed[i];
        }
    }
#pragma unroll
    for (int j = 0; j < K; ++j) {
        const int i = threadIdx.x + j * blockDim.x;
        if (i < packs) weighed[j] = weights[i];
    }
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < K; ++j) {
        const int i = threadIdx.x + j * blockDim.x;
        if (i < packs) {
#pragma unroll
            for (int e = 0; e < Pack<T>::SIZE; ++e)
                kept[j].at[e] =
                    from_float<T>(to_float(kept[j].at[e]) + to_float(added[j].at[e]));
            squares += sum_of_squares(kept[j]);
            total[i] = kept[j];
        }
    }
    const float scale = rsqrtf(row_sum(squares, partial) / x_rows.d + eps);
#pragma unroll
    for (int j = 0; j < K; ++j) {
        const int i = threadIdx.x + j * blockDim.x;
        kept[j] = normalised(kept[j], scale, weighed[j]);
        if (i < packs) normed[i] = kept[j];
    }
    // END SOLUTION
}

// As rms_norm, of x + residual: the norm is written over x, the sum over residual.
YAIE_API int fused_add_rms_norm(void* x, void* residual, const void* weight, int64_t count,
                                int64_t per_token, int64_t x_stride, int64_t residual_stride,
                                int64_t d, float eps, int64_t dtype, cudaStream_t stream) {
    // BEGIN SOLUTION 14.3
    const Rows x_rows{count, per_token, x_stride, d};
    const Rows residual_rows{count, per_token, residual_stride, d};
    int error = 0;
    DISPATCH(dtype, T, {
        const int64_t bytes = sizeof(T);
        const bool fit = packs_fit({address(x), address(residual), address(weight),
                                    x_stride * bytes, residual_stride * bytes, d * bytes});
        const Layout layout = layout_of(fit ? d / Pack<T>::SIZE : 0, 512);
        if (layout.kept == 0)
            error = launch(fused_add_rms_norm_long_kernel<T>, dim3(count), layout.block(), 0,
                           stream, (T*)x, (T*)residual, (const T*)weight, x_rows, residual_rows,
                           eps);
        else
            DISPATCH_KEPT(layout.kept, K,
                          error = launch(fused_add_rms_norm_kernel<T, K>, layout.grid(count),
                                         layout.block(), 0, stream, (T*)x, (T*)residual,
                                         (const T*)weight, x_rows, residual_rows, eps));
    });
    return error;
    // END SOLUTION
}
