// Slots are fetched into shared memory once a block of threads; the reference's threads each read
// their token's slot.
#include <algorithm>

#include "copy.cuh"

constexpr int TOKENS = 8;

template <typename Unit>
__global__ void store_tokens(const Unit* k, const Unit* v, Unit* key_blocks, Unit* value_blocks,
                             const int64_t* slot_mapping, int64_t tokens, int64_t row,
                             int64_t k_stride, int64_t v_stride) {
    __shared__ int64_t slots[TOKENS];
    const int64_t first = int64_t(blockIdx.x) * TOKENS;
    if (threadIdx.x < TOKENS)
        slots[threadIdx.x] = first + threadIdx.x < tokens ? slot_mapping[first + threadIdx.x] : -1;
    __syncthreads();
    // Keys are the first half of the work, values the second.
    for (int64_t n = threadIdx.x; n < 2 * TOKENS * row; n += blockDim.x) {
        const int64_t which = n / row % TOKENS, i = n % row, slot = slots[which];
        if (slot < 0) continue;
        if (n < TOKENS * row)
            key_blocks[slot * row + i] = k[(first + which) * k_stride + i];
        else
            value_blocks[slot * row + i] = v[(first + which) * v_stride + i];
    }
}

YAIE_API int store_kv(const void* k, const void* v, void* key_blocks, void* value_blocks,
                      const int64_t* slot_mapping, int64_t tokens, int64_t row_bytes,
                      int64_t k_stride, int64_t v_stride, cudaStream_t stream) {
    const int64_t width = widest_copy({k_stride | v_stride | row_bytes, address(k) | address(v),
                                       address(key_blocks) | address(value_blocks)});
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(store_tokens<Unit>, dim3(ceil_div(tokens, TOKENS)), dim3(256), 0,
                                  stream, (const Unit*)k, (const Unit*)v, (Unit*)key_blocks,
                                  (Unit*)value_blocks, slot_mapping, tokens, row_bytes / width,
                                  k_stride / width, v_stride / width));
    return error;
}
