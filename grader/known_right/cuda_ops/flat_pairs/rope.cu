// A warp for each token and each four heads, whose angles wait in registers; angles may lie
// anywhere, since they are read one by one. The reference reads angles in packs, and counts them in
// packs_fit.
#include "pack.cuh"

constexpr int WARP = 32, WARPS = 8, HEADS = 4;

template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Bunch {
    T at[N];
};

template <typename T> struct Tensors {
    T *q, *k;
    const T* v;
    T *keys, *values;
    const int64_t *positions, *slots;
    const float *cos, *sin;
    int64_t tokens, heads, kv_heads, d, half, q_stride, k_stride, v_stride;
};

template <typename T, int N> __device__ Bunch<T, N>* bunch(T* place) {
    return reinterpret_cast<Bunch<T, N>*>(place);
}
template <typename T, int N> __device__ const Bunch<T, N>* bunch(const T* place) {
    return reinterpret_cast<const Bunch<T, N>*>(place);
}

template <typename T, int N> __global__ void rope_warps(Tensors<T> x, int64_t groups) {
    const int64_t number = int64_t(blockIdx.x) * WARPS + threadIdx.x / WARP;
    const int lane = threadIdx.x % WARP;
    if (number >= x.tokens * groups) return;
    const int64_t token = number / groups, first = number % groups * HEADS;
    const bool stores = x.keys != nullptr;
    const int64_t slot = stores ? x.slots[token] : 0, all = x.heads + x.kv_heads;
    const float *cos = x.cos + x.positions[token] * x.half;
    const float *sin = x.sin + x.positions[token] * x.half;
    for (int64_t i = lane * N; i < x.half; i += WARP * N) {
        float c[N], s[N];
        for (int e = 0; e < N; ++e) c[e] = cos[i + e], s[e] = sin[i + e];
        for (int64_t head = first; head < first + HEADS && head < all; ++head) {
            const bool is_key = head >= x.heads;
            T* from = is_key ? x.k + token * x.k_stride + (head - x.heads) * x.d
                             : x.q + token * x.q_stride + head * x.d;
            if (is_key && slot < 0) continue;
            T* to = from;
            if (is_key && stores) to = x.keys + (slot * x.kv_heads + head - x.heads) * x.d;
            const Bunch<T, N> a = *bunch<T, N>(from + i), b = *bunch<T, N>(from + x.half + i);
            Bunch<T, N> one, other;
            for (int e = 0; e < N; ++e) {
                const float left = to_float(a.at[e]), right = to_float(b.at[e]);
                one.at[e] = from_float<T>(left * c[e] - right * s[e]);
                other.at[e] = from_float<T>(left * s[e] + right * c[e]);
            }
            *bunch<T, N>(to + i) = one;
            *bunch<T, N>(to + x.half + i) = other;
        }
    }
    // The first warp of a token copies what does not turn, and all of v.
    if (!stores || slot < 0 || first != 0) return;
    for (int64_t head = 0; head < x.kv_heads; ++head) {
        const T *key = x.k + token * x.k_stride + head * x.d, *value = x.v + token * x.v_stride;
        T* place = x.keys + (slot * x.kv_heads + head) * x.d;
        for (int64_t i = 2 * x.half + lane * N; i < x.d; i += WARP * N)
            *bunch<T, N>(place + i) = *bunch<T, N>(key + i);
        place = x.values + (slot * x.kv_heads + head) * x.d;
        for (int64_t i = lane * N; i < x.d; i += WARP * N)
            *bunch<T, N>(place + i) = *bunch<T, N>(value + head * x.d + i);
    }
}

template <typename T> static int start(Tensors<T> x, cudaStream_t stream) {
    constexpr int N = Pack<T>::SIZE;
    const int64_t bytes = sizeof(T), groups = ceil_div(x.heads + x.kv_heads, HEADS);
    const bool fit = packs_fit({address(x.q), address(x.k), address(x.v), address(x.keys),
                                address(x.values), x.q_stride * bytes, x.k_stride * bytes,
                                x.v_stride * bytes, x.d * bytes, x.half * bytes});
    return launch(fit ? rope_warps<T, N> : rope_warps<T, 1>,
                  dim3(ceil_div(x.tokens * groups, WARPS)), dim3(WARPS * WARP), 0, stream, x,
                  groups);
}

YAIE_API int rope(void* q, void* k, const int64_t* positions, const float* cos, const float* sin,
                  int64_t tokens, int64_t heads, int64_t kv_heads, int64_t d, int64_t half,
                  int64_t q_stride, int64_t k_stride, int64_t dtype, cudaStream_t stream) {
    DISPATCH(dtype, T, {
        const Tensors<T> x{(T*)q, (T*)k, nullptr, nullptr, nullptr, positions, nullptr, cos, sin,
                           tokens, heads, kv_heads, d, half, q_stride, k_stride, 0};
        return start(x, stream);
    });
    return 0;
}

YAIE_API int rope_and_store(void* q, void* k, void* v, const int64_t* positions, const float* cos,
                            const float* sin, void* key_blocks, void* value_blocks,
                            const int64_t* slot_mapping, int64_t tokens, int64_t heads,
                            int64_t kv_heads, int64_t d, int64_t half, int64_t q_stride,
                            int64_t k_stride, int64_t v_stride, int64_t dtype,
                            cudaStream_t stream) {
    DISPATCH(dtype, T, {
        const Tensors<T> x{(T*)q, (T*)k, (const T*)v, (T*)key_blocks, (T*)value_blocks, positions,
                           slot_mapping, cos, sin, tokens, heads, kv_heads, d, half, q_stride,
                           k_stride, v_stride};
        return start(x, stream);
    });
    return 0;
}
