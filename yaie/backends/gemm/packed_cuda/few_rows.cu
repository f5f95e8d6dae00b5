// y [rows, N] = x [rows, K] @ dequantize(weight).T for up to 16 rows, on weights of four bits in the order
// in which tensor cores take them (Frantar et al. 2024, "MARLIN"). `tiled.py` writes that order and says it.
//
// The weights are the rows of the product, 16 of them a tile: a word of eight codes is then just what a
// lane hands to an mma.m16n8k16, and goes from memory to registers without shared memory in between.
// Codes become numbers two at a time: or-ed into the mantissa of 128 they are 128 + code. What that adds,
// and the zero, is the same for a whole group of inputs, so it is taken off the group's sums, in float32,
// as (128 + zero) * the sum of the group's inputs; that sum is one more product, with a tile of ones.
// Scales multiply sums, too, not weights.
#include "yaie.cuh"

namespace {

constexpr int WARPS = 8;
constexpr int TILE = 16;       // outputs of a tile
constexpr int TILES = 2;       // of a block; of a gated product one of gates and one of their ups
constexpr int CHUNK = 64;      // inputs of a turn of a warp: two groups
constexpr unsigned MAGIC = 0x43004300;  // 128 in bfloat16, twice
constexpr unsigned ONES = 0x3F803F80;

struct Rows {
    const __nv_bfloat16* x;
    int count;
    int64_t stride;
};

struct Ends {
    const __nv_bfloat16* bias;      // or null
    const __nv_bfloat16* residual;  // or null; may be out
    __nv_bfloat16* out;
    int64_t stride;
    int64_t outputs;
};

__device__ uint4 streamed(const uint4* at) {
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
    return v;
}

__device__ void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The numbers 128 + code of a word, as four registers of two.
__device__ void spread(unsigned word, unsigned (&numbers)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        asm("lop3.b32 %0, %1, 0x000F000F, %2, 0xEA;" : "=r"(numbers[i]) : "r"(word >> (4 * i)), "n"(MAGIC));
    }
}

// What a warp needs of a chunk: for each tile 64 inputs' words, two groups' scales, their zeros.
template <bool EVEN> struct Chunk {
    uint4 words[TILES];
    uint2 scales[TILES];
    unsigned zeros[TILES];

    __device__ void load(const uint4* all_words, const uint2* all_scales, const unsigned* all_zeros,
                         const int64_t (&tiles)[TILES], int chunks, int chunk, int lane) {
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            const int64_t at = tiles[i] * chunks + chunk;
            words[i] = streamed(all_words + at * 32 + lane);
            scales[i] = __ldg(all_scales + at * 8 + lane / 4);
            if (!EVEN) zeros[i] = __ldg(all_zeros + at * 8 + lane / 4);
        }
    }
};

// Eight rows' inputs of a chunk: a lane has eight of each group, of row lane / 4.
struct Inputs {
    uint4 of[2];

    __device__ void load(const Rows& rows, int row, int chunk, int lane) {
        const bool there = row < rows.count;
        const __nv_bfloat16* at = rows.x + (there ? row : 0) * rows.stride + chunk * CHUNK + lane % 4 * 8;
#pragma unroll
        for (int group = 0; group < 2; ++group) {
            const uint4 v = __ldg(reinterpret_cast<const uint4*>(at + group * 32));
            of[group] = there ? v : make_uint4(0, 0, 0, 0);
        }
    }
};

