// All units of the result in one long row, in a loop over the grid.
#include "pack.cuh"

template <typename T, int N> struct alignas(N * sizeof(T)) Unit {
    T at[N];
};

template <typename T, int N>
__global__ void silu_mul_kernel(const T* x, T* out, Rows rows) {
    const int64_t units = rows.d / 2 / N, step = int64_t(gridDim.x) * blockDim.x;
    int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; n < rows.count * units; n += step) {
        auto* gates = reinterpret_cast<const Unit<T, N>*>(x + rows.start(n / units));
        const Unit<T, N> gate = gates[n % units], up = gates[n % units + units];
        Unit<T, N> result;
        for (int e = 0; e < N; ++e) {
            const float g = to_float(gate.at[e]);
            const float silu = to_float(from_float<T>(g / (1.0f + expf(-g))));
            result.at[e] = from_float<T>(silu * to_float(up.at[e]));
        }
        reinterpret_cast<Unit<T, N>*>(out)[n] = result;
    }
}

YAIE_API int silu_mul(const void* x, void* out, int64_t count, int64_t per_token, int64_t stride,
                      int64_t two_d, int64_t dtype, cudaStream_t stream) {
    const Rows rows{count, per_token, stride, two_d};
    int error = 0;
    DISPATCH(dtype, T, {
        const int64_t bytes = sizeof(T);
        const bool fit = packs_fit({address(x), address(out), stride * bytes, two_d / 2 * bytes});
        const int64_t needed = ceil_div(count * (two_d / 2) / (fit ? Pack<T>::SIZE : 1), 128);
        error = launch(fit ? silu_mul_kernel<T, Pack<T>::SIZE> : silu_mul_kernel<T, 1>,
                       dim3(needed < 512 ? needed : 512), dim3(128), 0, stream, (const T*)x,
                       (T*)out, rows);
    });
    return error;
}
