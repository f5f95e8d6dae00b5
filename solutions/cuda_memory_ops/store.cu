// Task 13.1: the keys and values of new tokens go to their slots.
#include <algorithm>

#include "copy.cuh"

// A row is what one token writes for K or for V: kv_heads * d numbers, contiguous. Row, k_stride
// and v_stride count units. Slot s of the pool is its row s: blocks lie one after the other.
template <typename Unit>
__global__ void store_kv_kernel(const Unit* k, const Unit* v, Unit* key_blocks, Unit* value_blocks,
                                const int64_t* slot_mapping, int64_t tokens, int64_t row,
                                int64_t k_stride, int64_t v_stride) {
    // BEGIN SOLUTION 13.1
    const int token = blockIdx.x * blockDim.y + threadIdx.y;
    if (token >= tokens) return;
    const int64_t slot = slot_mapping[token];
    if (slot < 0) return;
    // Neighbouring threads take neighbouring units: a warp's addresses fill whole sectors.
    for (int64_t i = threadIdx.x; i < row; i += blockDim.x) {
        const Unit key = k[token * k_stride + i], value = v[token * v_stride + i];
        key_blocks[slot * row + i] = key;
        value_blocks[slot * row + i] = value;
    }
    // END SOLUTION
}

// k, v: tokens rows of row_bytes, k_stride and v_stride bytes apart. slot_mapping: [tokens]; a
// negative slot stores nothing.
YAIE_API int store_kv(const void* k, const void* v, void* key_blocks, void* value_blocks,
                      const int64_t* slot_mapping, int64_t tokens, int64_t row_bytes,
                      int64_t k_stride, int64_t v_stride, cudaStream_t stream) {
    // BEGIN SOLUTION 13.1
    constexpr int64_t THREADS = 256;
    const int64_t width = widest_copy({address(k), address(v), address(key_blocks),
                                       address(value_blocks), row_bytes, k_stride, v_stride});
    const int64_t row = row_bytes / width;
    // As many threads along a row as it has units, in whole warps; the rest of the block along
    // tokens.
    const int across = std::min(ceil_div(row, 32) * 32, THREADS);
    const dim3 block(across, THREADS / across);
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(store_kv_kernel<Unit>, dim3(ceil_div(tokens, block.y)), block, 0,
                                  stream, (const Unit*)k, (const Unit*)v, (Unit*)key_blocks,
                                  (Unit*)value_blocks, slot_mapping, tokens, row,
                                  k_stride / width, v_stride / width));
    return error;
    // END SOLUTION
}