template <int EIGHTS, bool EVEN>
__device__ void add(float (&sums)[TILES][EIGHTS][4], const Chunk<EVEN>& chunk, const Inputs (&x)[EIGHTS]) {
    const unsigned ones[4] = {ONES, ONES, ONES, ONES};
#pragma unroll
    for (int group = 0; group < 2; ++group) {
        float totals[EIGHTS][4] = {};
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e) {
            const uint4 v = x[e].of[group];
            multiply(totals[e], ones, v.x, v.y);
            multiply(totals[e], ones, v.z, v.w);
        }
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            unsigned first[4], second[4];
            spread(group == 0 ? chunk.words[i].x : chunk.words[i].z, first);
            spread(group == 0 ? chunk.words[i].y : chunk.words[i].w, second);
            const unsigned pair = group == 0 ? chunk.scales[i].x : chunk.scales[i].y;
            const float2 scale = __half22float2(reinterpret_cast<const __half2&>(pair));
            float low = 136.0f, high = 136.0f;
            if (!EVEN) {
                const unsigned zeros = chunk.zeros[i] >> (16 * group);
                low = 128.0f + (zeros & 255);
                high = 128.0f + (zeros >> 8 & 255);
            }
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e) {
                const uint4 v = x[e].of[group];
                float part[4] = {};
                multiply(part, first, v.x, v.y);
                multiply(part, second, v.z, v.w);
                sums[i][e][0] += scale.x * (part[0] - low * totals[e][0]);
                sums[i][e][1] += scale.x * (part[1] - low * totals[e][1]);
                sums[i][e][2] += scale.y * (part[2] - high * totals[e][0]);
                sums[i][e][3] += scale.y * (part[3] - high * totals[e][1]);
            }
        }
    }
}

// Which output and row the sum number v of a block is: [tile, eight rows, lane, 4].
__device__ int2 place(int v, int eights) {
    const int lane = v / 4 % 32, c = v % 4, q = v / 128;
    return make_int2(q / eights * TILE + lane / 4 + 8 * (c >> 1), q % eights * 8 + lane % 4 * 2 + (c & 1));
}

