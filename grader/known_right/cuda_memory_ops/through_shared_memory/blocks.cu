// Units wait in shared memory between their load and their store, and block numbers come from
// there, too; the reference keeps both in registers.
#include <algorithm>

#include "copy.cuh"

constexpr int THREADS = 128, HELD = 4;

struct PoolTensor {
    int64_t address;
    int64_t block_bytes;
};

// Where copy `number` leads: what the first thread has read of the tables.
struct Ends {
    int64_t from, to;
};

template <typename Unit, typename Find>
__device__ void copy_all(const Unit* source, Unit* target, int64_t copies, int64_t units,
                         Find find) {
    __shared__ Unit held[HELD][THREADS];
    __shared__ Ends ends;
    for (int64_t number = blockIdx.y; number < copies; number += gridDim.y) {
        __syncthreads();
        if (threadIdx.x == 0) ends = find(number);
        __syncthreads();
        const Unit* from = source + ends.from * units;
        Unit* to = target + ends.to * units;
        for (int64_t tile = int64_t(blockIdx.x) * HELD * THREADS; tile < units;
             tile += int64_t(gridDim.x) * HELD * THREADS) {
            for (int j = 0; j < HELD; ++j) {
                const int64_t i = tile + j * THREADS + threadIdx.x;
                if (i < units) held[j][threadIdx.x] = from[i];
            }
            for (int j = HELD - 1; j >= 0; --j) {
                const int64_t i = tile + j * THREADS + threadIdx.x;
                if (i < units) to[i] = held[j][threadIdx.x];
            }
        }
    }
}

static dim3 grid_of(int64_t units, int64_t copies, int64_t tensors) {
    return dim3(std::min(ceil_div(units, HELD * THREADS), int64_t(64)),
                std::min(copies, LARGEST_GRID_YZ), std::min(tensors, LARGEST_GRID_YZ));
}

template <typename Unit>
__global__ void gather_kernel(const Unit* blocks, const int32_t* block_tables, Unit* out,
                              int64_t entries, int64_t units) {
    copy_all(blocks, out, entries, units,
             [=](int64_t entry) { return Ends{block_tables[entry], entry}; });
}

YAIE_API int gather(const void* blocks, const int32_t* block_tables, void* out, int64_t entries,
                    int64_t block_bytes, cudaStream_t stream) {
    const int64_t width = widest_copy({address(blocks), address(out), block_bytes});
    const int64_t units = block_bytes / width;
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(gather_kernel<Unit>, grid_of(units, entries, 1), dim3(THREADS), 0,
                                  stream, (const Unit*)blocks, block_tables, (Unit*)out, entries,
                                  units));
    return error;
}

template <typename Unit>
__global__ void copy_blocks_kernel(const PoolTensor* tensors, const int64_t* pairs,
                                   int64_t num_tensors, int64_t num_pairs) {
    for (int64_t t = blockIdx.z; t < num_tensors; t += gridDim.z) {
        Unit* blocks = reinterpret_cast<Unit*>(tensors[t].address);
        copy_all(blocks, blocks, num_pairs, tensors[t].block_bytes / sizeof(Unit),
                 [=](int64_t pair) { return Ends{pairs[2 * pair], pairs[2 * pair + 1]}; });
    }
}

YAIE_API int copy_blocks(const PoolTensor* tensors, const int64_t* pairs, int64_t num_tensors,
                         int64_t num_pairs, int64_t all_bits, int64_t largest_block,
                         cudaStream_t stream) {
    const int64_t width = widest_copy({all_bits});
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(copy_blocks_kernel<Unit>,
                                  grid_of(largest_block / width, num_pairs, num_tensors),
                                  dim3(THREADS), 0, stream, tensors, pairs, num_tensors,
                                  num_pairs));
    return error;
}

template <typename Unit>
__global__ void swap_blocks_kernel(const Unit* source, Unit* target, const int64_t* pairs,
                                   int64_t num_pairs, int64_t units) {
    copy_all(source, target, num_pairs, units,
             [=](int64_t pair) { return Ends{pairs[2 * pair], pairs[2 * pair + 1]}; });
}

YAIE_API int swap_blocks(const void* source, void* target, const int64_t* pairs, int64_t num_pairs,
                         int64_t block_bytes, cudaStream_t stream) {
    const int64_t width = widest_copy({address(source), address(target), block_bytes});
    const int64_t units = block_bytes / width;
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(swap_blocks_kernel<Unit>, grid_of(units, num_pairs, 1),
                                  dim3(THREADS), 0, stream, (const Unit*)source, (Unit*)target,
                                  pairs, num_pairs, units));
    return error;
}
