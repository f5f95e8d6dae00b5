// Lab 13, your part: task 13.1. The rest is given.
// Task 13.1: the keys and values of new tokens go to their slots.
#include <algorithm>

#include "copy.cuh"

// A row is what one token writes for K or for V: kv_heads * d numbers, contiguous. Row, k_stride
// and v_stride count units. Slot s of the pool is its row s: blocks lie one after the other.
template <typename Unit>
__global__ void store_kv_kernel(const Unit* k, const Unit* v, Unit* key_blocks, Unit* value_blocks,
                                const int64_t* slot_mapping, int64_t tokens, int64_t row,
                                int64_t k_stride, int64_t v_stride) {
    // TODO 13.1: your code here (the reference: 9 lines).
    NOT_IMPLEMENTED("cuda_memory_ops task 13.1: not implemented yet; see chapter CUDA kernels");
}

// k, v: tokens rows of row_bytes, k_stride and v_stride bytes apart. slot_mapping: [tokens]; a
// negative slot stores nothing.
YAIE_API int store_kv(const void* k, const void* v, void* key_blocks, void* value_blocks,
                      const int64_t* slot_mapping, int64_t tokens, int64_t row_bytes,
                      int64_t k_stride, int64_t v_stride, cudaStream_t stream) {
    // TODO 13.1: your code here (the reference: 13 lines).
    NOT_IMPLEMENTED("cuda_memory_ops task 13.1: not implemented yet; see chapter CUDA kernels");
}