// Block (tile pair, part): the inputs from part * chunks_of_part on, turn by turn among its warps. The
// last block of a tile pair adds the parts up, in their order.
template <int EIGHTS, bool EVEN, bool GATED, int AHEAD>
__global__ void __launch_bounds__(WARPS * 32)
few_rows_kernel(Rows rows, const uint4* words, const uint2* scales, const unsigned* zeros, Ends ends,
                float* parts, int* turns, int chunks, int chunks_of_part) {
    constexpr int COUNT = TILES * EIGHTS * 128;
    __shared__ float shared[WARPS][COUNT];
    __shared__ bool is_last;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t all = ends.outputs / TILE;
    const int64_t pair = blockIdx.x;
    // Of an odd number of tiles the last block computes one twice, and stores it once.
    int64_t tiles[TILES] = {GATED ? pair : 2 * pair, GATED ? pair + all / 2 : min(2 * pair + 1, all - 1)};
    const int begin = blockIdx.y * chunks_of_part + warp;
    const int end = min(int(blockIdx.y + 1) * chunks_of_part, chunks);

    // Weights do not hang on the kernel in front: they are sent for while it still runs.
    Chunk<EVEN> held[AHEAD];
#pragma unroll
    for (int slot = 0; slot < AHEAD; ++slot) {
        const int chunk = begin + slot * WARPS;
        if (chunk < end) held[slot].load(words, scales, zeros, tiles, chunks, chunk, lane);
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    Inputs x[AHEAD][EIGHTS];
#pragma unroll
    for (int slot = 0; slot < AHEAD; ++slot) {
        const int chunk = begin + slot * WARPS;
        if (chunk < end)
            for (int e = 0; e < EIGHTS; ++e) x[slot][e].load(rows, e * 8 + lane / 4, chunk, lane);
    }
    float sums[TILES][EIGHTS][4] = {};
    for (int first = begin; first < end; first += AHEAD * WARPS) {
#pragma unroll
        for (int slot = 0; slot < AHEAD; ++slot) {
            const int chunk = first + slot * WARPS, next = chunk + AHEAD * WARPS;
            if (chunk < end) add<EIGHTS, EVEN>(sums, held[slot], x[slot]);
            if (next < end) {
                held[slot].load(words, scales, zeros, tiles, chunks, next, lane);
#pragma unroll
                for (int e = 0; e < EIGHTS; ++e) x[slot][e].load(rows, e * 8 + lane / 4, next, lane);
            }
        }
    }

#pragma unroll
    for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e)
            *reinterpret_cast<float4*>(&shared[warp][((i * EIGHTS + e) * 32 + lane) * 4]) =
                make_float4(sums[i][e][0], sums[i][e][1], sums[i][e][2], sums[i][e][3]);
    __syncthreads();
    const int num_parts = gridDim.y;
    float* mine = parts + pair * num_parts * COUNT;
    for (int v = threadIdx.x; v < COUNT; v += WARPS * 32) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) sum += shared[w][v];
        shared[0][v] = sum;
        if (num_parts > 1) __stcg(mine + blockIdx.y * COUNT + v, sum);
    }
    if (num_parts > 1) {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            is_last = atomicAdd(turns + pair, 1) == num_parts - 1;
            if (is_last) turns[pair] = 0;
        }
        __syncthreads();
        if (!is_last) return;
        __threadfence();
        for (int v = threadIdx.x; v < COUNT; v += WARPS * 32) {
            float sum = 0;
            for (int part = 0; part < num_parts; ++part) sum += __ldcg(mine + part * COUNT + v);
            shared[0][v] = sum;
        }
    }
    __syncthreads();

    // Rounded as separate operations round: behind the product, the gate, the sum with the residual.
    const int64_t width = GATED ? ends.outputs / 2 : ends.outputs;
    for (int v = threadIdx.x; v < (GATED ? COUNT / 2 : COUNT); v += WARPS * 32) {
        const int2 at = place(v, EIGHTS);
        const int64_t output = GATED ? pair * TILE + at.x : pair * TILE * TILES + at.x;
        if (output >= width || at.y >= rows.count) continue;
        float y = shared[0][v];
        if (ends.bias != nullptr) y += __bfloat162float(ends.bias[output]);
        y = __bfloat162float(__float2bfloat16(y));
        if (GATED) {
            float up = shared[0][v + COUNT / 2];
            if (ends.bias != nullptr) up += __bfloat162float(ends.bias[width + output]);
            up = __bfloat162float(__float2bfloat16(up));
            y = __bfloat162float(__float2bfloat16(y / (1.0f + __expf(-y)))) * up;
        }
        const int64_t place = at.y * ends.stride + output;
        if (ends.residual != nullptr) y += __bfloat162float(ends.residual[place]);
        ends.out[place] = __float2bfloat16(y);
    }
}

// Of a chunk of a tile, each lane writes eight inputs of two outputs, of both groups.
template <bool EVEN>
__global__ void unpack_kernel(const uint4* words, const uint2* scales, const unsigned* zeros,
                              __nv_bfloat16* out, int chunks, int64_t total) {
    const int lane = threadIdx.x % 32;
    const int64_t at = int64_t(blockIdx.x) * WARPS + threadIdx.x / 32;
    if (at >= total) return;
    const uint4 four = streamed(words + at * 32 + lane);
    const uint2 scale = scales[at * 8 + lane / 4];
    const unsigned zero = EVEN ? 0x08080808 : zeros[at * 8 + lane / 4];
#pragma unroll
    for (int group = 0; group < 2; ++group) {
        const unsigned own[2] = {group == 0 ? four.x : four.z, group == 0 ? four.y : four.w};
        const unsigned pair = group == 0 ? scale.x : scale.y;
        const float2 both = __half22float2(reinterpret_cast<const __half2&>(pair));
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float off = float(zero >> (16 * group + 8 * r) & 255), by = r == 0 ? both.x : both.y;
            __nv_bfloat162 numbers[4];
#pragma unroll
            for (int s = 0; s < 2; ++s)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int nibble = r + 2 * h;
                    const float a = float(own[s] >> (4 * nibble) & 15);
                    const float b = float(own[s] >> (4 * nibble + 16) & 15);
                    numbers[2 * s + h] = __floats2bfloat162_rn((a - off) * by, (b - off) * by);
                }
            const int64_t output = at / chunks * TILE + lane / 4 + 8 * r;
            const int64_t input = at % chunks * CHUNK + group * 32 + lane % 4 * 8;
            *reinterpret_cast<uint4*>(out + output * chunks * CHUNK + input) =
                *reinterpret_cast<uint4*>(numbers);
        }
    }
}

