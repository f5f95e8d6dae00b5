// One kernel moves all blocks: unit n of the work is unit n % units of copy n / units.
#include "copy.cuh"

constexpr int THREADS = 128;

struct PoolTensor {
    int64_t address;
    int64_t block_bytes;
};

template <typename Unit, typename Index>
__device__ void move(const Unit* source, Unit* target, const Index* from, const int64_t* to,
                     int64_t stride, int64_t copies, int64_t units) {
    const int64_t step = int64_t(gridDim.x) * blockDim.x;
    for (int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; n < copies * units;
         n += step) {
        const int64_t copy = n / units, i = n % units;
        const int64_t there = to == nullptr ? copy : to[stride * copy];
        target[there * units + i] = source[int64_t(from[stride * copy]) * units + i];
    }
}

template <typename Unit, typename Index>
__global__ void move_kernel(const Unit* source, Unit* target, const Index* from, const int64_t* to,
                            int64_t stride, int64_t copies, int64_t units) {
    move(source, target, from, to, stride, copies, units);
}

template <typename Unit>
__global__ void copy_blocks_kernel(const PoolTensor* tensors, const int64_t* pairs,
                                   int64_t num_pairs) {
    Unit* blocks = reinterpret_cast<Unit*>(tensors[blockIdx.y].address);
    const int64_t units = tensors[blockIdx.y].block_bytes / sizeof(Unit);
    move(blocks, blocks, pairs, pairs + 1, 2, num_pairs, units);
}

static dim3 grid_for(int64_t units, int64_t tensors) {
    const int64_t needed = ceil_div(units, THREADS);
    return dim3(needed < 4096 ? needed : 4096, tensors);
}

YAIE_API int gather(const void* blocks, const int32_t* block_tables, void* out, int64_t entries,
                    int64_t block_bytes, cudaStream_t stream) {
    const int64_t width = widest_copy({address(blocks), address(out), block_bytes});
    const int64_t units = block_bytes / width;
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(move_kernel<Unit, int32_t>, grid_for(entries * units, 1),
                                  dim3(THREADS), 0, stream, (const Unit*)blocks, (Unit*)out,
                                  block_tables, (const int64_t*)nullptr, int64_t(1), entries,
                                  units));
    return error;
}

YAIE_API int copy_blocks(const PoolTensor* tensors, const int64_t* pairs, int64_t num_tensors,
                         int64_t num_pairs, int64_t all_bits, int64_t largest_block,
                         cudaStream_t stream) {
    const int64_t width = widest_copy({all_bits});
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(copy_blocks_kernel<Unit>,
                                  grid_for(num_pairs * (largest_block / width), num_tensors),
                                  dim3(THREADS), 0, stream, tensors, pairs, num_pairs));
    return error;
}

YAIE_API int swap_blocks(const void* source, void* target, const int64_t* pairs, int64_t num_pairs,
                         int64_t block_bytes, cudaStream_t stream) {
    const int64_t width = widest_copy({address(source), address(target), block_bytes});
    const int64_t units = block_bytes / width;
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(move_kernel<Unit, int64_t>, grid_for(num_pairs * units, 1),
                                  dim3(THREADS), 0, stream, (const Unit*)source, (Unit*)target,
                                  pairs, pairs + 1, int64_t(2), num_pairs, units));
    return error;
}
