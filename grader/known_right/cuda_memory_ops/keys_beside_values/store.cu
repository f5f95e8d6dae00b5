// Block (x, y) has keys where y is 0 and values where it is 1, a thread for each unit of a row; the
// reference's threads move a unit of each.
#include <algorithm>

#include "copy.cuh"

template <typename Unit> struct Side {
    const Unit* rows;
    Unit* blocks;
    int64_t stride;
};

template <typename Unit>
__global__ void store_side(Side<Unit> keys, Side<Unit> values, const int64_t* slot_mapping,
                           int64_t tokens, int64_t row) {
    const Side<Unit> side = blockIdx.y == 0 ? keys : values;
    const int64_t step = int64_t(gridDim.x) * blockDim.y;
    int64_t token = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    while (token < tokens) {
        const int64_t slot = slot_mapping[token];
        if (slot >= 0) {
            const Unit* from = side.rows + token * side.stride;
            for (int64_t i = threadIdx.x; i < row; i += blockDim.x)
                side.blocks[slot * row + i] = __ldg(from + i);
        }
        token += step;
    }
}

YAIE_API int store_kv(const void* k, const void* v, void* key_blocks, void* value_blocks,
                      const int64_t* slot_mapping, int64_t tokens, int64_t row_bytes,
                      int64_t k_stride, int64_t v_stride, cudaStream_t stream) {
    const int64_t width = widest_copy({address(k), address(v), address(key_blocks),
                                       address(value_blocks), row_bytes, k_stride, v_stride});
    const dim3 block(16, 8), grid(std::min(ceil_div(tokens, 8), int64_t(1024)), 2);
    int error = 0;
    DISPATCH_WIDTH(width, Unit, {
        const Side<Unit> keys{(const Unit*)k, (Unit*)key_blocks, k_stride / width};
        const Side<Unit> values{(const Unit*)v, (Unit*)value_blocks, v_stride / width};
        error = launch(store_side<Unit>, grid, block, 0, stream, keys, values, slot_mapping, tokens,
                       row_bytes / width);
    });
    return error;
}
