// y [rows, N] = x [rows, K] @ weight.T for up to 32 rows, on weights in four bits or in FP8.
//
// The weights are the rows of the product, 16 of them a tile, so that what a lane reads is an operand of
// mma.m16n8k16 as it is. Each lane copies its own weights to shared memory some turns ahead (cp.async) and
// reads them back itself: that many bytes are on their way without a register for them, and no barrier is
// needed. Which inputs the lanes' numbers belong to is free as long as x is read in the same order.
//
// The work is a line of units, those of the first pair of tiles, of the second, and so on; each block takes
// an equal piece of it, as many blocks as the GPU holds at once (stream-K, Osama et al. 2023). A pair that
// falls into several pieces is added up by the block that is done last, in the order of the blocks.
#include "streamed.cuh"

namespace {

template <typename Weight, int EIGHTS> struct Plan {
    static constexpr int COUNT = TILES * EIGHTS * 128;  // sums of a pair
    static constexpr int BYTES = Weight::STAGES * int(sizeof(typename Weight::Stage)) + WARPS * COUNT * 4;
};

struct Line {
    int blocks;
    int units;          // of all pairs
    int turns_of_pair;  // units of a pair: WARPS chunks each
    int chunks;

    __device__ int first_of(int block) const { return int(int64_t(block) * units / blocks); }
    __device__ int block_of(int unit) const { return int((int64_t(unit + 1) * blocks - 1) / units); }
};

// Which output and row the sum number v of a pair is: [tile, eight rows, lane, 4].
__device__ int2 place(int v, int eights) {
    const int lane = v / 4 % 32, c = v % 4, q = v / 128;
    return make_int2(q / eights * TILE + lane / 4 + 8 * (c >> 1), q % eights * 8 + lane % 4 * 2 + (c & 1));
}

__device__ float finished(float sum, const Ends& ends, int64_t output) {
    if (ends.scales != nullptr) sum *= ends.scales[output];
    if (ends.bias != nullptr) sum += __bfloat162float(ends.bias[output]);
    return __bfloat162float(__float2bfloat16(sum));
}

// Rounded as separate operations round: behind the product, the gate, the sum with the residual.
template <int EIGHTS, bool GATED>
__device__ void store(const float* sums, int pair, const Rows& rows, const Ends& ends) {
    constexpr int COUNT = TILES * EIGHTS * 128;
    const int64_t width = GATED ? ends.outputs / 2 : ends.outputs;
    for (int v = threadIdx.x; v < (GATED ? COUNT / 2 : COUNT); v += THREADS) {
        const int2 at = place(v, EIGHTS);
        if (at.y >= rows.count) continue;
        const int64_t output = int64_t(pair) * (GATED ? TILE : TILE * TILES) + at.x;
        float y = finished(sums[v], ends, output);
        if (GATED) {
            const float up = finished(sums[v + COUNT / 2], ends, width + output);
            y = __bfloat162float(__float2bfloat16(y / (1.0f + __expf(-y)))) * up;
        }
        const int64_t place = at.y * ends.stride + output;
        if (ends.residual != nullptr) y += __bfloat162float(ends.residual[place]);
        ends.out[place] = __float2bfloat16(y);
    }
}

// Add up what the warps have of a pair, and store it, or leave it to the last block that has a part of it.
template <int EIGHTS, bool GATED>
__device__ void join(float (*shared)[TILES * EIGHTS * 128], const Line& line, int pair, int begin,
                     const Rows& rows, const Ends& ends, float* parts, int* turns) {
    constexpr int COUNT = TILES * EIGHTS * 128;
    __shared__ bool is_last;
    const int block = blockIdx.x, from = pair * line.turns_of_pair;
    const int first = line.block_of(from), last = line.block_of(from + line.turns_of_pair - 1);
    __syncthreads();
    float* mine = parts + (int64_t(block) * 2 + (begin / line.turns_of_pair == pair ? 0 : 1)) * COUNT;
    for (int v = threadIdx.x; v < COUNT; v += THREADS) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) sum += shared[w][v];
        shared[0][v] = sum;
        if (first != last) __stcg(mine + v, sum);
    }
    if (first != last) {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            is_last = atomicAdd(turns + pair, 1) == last - first;
            if (is_last) turns[pair] = 0;
        }
        __syncthreads();
        if (!is_last) return;
        __threadfence();
        // The first block may have begun with an earlier pair; the others begin with this one.
        const int slot = line.first_of(first) / line.turns_of_pair == pair ? 0 : 1;
        for (int v = threadIdx.x; v < COUNT; v += THREADS) {
            float sum = __ldcg(parts + (int64_t(first) * 2 + slot) * COUNT + v);
            for (int b = first + 1; b <= last; ++b) sum += __ldcg(parts + int64_t(b) * 2 * COUNT + v);
            shared[0][v] = sum;
        }
    }
    __syncthreads();
    store<EIGHTS, GATED>(shared[0], pair, rows, ends);
}

