// SiLU by the hyperbolic tangent, a thread for two packs that lie a block apart, rows along x; the
// reference divides by 1 + exp(-x), and has rows along y.
#include "pack.cuh"

constexpr int THREADS = 64, EACH = 2;

template <typename T> __device__ T opened(T gate, T up) {
    const float x = to_float(gate);
    const float silu = 0.5f * x + 0.5f * x * tanhf(0.5f * x);
    return from_float<T>(to_float(from_float<T>(silu)) * to_float(up));
}

template <typename T, int N>
__global__ void silu_rows(const T* x, T* out, Rows rows, int64_t tiles) {
    struct alignas(sizeof(T) * N) Some {
        T at[N];
    };
    const int64_t row = blockIdx.x / tiles, tile = blockIdx.x % tiles, d = rows.d / 2;
    const Some* gates = reinterpret_cast<const Some*>(x + rows.start(row));
    const Some* ups = reinterpret_cast<const Some*>(x + rows.start(row) + d);
    Some* to = reinterpret_cast<Some*>(out + row * d);
    for (int j = 0; j < EACH; ++j) {
        const int64_t i = (tile * EACH + j) * THREADS + threadIdx.x;
        if (i >= d / N) break;
        const Some gate = gates[i], up = ups[i];
        Some result;
        for (int e = 0; e < N; ++e) result.at[e] = opened(gate.at[e], up.at[e]);
        to[i] = result;
    }
}

YAIE_API int silu_mul(const void* x, void* out, int64_t count, int64_t per_token, int64_t stride,
                      int64_t two_d, int64_t dtype, cudaStream_t stream) {
    if (two_d == 0) return 0;
    const Rows rows{count, per_token, stride, two_d};
    DISPATCH(dtype, T, {
        constexpr int N = Pack<T>::SIZE;
        const int64_t bytes = sizeof(T);
        const bool fit = packs_fit({address(x), address(out), stride * bytes, two_d * bytes / 2});
        const int64_t tiles = ceil_div(two_d / 2 / (fit ? N : 1), THREADS * EACH);
        return launch(fit ? silu_rows<T, N> : silu_rows<T, 1>, dim3(count * tiles), dim3(THREADS),
                      0, stream, (const T*)x, (T*)out, rows, tiles);
    });
    return 0;
}
