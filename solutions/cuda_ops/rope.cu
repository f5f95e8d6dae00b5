// Tasks 14.5 and 14.6: rotary embedding (Su et al. 2021), in place, and on the way to the pool.
#include <algorithm>

#include "pack.cuh"

// ANCHOR: heads
// What a token's thread sees of one of the tensors [tokens, heads, d]: `stride` numbers are between
// one token and the next.
template <typename T> struct Heads {
    T* at;
    int64_t count, stride;

    __device__ T* head(int64_t token, int64_t index, int64_t d) const {
        return at + token * stride + index * d;
    }
};

// The angles: positions [tokens]; cos and sin [max_positions, half].
struct Angles {
    const int64_t* positions;
    const float *cos, *sin;
    int64_t half;
};

// N neighbouring numbers, read and written in as few instructions as their alignment allows.
template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Some {
    T at[N];
};
// ANCHOR_END: heads

// Turns N pairs of a head: `first` are N neighbouring numbers of its first half, `second` those
// that they are paired with.
template <typename T, int N>
__device__ void rotate(Some<T, N>& first, Some<T, N>& second, const Some<float, N>& cos,
                       const Some<float, N>& sin) {
    // BEGIN SOLUTION 14.5
#pragma unroll
    for (int e = 0; e < N; ++e) {
        const float a = to_float(first.at[e]), b = to_float(second.at[e]);
        first.at[e] = from_float<T>(a * cos.at[e] - b * sin.at[e]);
        second.at[e] = from_float<T>(b * cos.at[e] + a * sin.at[e]);
    }
    // END SOLUTION
}

template <typename T, int N> __device__ Some<T, N>& some(T* place) {
    return *reinterpret_cast<Some<T, N>*>(place);
}

template <int N> __device__ Some<float, N> angles_at(const float* table, int64_t place) {
    return *reinterpret_cast<const Some<float, N>*>(table + place);
}

// Thread (x, y, z): pairs x * N to x * N + N - 1 of every blockDim.y-th head, from head y on, of a
// token. Angles come from a cache: how often they are read does not matter.
template <typename T, int N>
__global__ void rope_kernel(Heads<T> q, Heads<T> k, Angles angles, int64_t tokens, int64_t d) {
    // BEGIN SOLUTION 14.5
    const int token = blockIdx.x * blockDim.z + threadIdx.z;
    if (token >= tokens) return;
    const int64_t row = angles.positions[token] * angles.half;
    for (int i = threadIdx.x * N; i < angles.half; i += blockDim.x * N) {
        const Some<float, N> cos = angles_at<N>(angles.cos, row + i);
        const Some<float, N> sin = angles_at<N>(angles.sin, row + i);
        for (int64_t h = threadIdx.y; h < q.count + k.count; h += blockDim.y) {
            T* head = h < q.count ? q.head(token, h, d) : k.head(token, h - q.count, d);
            Some<T, N> first = some<T, N>(head + i), second = some<T, N>(head + angles.half + i);
            rotate(first, second, cos, sin);
            some<T, N>(head + i) = first;
            some<T, N>(head + angles.half + i) = second;
        }
    }
    // END SOLUTION
}

// A block for about 256 threads: `across` along a head, the rest along the heads, and along tokens
// if heads are few. A block has at most 64 threads in z.
static dim3 block_of(int64_t across, int64_t heads) {
    // BEGIN SOLUTION 14.5
    constexpr int64_t THREADS = 256;
    across = std::min(across, THREADS);
    const int64_t turns = ceil_div(heads, THREADS / across);
    const int64_t along = ceil_div(heads, turns);
    return dim3(across, along, std::min(THREADS / (across * along), int64_t(64)));
    // END SOLUTION
}

// q: [tokens, heads, d], k: [tokens, kv_heads, d]: a token's heads are neighbours, the strides
// count numbers. positions: [tokens]. cos, sin: [max_positions, half].
YAIE_API int rope(void* q, void* k, const int64_t* positions, const float* cos, const float* sin,
                  int64_t tokens, int64_t heads, int64_t kv_heads, int64_t d, int64_t half,
                  int64_t q_stride, int64_t k_stride, int64_t dtype, cudaStream_t stream) {
    // BEGIN SOLUTION 14.5
    const Angles angles{positions, cos, sin, half};
    int error = 0;
    DISPATCH(dtype, T, {
        constexpr int N = Pack<T>::SIZE;
        const Heads<T> queries{(T*)q, heads, q_stride}, keys{(T*)k, kv_heads, k_stride};
        const int64_t bytes = sizeof(T);
        // Where half suits packs of T, it suits angles, too: they are as wide as T, or wider.
        const bool fit = packs_fit({address(q), address(k), address(cos), address(sin),
                                    q_stride * bytes, k_stride * bytes, d * bytes, half * bytes});
        const dim3 block = block_of(fit ? half / N : half, heads + kv_heads);
        error = launch(fit ? rope_kernel<T, N> : rope_kernel<T, 1>, dim3(ceil_div(tokens, block.z)),
                       block, 0, stream, queries, keys, angles, tokens, d);
    });
    return error;
    // END SOLUTION
}