template <typename Weight, int EIGHTS, bool GATED>
__global__ void __launch_bounds__(THREADS, Weight::blocks_of(EIGHTS))
streamed_kernel(Rows rows, Weight weight, Ends ends, float* parts, int* turns, Line line) {
    constexpr int STAGES = Weight::STAGES;
    constexpr int COUNT = TILES * EIGHTS * 128;
    extern __shared__ __align__(16) unsigned char memory[];
    auto* stages = reinterpret_cast<typename Weight::Stage*>(memory);
    auto* shared = reinterpret_cast<float(*)[COUNT]>(memory + STAGES * sizeof(typename Weight::Stage));
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int all = int(ends.outputs / TILE);
    const int begin = line.first_of(blockIdx.x), end = line.first_of(blockIdx.x + 1);

    int next = begin, next_pair = begin / line.turns_of_pair, next_turn = begin % line.turns_of_pair;
    auto fetch_next = [&](int slot) {
        const int chunk = next_turn * WARPS + warp;
        if (next < end && chunk < line.chunks) {
            const int tiles[TILES] = {GATED ? next_pair : 2 * next_pair,
                                      GATED ? next_pair + all / 2 : 2 * next_pair + 1};
            weight.fetch(stages[slot], tiles, line.chunks, chunk, lane);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        ++next;
        if (++next_turn == line.turns_of_pair) ++next_pair, next_turn = 0;
    };
    // Weights do not hang on the kernel in front: they are sent for while it still runs.
#pragma unroll
    for (int slot = 0; slot < STAGES - 1; ++slot) fetch_next(slot);
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif

    float sums[TILES][EIGHTS][4] = {};
    int pair = begin / line.turns_of_pair, turn = begin % line.turns_of_pair, slot = 0;
    for (int unit = begin; unit < end; ++unit) {
        fetch_next(slot == 0 ? STAGES - 1 : slot - 1);
        const int chunk = turn * WARPS + warp;
        const bool there = chunk < line.chunks;
        uint4 x[EIGHTS][2];
        if (there) {
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e) {
                const int row = e * 8 + lane / 4;
                const __nv_bfloat16* at =
                    rows.x + (row < rows.count ? row : 0) * rows.stride + chunk * CHUNK;
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    // Not by __ldg, which may be moved in front of the wait.
                    const uint4 v = *reinterpret_cast<const uint4*>(at + Weight::input(lane, half));
                    x[e][half] = row < rows.count ? v : make_uint4(0, 0, 0, 0);
                }
            }
        }
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
        if (there) weight.template add<EIGHTS>(sums, stages[slot], x);
        if (++slot == STAGES) slot = 0;
        if (++turn == line.turns_of_pair || unit + 1 == end) {
            __syncthreads();  // `shared` is still read for the pair before
#pragma unroll
            for (int i = 0; i < TILES; ++i)
#pragma unroll
                for (int e = 0; e < EIGHTS; ++e) {
                    *reinterpret_cast<float4*>(&shared[warp][((i * EIGHTS + e) * 32 + lane) * 4]) =
                        make_float4(sums[i][e][0], sums[i][e][1], sums[i][e][2], sums[i][e][3]);
                    sums[i][e][0] = sums[i][e][1] = sums[i][e][2] = sums[i][e][3] = 0;
                }
            join<EIGHTS, GATED>(shared, line, pair, begin, rows, ends, parts, turns);
            ++pair, turn = 0;
        }
    }
}

struct Launch {
    Rows rows;
    Ends ends;
    float* parts;
    int* turns;
    Line line;
    bool early;
    cudaStream_t stream;
};

