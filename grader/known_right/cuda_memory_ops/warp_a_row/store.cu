// A warp stores the keys and the values of a token, and goes on with the token that is a grid of
// warps further; the reference gives a row as many threads as it has units.
#include "copy.cuh"

template <typename Unit>
__global__ void store_rows(const Unit* k, const Unit* v, Unit* key_blocks, Unit* value_blocks,
                           const int64_t* slot_mapping, int64_t tokens, int64_t row,
                           int64_t k_stride, int64_t v_stride) {
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int64_t token = int64_t(blockIdx.x) * warps + warp; token < tokens;
         token += int64_t(gridDim.x) * warps) {
        // One lane reads the slot, and the others have it from there.
        int64_t slot = lane == 0 ? slot_mapping[token] : 0;
        slot = __shfl_sync(0xffffffffu, slot, 0);
        if (slot < 0) continue;
        for (int64_t i = lane; i < row; i += 32)
            key_blocks[slot * row + i] = k[token * k_stride + i];
        for (int64_t i = lane; i < row; i += 32)
            value_blocks[slot * row + i] = v[token * v_stride + i];
    }
}

YAIE_API int store_kv(const void* k, const void* v, void* key_blocks, void* value_blocks,
                      const int64_t* slot_mapping, int64_t tokens, int64_t row_bytes,
                      int64_t k_stride, int64_t v_stride, cudaStream_t stream) {
    const int64_t width = widest_copy({address(k), address(v), address(key_blocks),
                                       address(value_blocks), row_bytes, k_stride, v_stride});
    const int64_t needed = ceil_div(tokens, 4);
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(store_rows<Unit>, dim3(needed < 2048 ? needed : 2048), dim3(128),
                                  0, stream, (const Unit*)k, (const Unit*)v, (Unit*)key_blocks,
                                  (Unit*)value_blocks, slot_mapping, tokens, row_bytes / width,
                                  k_stride / width, v_stride / width));
    return error;
}
