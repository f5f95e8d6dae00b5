// A warp has a row, however long, and no block_sum is needed: it keeps up to 64 packs a lane, and
// reads longer rows twice. The reference gives long rows more threads.
#include "pack.cuh"
#include "reduce.cuh"

constexpr int WARPS = 2;

template <typename T> __device__ T weighed(float x, float scale, T weight) {
    return from_float<T>(to_float(from_float<T>(x * scale)) * to_float(weight));
}

// N: numbers of a step of a lane; KEPT: steps that stay in registers, 0 for rows that are read
// twice.
// With ADD the sum of x and residual is normed, and written over residual.
template <typename T, int N, int KEPT, bool ADD>
__global__ void norm_of_a_warp(const T* x, T* residual, const T* weight, T* out, Rows x_rows,
                               Rows residual_rows, Rows out_rows, float eps) {
    struct alignas(sizeof(T) * N) Step {
        T at[N];
    };
    const int64_t row = int64_t(blockIdx.x) * WARPS + threadIdx.x / WARP;
    if (row >= x_rows.count) return;
    const int64_t steps = x_rows.d / N;
    const Step* from = reinterpret_cast<const Step*>(x + x_rows.start(row));
    Step* sums = reinterpret_cast<Step*>(residual + (ADD ? residual_rows.start(row) : 0));
    const Step* weights = reinterpret_cast<const Step*>(weight);
    Step* to = reinterpret_cast<Step*>(out + out_rows.start(row));
    Step kept[KEPT == 0 ? 1 : KEPT];
    float squares = 0.0f;
    int turn = 0;
    for (int64_t i = threadIdx.x % WARP; i < steps; i += WARP, ++turn) {
        Step step = from[i];
        if (ADD) {
            const Step old = sums[i];
            for (int e = 0; e < N; ++e)
                step.at[e] = from_float<T>(to_float(old.at[e]) + to_float(step.at[e]));
            sums[i] = step;
        }
        for (int e = 0; e < N; ++e)
            squares = fmaf(to_float(step.at[e]), to_float(step.at[e]), squares);
        if (KEPT > 0) kept[turn] = step;
    }
    const float mean = warp_sum(squares) / float(x_rows.d);
    const float scale = 1.0f / sqrtf(mean + eps);
    turn = 0;
    for (int64_t i = threadIdx.x % WARP; i < steps; i += WARP, ++turn) {
        Step step = KEPT > 0 ? kept[turn] : ADD ? sums[i] : from[i];
        const Step factor = weights[i];
        for (int e = 0; e < N; ++e) step.at[e] = weighed(to_float(step.at[e]), scale, factor.at[e]);
        to[i] = step;
    }
}

template <typename T, bool ADD>
static int norm(const T* x, T* residual, const T* weight, T* out, Rows x_rows, Rows residual_rows,
                Rows out_rows, float eps, cudaStream_t stream) {
    const int64_t bytes = sizeof(T), packs = x_rows.d / Pack<T>::SIZE;
    const bool fit = packs_fit({address(x), address(residual), address(weight), address(out),
                                x_rows.stride * bytes, residual_rows.stride * bytes,
                                out_rows.stride * bytes, x_rows.d * bytes});
    auto kernel = norm_of_a_warp<T, 1, 0, ADD>;
    if (fit && packs <= 2 * WARP) kernel = norm_of_a_warp<T, Pack<T>::SIZE, 2, ADD>;
    else if (fit && packs <= 64 * WARP) kernel = norm_of_a_warp<T, Pack<T>::SIZE, 64, ADD>;
    else if (fit) kernel = norm_of_a_warp<T, Pack<T>::SIZE, 0, ADD>;
    return launch(kernel, dim3(ceil_div(x_rows.count, WARPS)), dim3(WARPS * WARP), 0, stream, x,
                  residual, weight, out, x_rows, residual_rows, out_rows, eps);
}

YAIE_API int rms_norm(const void* x, const void* weight, void* out, int64_t count,
                      int64_t per_token, int64_t stride, int64_t d, float eps, int64_t dtype,
                      cudaStream_t stream) {
    const Rows rows{count, per_token, stride, d}, packed{count, 1, d, d};
    DISPATCH(dtype, T,
             return (norm<T, false>((const T*)x, nullptr, (const T*)weight, (T*)out, rows, packed,
                                    packed, eps, stream)));
    return 0;
}

YAIE_API int fused_add_rms_norm(void* x, void* residual, const void* weight, int64_t count,
                                int64_t per_token, int64_t x_stride, int64_t residual_stride,
                                int64_t d, float eps, int64_t dtype, cudaStream_t stream) {
    const Rows rows{count, per_token, x_stride, d}, sums{count, per_token, residual_stride, d};
    DISPATCH(dtype, T,
             return (norm<T, true>((const T*)x, (T*)residual, (const T*)weight, (T*)x, rows, sums,
                                   rows, eps, stream)));
    return 0;
}