template <int EIGHTS, bool EVEN, bool GATED, int AHEAD>
int start(dim3 grid, cudaStream_t stream, bool early, const Rows& rows, const void* words,
          const void* scales, const void* zeros, const Ends& ends, void* parts, void* turns, int chunks,
          int chunks_of_part) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(WARPS * 32);
    config.stream = stream;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    return int(cudaLaunchKernelEx(&config, few_rows_kernel<EIGHTS, EVEN, GATED, AHEAD>, rows,
                                  (const uint4*)words, (const uint2*)scales, (const unsigned*)zeros, ends,
                                  (float*)parts, (int*)turns, chunks, chunks_of_part));
}

template <bool EVEN, bool GATED, typename... Arguments>
int start_for(int eights, Arguments... arguments) {
    if (eights == 1) return start<1, EVEN, GATED, 2>(arguments...);
    return start<2, EVEN, GATED, 2>(arguments...);
}

}  // namespace

// x [rows, K] bfloat16, rows at most 16, its rows 16 bytes aligned. words, scales, zeros: see `tiled.py`;
// zeros null where all are 8. bias, residual: null or bfloat16. out: [rows, N], gated [rows, N / 2], rows
// `stride` apart as those of residual. parts: float32, 256 for each pair of tiles,
// part and eight rows, unless there is one part. turns: int32 zeros, one for
// each pair of tiles, and zeros again afterwards. early: see `yaie.backends.early`.
YAIE_API int few_rows(const void* x, const void* words, const void* scales, const void* zeros,
                      const void* bias, const void* residual, void* out, void* parts, void* turns,
                      int64_t rows, int64_t x_stride, int64_t stride, int64_t n, int64_t k, int64_t gated,
                      int64_t num_parts, int64_t early, cudaStream_t stream) {
    const Rows given{(const __nv_bfloat16*)x, int(rows), x_stride};
    const Ends ends{(const __nv_bfloat16*)bias, (const __nv_bfloat16*)residual, (__nv_bfloat16*)out, stride,
                    n};
    const int chunks = int(k / CHUNK), of_part = int((chunks + num_parts - 1) / num_parts);
    const int64_t tiles = n / TILE, pairs = gated ? tiles / 2 : (tiles + 1) / 2;
    const dim3 grid(pairs, num_parts);
    const int eights = rows <= 8 ? 1 : 2;
    const bool even = zeros == nullptr;
    auto call = [&](auto run) {
        return run(eights, grid, stream, early != 0, given, words, scales, zeros, ends, parts, turns, chunks,
                   of_part);
    };
    if (even && gated) return call([](auto... a) { return start_for<true, true>(a...); });
    if (even) return call([](auto... a) { return start_for<true, false>(a...); });
    if (gated) return call([](auto... a) { return start_for<false, true>(a...); });
    return call([](auto... a) { return start_for<false, false>(a...); });
}

// out [N, K] bfloat16: (code - zero) * scale.
YAIE_API int unpack(const void* words, const void* scales, const void* zeros, void* out, int64_t n,
                    int64_t k, cudaStream_t stream) {
    const int64_t total = n / TILE * (k / CHUNK);
    const dim3 grid((total + WARPS - 1) / WARPS);
    return launch(zeros == nullptr ? unpack_kernel<true> : unpack_kernel<false>, grid, dim3(WARPS * 32), 0,
                  stream, (const uint4*)words, (const uint2*)scales, (const unsigned*)zeros,
                  (__nv_bfloat16*)out, int(k / CHUNK), total);
}
