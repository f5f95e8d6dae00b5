// The row waits in shared memory: a block for each row, of any length, in units as wide as they
// fit.
#include "pack.cuh"
#include "reduce.cuh"

template <typename T, int N> struct alignas(N * sizeof(T)) Unit {
    T at[N];
};

template <typename T> __device__ T scaled(float x, float scale, T weight) {
    return from_float<T>(to_float(from_float<T>(x * scale)) * to_float(weight));
}

// residual may be null: then nothing is added, and out is written; else out is x.
template <typename T, int N>
__global__ void norm_kernel(const T* x, T* residual, const T* weight, T* out, Rows rows, Rows sums,
                            Rows outs, float eps) {
    extern __shared__ int4 memory[];
    __shared__ float partial[WARP];
    auto* held = reinterpret_cast<Unit<T, N>*>(memory);
    auto* from = reinterpret_cast<const Unit<T, N>*>(x + rows.start(blockIdx.x));
    auto* weights = reinterpret_cast<const Unit<T, N>*>(weight);
    auto* to = reinterpret_cast<Unit<T, N>*>(out + outs.start(blockIdx.x));
    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < rows.d / N; i += blockDim.x) {
        Unit<T, N> unit = from[i];
        if (residual != nullptr) {
            auto* total = reinterpret_cast<Unit<T, N>*>(residual + sums.start(blockIdx.x));
            const Unit<T, N> old = total[i];
            for (int e = 0; e < N; ++e)
                unit.at[e] = from_float<T>(to_float(unit.at[e]) + to_float(old.at[e]));
            total[i] = unit;
        }
        for (int e = 0; e < N; ++e) squares += to_float(unit.at[e]) * to_float(unit.at[e]);
        held[i] = unit;
    }
    const float scale = 1.0f / sqrtf(block_sum(squares, partial) / rows.d + eps);
    for (int64_t i = threadIdx.x; i < rows.d / N; i += blockDim.x) {
        Unit<T, N> unit = held[i];
        const Unit<T, N> factors = weights[i];
        for (int e = 0; e < N; ++e) unit.at[e] = scaled(to_float(unit.at[e]), scale, factors.at[e]);
        to[i] = unit;
    }
}

template <typename T>
static int norm(const T* x, T* residual, const T* weight, T* out, Rows rows, Rows sums, Rows outs,
                float eps, cudaStream_t stream) {
    const int64_t bytes = sizeof(T);
    const bool fit = packs_fit({address(x), address(residual), address(weight), address(out),
                                rows.stride * bytes, sums.stride * bytes, outs.stride * bytes,
                                rows.d * bytes});
    return launch(fit ? norm_kernel<T, Pack<T>::SIZE> : norm_kernel<T, 1>, dim3(rows.count),
                  dim3(64), rows.d * bytes + 16, stream, x, residual, weight, out, rows, sums, outs,
                  eps);
}

YAIE_API int rms_norm(const void* x, const void* weight, void* out, int64_t count,
                      int64_t per_token, int64_t stride, int64_t d, float eps, int64_t dtype,
                      cudaStream_t stream) {
    const Rows rows{count, per_token, stride, d}, outs{count, 1, d, d};
    int error = 0;
    DISPATCH(dtype, T,
             error = norm((const T*)x, (T*)nullptr, (const T*)weight, (T*)out, rows, outs, outs,
                          eps, stream));
    return error;
}

YAIE_API int fused_add_rms_norm(void* x, void* residual, const void* weight, int64_t count,
                                int64_t per_token, int64_t x_stride, int64_t residual_stride,
                                int64_t d, float eps, int64_t dtype, cudaStream_t stream) {
    const Rows rows{count, per_token, x_stride, d}, sums{count, per_token, residual_stride, d};
    int error = 0;
    DISPATCH(dtype, T,
             error = norm((const T*)x, (T*)residual, (const T*)weight, (T*)x, rows, sums, rows,
                          eps, stream));
    return error;
}
