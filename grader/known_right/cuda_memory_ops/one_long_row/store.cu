// Every unit has a number; each thread finds its token and place by a division, in a loop over the
// grid.
#include "copy.cuh"

template <typename Unit>
__global__ void store_kv_kernel(const Unit* x, Unit* blocks, const int64_t* slot_mapping,
                                int64_t tokens, int64_t row, int64_t stride) {
    const int64_t step = int64_t(gridDim.x) * blockDim.x;
    for (int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; n < tokens * row; n += step) {
        const int64_t token = n / row, i = n % row;
        if (slot_mapping[token] >= 0)
            blocks[slot_mapping[token] * row + i] = x[token * stride + i];
    }
}

static int store_one(const void* x, void* blocks, const int64_t* slot_mapping, int64_t tokens,
                     int64_t row_bytes, int64_t stride, cudaStream_t stream) {
    const int64_t width = widest_copy({address(x), address(blocks), row_bytes, stride});
    const int64_t row = row_bytes / width, needed = ceil_div(tokens * row, 128);
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(store_kv_kernel<Unit>, dim3(needed < 1000 ? needed : 1000),
                                  dim3(128), 0, stream, (const Unit*)x, (Unit*)blocks,
                                  slot_mapping, tokens, row, stride / width));
    return error;
}

YAIE_API int store_kv(const void* k, const void* v, void* key_blocks, void* value_blocks,
                      const int64_t* slot_mapping, int64_t tokens, int64_t row_bytes,
                      int64_t k_stride, int64_t v_stride, cudaStream_t stream) {
    const int error =
        store_one(k, key_blocks, slot_mapping, tokens, row_bytes, k_stride, stream);
    if (error) return error;
    return store_one(v, value_blocks, slot_mapping, tokens, row_bytes, v_stride, stream);
}
