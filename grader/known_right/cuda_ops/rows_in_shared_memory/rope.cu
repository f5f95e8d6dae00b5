// A block for each token; its threads take units of pairs by number, over all heads.
#include "pack.cuh"

template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Unit {
    T at[N];
};

struct Job {
    const int64_t *positions, *slots;
    const float *cos, *sin;
    int64_t heads, kv_heads, d, half, q_stride, k_stride, v_stride;
};

template <typename T, int N>
__device__ void turn(const T* from, T* to, const float* cos, const float* sin, int64_t half) {
    Unit<T, N> first = *reinterpret_cast<const Unit<T, N>*>(from);
    Unit<T, N> second = *reinterpret_cast<const Unit<T, N>*>(from + half);
    for (int e = 0; e < N; ++e) {
        const float a = to_float(first.at[e]), b = to_float(second.at[e]);
        first.at[e] = from_float<T>(a * cos[e] - b * sin[e]);
        second.at[e] = from_float<T>(a * sin[e] + b * cos[e]);
    }
    *reinterpret_cast<Unit<T, N>*>(to) = first;
    *reinterpret_cast<Unit<T, N>*>(to + half) = second;
}

template <typename T, int N> __device__ void copy(const T* from, T* to) {
    *reinterpret_cast<Unit<T, N>*>(to) = *reinterpret_cast<const Unit<T, N>*>(from);
}

// keys may be null: then k is turned in place, and there is no v.
template <typename T, int N>
__global__ void rope_kernel(T* q, T* k, const T* v, T* keys, T* values, Job job) {
    const int64_t token = blockIdx.x, slot = keys ? job.slots[token] : 0;
    const int64_t row = job.positions[token] * job.half, units = job.half / N;
    const int64_t last = slot < 0 ? job.heads : job.heads + job.kv_heads;
    T* stored = keys ? keys + slot * job.kv_heads * job.d : nullptr;
    for (int64_t n = threadIdx.x; n < last * units; n += blockDim.x) {
        const int64_t head = n / units, i = n % units * N, key = (head - job.heads) * job.d;
        T* from = head < job.heads ? q + token * job.q_stride + head * job.d
                                   : k + token * job.k_stride + key;
        T* to = head < job.heads || !keys ? from : stored + key;
        turn<T, N>(from + i, to + i, job.cos + row + i, job.sin + row + i, job.half);
    }
    if (!keys || slot < 0) return;
    for (int64_t n = threadIdx.x * N; n < job.kv_heads * job.d; n += blockDim.x * N) {
        copy<T, N>(v + token * job.v_stride + n, values + slot * job.kv_heads * job.d + n);
        if (n % job.d >= 2 * job.half) copy<T, N>(k + token * job.k_stride + n, stored + n);
    }
}

template <typename T>
static int rotate(void* q, void* k, void* v, void* keys, void* values, int64_t tokens, Job job,
                  cudaStream_t stream) {
    const int64_t bytes = sizeof(T);
    const bool fit = packs_fit({address(q), address(k), address(v), address(keys), address(values),
                                job.q_stride * bytes, job.k_stride * bytes, job.v_stride * bytes,
                                job.d * bytes, job.half * bytes});
    return launch(fit ? rope_kernel<T, Pack<T>::SIZE> : rope_kernel<T, 1>, dim3(tokens), dim3(96),
                  0, stream, (T*)q, (T*)k, (const T*)v, (T*)keys, (T*)values, job);
}

YAIE_API int rope(void* q, void* k, const int64_t* positions, const float* cos, const float* sin,
                  int64_t tokens, int64_t heads, int64_t kv_heads, int64_t d, int64_t half,
                  int64_t q_stride, int64_t k_stride, int64_t dtype, cudaStream_t stream) {
    const Job job{positions, nullptr, cos, sin, heads, kv_heads, d, half, q_stride, k_stride, 0};
    int error = 0;
    DISPATCH(dtype, T, error = rotate<T>(q, k, nullptr, nullptr, nullptr, tokens, job, stream));
    return error;
}

YAIE_API int rope_and_store(void* q, void* k, void* v, const int64_t* positions, const float* cos,
                            const float* sin, void* key_blocks, void* value_blocks,
                            const int64_t* slot_mapping, int64_t tokens, int64_t heads,
                            int64_t kv_heads, int64_t d, int64_t half, int64_t q_stride,
                            int64_t k_stride, int64_t v_stride, int64_t dtype,
                            cudaStream_t stream) {
    const Job job{positions, slot_mapping, cos,      sin,      heads,   kv_heads,
                  d,         half,         q_stride, k_stride, v_stride};
    int error = 0;
    DISPATCH(dtype, T,
             error = rotate<T>(q, k, v, key_blocks, value_blocks, tokens, job, stream));
    return error;
}
