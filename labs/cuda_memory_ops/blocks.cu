// Lab 13, your part: tasks 13.2, 13.3, 13.4. The rest is given.
// Tasks 13.2 to 13.4: whole blocks move. A block is a number of contiguous bytes; nobody asks of
// what.
#include <algorithm>

#include "copy.cuh"

// TODO 13.2: your code here (the reference: 16 lines).

// out[entry] = blocks[block_tables[entry]], for each of the `entries` of all tables. units: of a
// block.
template <typename Unit>
__global__ void gather_kernel(const Unit* blocks, const int32_t* block_tables, Unit* out,
                              int64_t entries, int64_t units) {
    // TODO 13.2: your code here (the reference: 4 lines).
    NOT_IMPLEMENTED("cuda_memory_ops task 13.2: not implemented yet; see chapter CUDA kernels");
}

// blocks: any number of block_bytes each. block_tables: [entries]. out: [entries] blocks.
YAIE_API int gather(const void* blocks, const int32_t* block_tables, void* out, int64_t entries,
                    int64_t block_bytes, cudaStream_t stream) {
    // TODO 13.2: your code here (the reference: 8 lines).
    NOT_IMPLEMENTED("cuda_memory_ops task 13.2: not implemented yet; see chapter CUDA kernels");
}

// ANCHOR: pool_tensor
// One of the tensors of a pool, as the host wrote it down for the device: two numbers of a table.
struct PoolTensor {
    int64_t address;
    int64_t block_bytes;
};
// ANCHOR_END: pool_tensor

// In every tensor, block pairs[p][1] = block pairs[p][0].
template <typename Unit>
__global__ void copy_blocks_kernel(const PoolTensor* tensors, const int64_t* pairs,
                                   int64_t num_tensors, int64_t num_pairs) {
    // TODO 13.3: your code here (the reference: 8 lines).
    NOT_IMPLEMENTED("cuda_memory_ops task 13.3: not implemented yet; see chapter CUDA kernels");
}

// tensors: [num_tensors]. pairs: [num_pairs, 2] of (from, to). all_bits: every address and every
// block_bytes of the table, or-ed together, since the table itself lies on the device.
// largest_block: the largest block_bytes.
YAIE_API int copy_blocks(const PoolTensor* tensors, const int64_t* pairs, int64_t num_tensors,
                         int64_t num_pairs, int64_t all_bits, int64_t largest_block,
                         cudaStream_t stream) {
    // TODO 13.3: your code here (the reference: 8 lines).
    NOT_IMPLEMENTED("cuda_memory_ops task 13.3: not implemented yet; see chapter CUDA kernels");
}

// Block pairs[p][1] of target = block pairs[p][0] of source.
template <typename Unit>
__global__ void swap_blocks_kernel(const Unit* source, Unit* target, const int64_t* pairs,
                                   int64_t num_pairs, int64_t units) {
    // TODO 13.4: your code here (the reference: 4 lines).
    NOT_IMPLEMENTED("cuda_memory_ops task 13.4: not implemented yet; see chapter CUDA kernels");
}

// source, target: blocks of block_bytes each, in the device's memory or in pinned memory of the
// host. pairs: [num_pairs, 2] of (here, there).
YAIE_API int swap_blocks(const void* source, void* target, const int64_t* pairs, int64_t num_pairs,
                         int64_t block_bytes, cudaStream_t stream) {
    // TODO 13.4: your code here (the reference: 8 lines).
    NOT_IMPLEMENTED("cuda_memory_ops task 13.4: not implemented yet; see chapter CUDA kernels");
}
