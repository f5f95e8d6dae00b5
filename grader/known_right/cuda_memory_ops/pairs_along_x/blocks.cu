// The grid is turned: copies along x, where there may be any number, a block's units along y, and
// tensors along z; the reference has units along x and loops over the copies.
#include <algorithm>

#include "copy.cuh"

constexpr int64_t THREADS = 128, EACH = 2;

struct PoolTensor {
    int64_t address;
    int64_t block_bytes;
};

template <typename Unit> __device__ void copy_whole(const Unit* from, Unit* to, int64_t units) {
    int64_t first = int64_t(blockIdx.y) * THREADS * EACH + threadIdx.x;
    for (; first < units; first += int64_t(gridDim.y) * THREADS * EACH) {
        to[first] = from[first];
        if (first + THREADS < units) to[first + THREADS] = from[first + THREADS];
    }
}

static dim3 grid_of(int64_t copies, int64_t units, int64_t tensors) {
    return dim3(copies, std::min(ceil_div(units, THREADS * EACH), LARGEST_GRID_YZ),
                std::min(tensors, LARGEST_GRID_YZ));
}

template <typename Unit>
__global__ void gather_kernel(const Unit* blocks, const int32_t* block_tables, Unit* out,
                              int64_t units) {
    const int64_t entry = blockIdx.x, block = block_tables[entry];
    copy_whole(blocks + block * units, out + entry * units, units);
}

YAIE_API int gather(const void* blocks, const int32_t* block_tables, void* out, int64_t entries,
                    int64_t block_bytes, cudaStream_t stream) {
    if (entries == 0) return 0;
    const int64_t width = widest_copy({address(blocks), address(out), block_bytes});
    const int64_t units = block_bytes / width;
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(gather_kernel<Unit>, grid_of(entries, units, 1), dim3(THREADS), 0,
                                  stream, (const Unit*)blocks, block_tables, (Unit*)out, units));
    return error;
}

template <typename Unit>
__global__ void copy_blocks_kernel(const PoolTensor* tensors, const int64_t* pairs,
                                   int64_t num_tensors) {
    const int64_t from = pairs[2 * int64_t(blockIdx.x)], to = pairs[2 * int64_t(blockIdx.x) + 1];
    for (int64_t t = blockIdx.z; t < num_tensors; t += gridDim.z) {
        const int64_t units = tensors[t].block_bytes / sizeof(Unit);
        Unit* blocks = reinterpret_cast<Unit*>(tensors[t].address);
        copy_whole(blocks + from * units, blocks + to * units, units);
    }
}

YAIE_API int copy_blocks(const PoolTensor* tensors, const int64_t* pairs, int64_t num_tensors,
                         int64_t num_pairs, int64_t all_bits, int64_t largest_block,
                         cudaStream_t stream) {
    const int64_t width = widest_copy({all_bits});
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(copy_blocks_kernel<Unit>,
                                  grid_of(num_pairs, largest_block / width, num_tensors),
                                  dim3(THREADS), 0, stream, tensors, pairs, num_tensors));
    return error;
}

template <typename Unit>
__global__ void swap_blocks_kernel(const Unit* source, Unit* target, const int64_t* pairs,
                                   int64_t units) {
    const int64_t* pair = pairs + 2 * int64_t(blockIdx.x);
    copy_whole(source + pair[0] * units, target + pair[1] * units, units);
}

YAIE_API int swap_blocks(const void* source, void* target, const int64_t* pairs, int64_t num_pairs,
                         int64_t block_bytes, cudaStream_t stream) {
    const int64_t width = widest_copy({address(source), address(target), block_bytes});
    const int64_t units = block_bytes / width;
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(swap_blocks_kernel<Unit>, grid_of(num_pairs, units, 1),
                                  dim3(THREADS), 0, stream, (const Unit*)source, (Unit*)target,
                                  pairs, units));
    return error;
}