template <typename Weight, int EIGHTS, bool GATED> int start(const Weight& weight, const Launch& call) {
    auto kernel = streamed_kernel<Weight, EIGHTS, GATED>;
    constexpr int bytes = Plan<Weight, EIGHTS>::BYTES;
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return int(error);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(call.line.blocks);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = bytes;
    config.stream = call.stream;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = call.early ? 1 : 0;
    return int(cudaLaunchKernelEx(&config, kernel, call.rows, weight, call.ends, call.parts, call.turns,
                                  call.line));
}

template <typename Weight, bool GATED> int start_for(const Weight& weight, const Launch& call) {
    if (call.rows.count <= 8) return start<Weight, 1, GATED>(weight, call);
    if (call.rows.count <= 16) return start<Weight, 2, GATED>(weight, call);
    return start<Weight, 4, GATED>(weight, call);
}

template <typename Weight> int start_any(const Weight& weight, const Launch& call, bool gated) {
    return gated ? start_for<Weight, true>(weight, call) : start_for<Weight, false>(weight, call);
}

// Sixteen numbers a thread.
__global__ void unpack8_kernel(const uint4* codes, const float* scales, uint4* out, int64_t k, int64_t total) {
    const int64_t at = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (at >= total) return;
    const uint4 four = codes[at];
    const unsigned words[4] = {four.x, four.y, four.z, four.w};
    const float scale = scales[at * 16 / k];
    unsigned numbers[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float2 pair = __bfloat1622float2(two(Fp8::spread(words[i / 2], i % 2 != 0)));
        numbers[i] = bits_of(__floats2bfloat162_rn(pair.x * scale, pair.y * scale));
    }
    out[at * 2] = make_uint4(numbers[0], numbers[1], numbers[2], numbers[3]);
    out[at * 2 + 1] = make_uint4(numbers[4], numbers[5], numbers[6], numbers[7]);
}

}  // namespace

// x [rows, K] bfloat16, rows at most 32, its rows 16 bytes aligned. kind 4: words, scales, zeros as
// `tiled.py` has them, zeros null where all are 8; 8: words are float8_e4m3fn [N, K] and scales float32
// [N]. N a multiple of 32, K of 64.
// bias, residual: null or bfloat16. out: [rows, N], gated [rows, N / 2], rows `stride` apart as those of
// residual. parts: float32, 2 * 256 for each block and eight rows. turns: int32 zeros, one for each pair of
// tiles, and zeros again afterwards. early: see `yaie.backends.early`.
YAIE_API int streamed(const void* x, const void* words, const void* scales, const void* zeros,
                      const void* bias, const void* residual, void* out, void* parts, void* turns,
                      int64_t rows, int64_t x_stride, int64_t stride, int64_t n, int64_t k, int64_t kind,
                      int64_t gated, int64_t blocks, int64_t early, cudaStream_t stream) {
    const int chunks = int(k / CHUNK), turns_of_pair = (chunks + WARPS - 1) / WARPS;
    const int units = int(n / (TILE * TILES)) * turns_of_pair;
    const Line line{blocks < units ? int(blocks) : units, units, turns_of_pair, chunks};
    const Launch call{{(const __nv_bfloat16*)x, int(rows), x_stride},
                      {(const __nv_bfloat16*)bias, (const __nv_bfloat16*)residual, (__nv_bfloat16*)out,
                       kind == 8 ? (const float*)scales : nullptr, stride, n},
                      (float*)parts, (int*)turns, line, early != 0, stream};
    const auto* four = (const uint4*)words;
    if (kind == 8) return start_any(Fp8{four, k}, call, gated != 0);
    if (zeros == nullptr) return start_any(Int4<true>{four, (const uint2*)scales, nullptr}, call, gated != 0);
    return start_any(Int4<false>{four, (const uint2*)scales, (const unsigned*)zeros}, call, gated != 0);
}

// out [N, K] bfloat16: code * scale.
YAIE_API int unpack8(const void* codes, const void* scales, void* out, int64_t n, int64_t k,
                     cudaStream_t stream) {
    const int64_t total = n * k / 16;
    const dim3 grid((total + THREADS - 1) / THREADS);
    return launch(unpack8_kernel, grid, dim3(THREADS), 0, stream, (const uint4*)codes, (const float*)scales,
                  (uint4*)out, k, total);
}