// ANCHOR: pool
// The blocks of the pool: slot s of a head of d numbers, [slots, kv_heads, d].
template <typename T> struct Slots {
    T *keys, *values;
    const int64_t* mapping;
};
// ANCHOR_END: pool

// As rope_kernel, over the heads of q, k and v one after the other: those of q stay where they are,
// the others go to their slot, and those of v are not turned.
template <typename T, int N>
__global__ void __launch_bounds__(256, 4)  // at most 64 registers: a block more on each SM
    rope_and_store_kernel(Heads<T> q, Heads<T> k, Heads<T> v, Angles angles, Slots<T> slots,
                          int64_t tokens, int64_t d) {
    // BEGIN SOLUTION 14.6
    const int token = blockIdx.x * blockDim.z + threadIdx.z;
    if (token >= tokens) return;
    const int64_t row = angles.positions[token] * angles.half, slot = slots.mapping[token];
    const int64_t last = slot < 0 ? q.count : q.count + k.count + v.count;
    for (int i = threadIdx.x * N; i < angles.half; i += blockDim.x * N) {
        const Some<float, N> cos = angles_at<N>(angles.cos, row + i);
        const Some<float, N> sin = angles_at<N>(angles.sin, row + i);
        for (int64_t h = threadIdx.y; h < last; h += blockDim.y) {
            T *from = q.head(token, h, d), *to = from;
            if (h >= q.count + k.count) {
                const int64_t head = h - q.count - k.count;
                from = v.head(token, head, d);
                to = slots.values + (slot * v.count + head) * d;
            } else if (h >= q.count) {
                from = k.head(token, h - q.count, d);
                to = slots.keys + (slot * k.count + h - q.count) * d;
            }
            Some<T, N> first = some<T, N>(from + i), second = some<T, N>(from + angles.half + i);
            if (h < q.count + k.count) rotate(first, second, cos, sin);
            some<T, N>(to + i) = first;
            some<T, N>(to + angles.half + i) = second;
        }
    }
    if (slot < 0) return;
    // What does not turn is stored as it is.
    for (int64_t h = threadIdx.y; h < k.count; h += blockDim.y) {
        T* key = slots.keys + (slot * k.count + h) * d;
        T* value = slots.values + (slot * v.count + h) * d;
        for (int i = 2 * angles.half + threadIdx.x * N; i < d; i += blockDim.x * N) {
            some<T, N>(key + i) = some<T, N>(k.head(token, h, d) + i);
            some<T, N>(value + i) = some<T, N>(v.head(token, h, d) + i);
        }
    }
    // END SOLUTION
}

// As rope; v: [tokens, kv_heads, d]; key_blocks, value_blocks: [slots, kv_heads, d]; slot_mapping:
// [tokens]. A negative slot stores nothing. k is only read.
YAIE_API int rope_and_store(void* q, void* k, void* v, const int64_t* positions, const float* cos,
                            const float* sin, void* key_blocks, void* value_blocks,
                            const int64_t* slot_mapping, int64_t tokens, int64_t heads,
                            int64_t kv_heads, int64_t d, int64_t half, int64_t q_stride,
                            int64_t k_stride, int64_t v_stride, int64_t dtype,
                            cudaStream_t stream) {
    // BEGIN SOLUTION 14.6
    const Angles angles{positions, cos, sin, half};
    int error = 0;
    DISPATCH(dtype, T, {
        constexpr int N = Pack<T>::SIZE;
        const Heads<T> queries{(T*)q, heads, q_stride}, keys{(T*)k, kv_heads, k_stride};
        const Heads<T> values{(T*)v, kv_heads, v_stride};
        const Slots<T> slots{(T*)key_blocks, (T*)value_blocks, slot_mapping};
        const int64_t bytes = sizeof(T);
        const bool fit = packs_fit({address(q), address(k), address(v), address(cos), address(sin),
                                    address(key_blocks), address(value_blocks), q_stride * bytes,
                                    k_stride * bytes, v_stride * bytes, d * bytes, half * bytes});
        const dim3 block = block_of(fit ? half / N : half, heads + 2 * kv_heads);
        error = launch(fit ? rope_and_store_kernel<T, N> : rope_and_store_kernel<T, 1>,
                       dim3(ceil_div(tokens, block.z)), block, 0, stream, queries, keys, values,
                       angles, slots, tokens, d);
    });
    return error;
    // END SOLUTION
}
