// A block of threads for each token, as wide as its row; the reference puts several tokens of short
// rows into a block.
#include <algorithm>

#include "copy.cuh"

template <typename Unit>
__global__ void store_token(const Unit* k, const Unit* v, Unit* key_blocks, Unit* value_blocks,
                            const int64_t* slot_mapping, int64_t row, int64_t k_stride,
                            int64_t v_stride) {
    const int64_t token = blockIdx.x, slot = slot_mapping[token];
    if (slot <= -1) return;
    const Unit *key = k + token * k_stride, *value = v + token * v_stride;
    Unit *to_key = key_blocks + slot * row, *to_value = value_blocks + slot * row;
    // Values first, from the row's end.
    for (int64_t i = row - 1 - threadIdx.x; i >= 0; i -= blockDim.x) {
        to_value[i] = value[i];
        to_key[i] = key[i];
    }
}

YAIE_API int store_kv(const void* k, const void* v, void* key_blocks, void* value_blocks,
                      const int64_t* slot_mapping, int64_t tokens, int64_t row_bytes,
                      int64_t k_stride, int64_t v_stride, cudaStream_t stream) {
    const int64_t width = widest_copy({address(k), address(v), address(key_blocks),
                                       address(value_blocks), row_bytes, k_stride, v_stride});
    const int64_t row = row_bytes / width;
    const int64_t threads = std::min(ceil_div(row, 32) * 32, int64_t(1024));
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(store_token<Unit>, dim3(tokens), dim3(threads), 0, stream,
                                  (const Unit*)k, (const Unit*)v, (Unit*)key_blocks,
                                  (Unit*)value_blocks, slot_mapping, row, k_stride / width,
                                  v_stride / width));
    return error;
}
