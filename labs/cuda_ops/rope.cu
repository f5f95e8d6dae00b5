// Lab 14, your part: tasks 14.5, 14.6. The rest is given.
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
    // TODO 14.5: your code here (the reference: 5 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.5: not implemented yet; see chapter CUDA reductions");
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
    // TODO 14.5: your code here (the reference: 14 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.5: not implemented yet; see chapter CUDA reductions");
}

// A block for about 256 threads: `across` along a head, the rest along the heads, and along tokens
// if heads are few. A block has at most 64 threads in z.
static dim3 block_of(int64_t across, int64_t heads) {
    // TODO 14.5: your code here (the reference: 5 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.5: not implemented yet; see chapter CUDA reductions");
}

// q: [tokens, heads, d], k: [tokens, kv_heads, d]: a token's heads are neighbours, the strides
// count numbers. positions: [tokens]. cos, sin: [max_positions, half].
YAIE_API int rope(void* q, void* k, const int64_t* positions, const float* cos, const float* sin,
                  int64_t tokens, int64_t heads, int64_t kv_heads, int64_t d, int64_t half,
                  int64_t q_stride, int64_t k_stride, int64_t dtype, cudaStream_t stream) {
    // TODO 14.5: your code here (the reference: 13 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.5: not implemented yet; see chapter CUDA reductions");
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
    // TODO 14.6: your code here (the reference: 32 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.6: not implemented yet; see chapter CUDA reductions");
}

// As rope; v: [tokens, kv_heads, d]; key_blocks, value_blocks: [slots, kv_heads, d]; slot_mapping:
// [tokens]. A negative slot stores nothing. k is only read.
YAIE_API int rope_and_store(void* q, void* k, void* v, const int64_t* positions, const float* cos,
                            const float* sin, void* key_blocks, void* value_blocks,
                            const int64_t* slot_mapping, int64_t tokens, int64_t heads,
                            int64_t kv_heads, int64_t d, int64_t half, int64_t q_stride,
                            int64_t k_stride, int64_t v_stride, int64_t dtype,
                            cudaStream_t stream) {
    // TODO 14.6: your code here (the reference: 17 lines).
    NOT_IMPLEMENTED("cuda_ops task 14.6: not implemented yet; see chapter CUDA reductions");
}
