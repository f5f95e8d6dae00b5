// Warps take pieces of 32 units by number, whatever block a piece is of; the reference gives each
// block of the pool a row of the grid.
#include "copy.cuh"

constexpr int THREADS = 256, LANES = 32;

struct PoolTensor {
    int64_t address;
    int64_t block_bytes;
};

// Calls move(copy, unit) for every unit of every copy.
template <typename Move> __device__ void for_units(int64_t copies, int64_t units, Move move) {
    const int64_t pieces = (units + LANES - 1) / LANES, warps = THREADS / LANES;
    const int lane = threadIdx.x % LANES;
    int64_t piece = int64_t(blockIdx.x) * warps + threadIdx.x / LANES;
    for (; piece < copies * pieces; piece += int64_t(gridDim.x) * warps) {
        const int64_t unit = piece % pieces * LANES + lane;
        if (unit < units) move(piece / pieces, unit);
    }
}

static dim3 grid_of(int64_t copies, int64_t units, int64_t tensors) {
    const int64_t needed = ceil_div(copies * ceil_div(units, LANES), THREADS / LANES);
    return dim3(needed < 8192 ? needed : 8192, 1, tensors);
}

template <typename Unit>
__global__ void gather_kernel(const Unit* blocks, const int32_t* block_tables, Unit* out,
                              int64_t entries, int64_t units) {
    for_units(entries, units, [=](int64_t entry, int64_t unit) {
        out[entry * units + unit] = blocks[block_tables[entry] * units + unit];
    });
}

YAIE_API int gather(const void* blocks, const int32_t* block_tables, void* out, int64_t entries,
                    int64_t block_bytes, cudaStream_t stream) {
    const int64_t width = widest_copy({address(blocks), address(out), block_bytes});
    const int64_t units = block_bytes / width;
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(gather_kernel<Unit>, grid_of(entries, units, 1), dim3(THREADS), 0,
                                  stream, (const Unit*)blocks, block_tables, (Unit*)out, entries,
                                  units));
    return error;
}

template <typename Unit>
__global__ void copy_blocks_kernel(const PoolTensor* tensors, const int64_t* pairs,
                                   int64_t num_tensors, int64_t num_pairs) {
    for (int64_t t = blockIdx.z; t < num_tensors; t += gridDim.z) {
        const PoolTensor tensor = tensors[t];
        Unit* blocks = reinterpret_cast<Unit*>(tensor.address);
        const int64_t units = tensor.block_bytes / sizeof(Unit);
        for_units(num_pairs, units, [=](int64_t pair, int64_t unit) {
            blocks[pairs[2 * pair + 1] * units + unit] = blocks[pairs[2 * pair] * units + unit];
        });
    }
}

YAIE_API int copy_blocks(const PoolTensor* tensors, const int64_t* pairs, int64_t num_tensors,
                         int64_t num_pairs, int64_t all_bits, int64_t largest_block,
                         cudaStream_t stream) {
    const int64_t width = widest_copy({all_bits});
    const int64_t most = num_tensors < LARGEST_GRID_YZ ? num_tensors : LARGEST_GRID_YZ;
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(copy_blocks_kernel<Unit>,
                                  grid_of(num_pairs, largest_block / width, most), dim3(THREADS), 0,
                                  stream, tensors, pairs, num_tensors, num_pairs));
    return error;
}

template <typename Unit>
__global__ void swap_blocks_kernel(const Unit* source, Unit* target, const int64_t* pairs,
                                   int64_t num_pairs, int64_t units) {
    for_units(num_pairs, units, [=](int64_t pair, int64_t unit) {
        target[pairs[2 * pair + 1] * units + unit] = source[pairs[2 * pair] * units + unit];
    });
}

YAIE_API int swap_blocks(const void* source, void* target, const int64_t* pairs, int64_t num_pairs,
                         int64_t block_bytes, cudaStream_t stream) {
    const int64_t width = widest_copy({address(source), address(target), block_bytes});
    const int64_t units = block_bytes / width;
    int error = 0;
    DISPATCH_WIDTH(width, Unit,
                   error = launch(swap_blocks_kernel<Unit>, grid_of(num_pairs, units, 1),
                                  dim3(THREADS), 0, stream, (const Unit*)source, (Unit*)target,
                                  pairs, num_pairs, units));
    return error;
}
