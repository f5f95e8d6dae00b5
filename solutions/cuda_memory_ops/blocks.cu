// Tasks 13.2 to 13.4: whole blocks move. A block is a number of contiguous bytes; nobody asks of
// what.
#include <algorithm>

#include "copy.cuh"

// BEGIN SOLUTION 13.2
constexpr int THREADS = 256, IN_FLIGHT = 4;

// The blocks of the grid that share y and z copy `units` units together, each thread IN_FLIGHT at
// once: all of its loads are on their way before the first of its stores, which would have to wait
// for one.
template <typename Unit>
__device__ void copy_block(const Unit* source, Unit* target, int64_t units) {
    const int step = gridDim.x * blockDim.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < units; i += IN_FLIGHT * step) {
        Unit held[IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; ++j)
            if (i + j * step < units) held[j] = source[i + j * step];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; ++j)
            if (i + j * step < units) target[i + j * step] = held[j];
    }
}

static dim3 grid_of(int64_t units, int64_t copies, int64_t tensors) {
    return dim3(ceil_div(units, THREADS * IN_FLIGHT), std::min(copies, LARGEST_GRID_YZ), tensors);
}
// END SOLUTION

// out[entry] = blocks[block_tables[entry]], for each of the `entries` of all tables. units: of a
// block.
template <typename Unit>
__global__ void gather_kernel(const Unit* blocks, const int32_t* block_tables, Unit* out,
                              int64_t entries, int64_t units) {
    // BEGIN SOLUTION 13.2
    for (int64_t entry = blockIdx.y; entry < entries; entry += gridDim.y) {
        const Unit* source = blocks + block_tables[entry] * units;
        copy_block(source, out + entry * units, units);
    }
    // END SOLUTION
}

// blocks: any number of block_bytes each. block_tables: [entries]. out: [entries] blocks.
YAIE_API int gather(const void* blocks, const int32_t* block_tables, void* out, int64_t entries,
                    int64_t block_bytes, cudaStream_t stream) {
    // BEGIN SOLUTION 13.2
    const int64_t width = widest_copy({address(blocks), address(out), block_bytes});
    const int64_t units = block_bytes / width;
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(gather_kernel<Unit>, grid_of(units, entries, 1), dim3(THREADS), 0,
                                  stream, (const Unit*)blocks, block_tables, (Unit*)out, entries,
                                  units));
    return error;
    // END SOLUTION
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
    // BEGIN SOLUTION 13.3
    for (int64_t t = blockIdx.z; t < num_tensors; t += gridDim.z) {
        Unit* blocks = reinterpret_cast<Unit*>(tensors[t].address);
        const int64_t units = tensors[t].block_bytes / sizeof(Unit);
        for (int64_t pair = blockIdx.y; pair < num_pairs; pair += gridDim.y) {
            const Unit* source = blocks + pairs[2 * pair] * units;
            copy_block(source, blocks + pairs[2 * pair + 1] * units, units);
        }
    }
    // END SOLUTION
}

// tensors: [num_tensors]. pairs: [num_pairs, 2] of (from, to). all_bits: every address and every
// block_bytes of the table, or-ed together, since the table itself lies on the device.
// largest_block: the largest block_bytes.
YAIE_API int copy_blocks(const PoolTensor* tensors, const int64_t* pairs, int64_t num_tensors,
                         int64_t num_pairs, int64_t all_bits, int64_t largest_block,
                         cudaStream_t stream) {
    // BEGIN SOLUTION 13.3
    const int64_t width = widest_copy({all_bits});
    const dim3 grid = grid_of(largest_block / width, num_pairs,
                              std::min(num_tensors, LARGEST_GRID_YZ));
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(copy_blocks_kernel<Unit>, grid, dim3(THREADS), 0, stream, tensors,
                                  pairs, num_tensors, num_pairs));
    return error;
    // END SOLUTION
}

// Block pairs[p][1] of target = block pairs[p][0] of source.
template <typename Unit>
__global__ void swap_blocks_kernel(const Unit* source, Unit* target, const int64_t* pairs,
                                   int64_t num_pairs, int64_t units) {
    // BEGIN SOLUTION 13.4
    for (int64_t pair = blockIdx.y; pair < num_pairs; pair += gridDim.y) {
        const Unit* from = source + pairs[2 * pair] * units;
        copy_block(from, target + pairs[2 * pair + 1] * units, units);
    }
    // END SOLUTION
}

// source, target: blocks of block_bytes each, in the device's memory or in pinned memory of the
// host. pairs: [num_pairs, 2] of (here, there).
YAIE_API int swap_blocks(const void* source, void* target, const int64_t* pairs, int64_t num_pairs,
                         int64_t block_bytes, cudaStream_t stream) {
    // BEGIN SOLUTION 13.4
    const int64_t width = widest_copy({address(source), address(target), block_bytes});
    const int64_t units = block_bytes / width;
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(swap_blocks_kernel<Unit>, grid_of(units, num_pairs, 1),
                                  dim3(THREADS), 0, stream, (const Unit*)source, (Unit*)target,
                                  pairs, num_pairs, units));
    return error;
    // END SOLUTION
}
