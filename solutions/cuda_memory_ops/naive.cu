// The same operations as they come to mind first: one thread for each token or block, one number at
// a time. Right, and many times too slow: neighbouring threads read addresses that lie rows apart.
#include "copy.cuh"

constexpr int64_t THREADS = 128;

// ANCHOR: naive_store_kv
// Thread t stores token t. Number is 2 or 4 bytes wide, as the tensors' dtype.
template <typename Number>
__global__ void naive_store_kv_kernel(const Number* k, const Number* v, Number* key_blocks,
                                      Number* value_blocks, const int64_t* slot_mapping,
                                      int64_t tokens, int64_t row, int64_t k_stride,
                                      int64_t v_stride) {
    const int64_t token = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (token >= tokens || slot_mapping[token] < 0) return;
    const int64_t slot = slot_mapping[token];
    for (int64_t i = 0; i < row; ++i) {
        key_blocks[slot * row + i] = k[token * k_stride + i];
        value_blocks[slot * row + i] = v[token * v_stride + i];
    }
}
// ANCHOR_END: naive_store_kv

YAIE_API int naive_store_kv(const void* k, const void* v, void* key_blocks, void* value_blocks,
                            const int64_t* slot_mapping, int64_t tokens, int64_t row,
                            int64_t k_stride, int64_t v_stride, int64_t number_bytes,
                            cudaStream_t stream) {
    int error = 0;
    DISPATCH_WIDTH(number_bytes, Number,
                   error = launch(naive_store_kv_kernel<Number>, dim3(ceil_div(tokens, THREADS)),
                                  dim3(THREADS), 0, stream, (const Number*)k, (const Number*)v,
                                  (Number*)key_blocks, (Number*)value_blocks, slot_mapping, tokens,
                                  row, k_stride, v_stride));
    return error;
}

// ANCHOR: naive_move
// Thread p copies block sources[p] of `from` to block targets[p] of `to`, both `stride` entries
// apart.
template <typename Number, typename Index>
__global__ void naive_move_kernel(const Number* from, Number* to, const Index* sources,
                                  const Index* targets, int64_t stride, int64_t pairs,
                                  int64_t block) {
    const int64_t p = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (p >= pairs) return;
    const int64_t there = targets == nullptr ? p : targets[stride * p];
    for (int64_t i = 0; i < block; ++i)
        to[there * block + i] = from[sources[stride * p] * block + i];
}
// ANCHOR_END: naive_move

YAIE_API int naive_gather(const void* blocks, const int32_t* block_tables, void* out,
                          int64_t entries, int64_t block, int64_t number_bytes,
                          cudaStream_t stream) {
    int error = 0;
    DISPATCH_WIDTH(number_bytes, Number,
                   error = launch(naive_move_kernel<Number, int32_t>,
                                  dim3(ceil_div(entries, THREADS)), dim3(THREADS), 0, stream,
                                  (const Number*)blocks, (Number*)out, block_tables,
                                  (const int32_t*)nullptr, int64_t(1), entries, block));
    return error;
}

YAIE_API int naive_swap_blocks(const void* source, void* target, const int64_t* pairs,
                               int64_t num_pairs, int64_t block, int64_t number_bytes,
                               cudaStream_t stream) {
    int error = 0;
    DISPATCH_WIDTH(number_bytes, Number,
                   error = launch(naive_move_kernel<Number, int64_t>,
                                  dim3(ceil_div(num_pairs, THREADS)), dim3(THREADS), 0, stream,
                                  (const Number*)source, (Number*)target, pairs, pairs + 1,
                                  int64_t(2), num_pairs, block));
    return error;
}
