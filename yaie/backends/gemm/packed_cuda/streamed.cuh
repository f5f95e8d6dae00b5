// What `streamed.cu` multiplies by: for each way of storing a weight, what a lane copies of a chunk, and
// how that becomes operands of tensor cores.
//
// A lane 4 * g + t has the outputs g and g + 8 of each tile. fetch: a chunk of TILES tiles, to the lane's
// own place in a stage. add: its products with x, eight rows at a time. input: which inputs of a chunk,
// eight of them, x[.][half] has to be.
#pragma once

#include "yaie.cuh"

namespace {

constexpr int WARPS = 8;
constexpr int THREADS = 32 * WARPS;
constexpr int TILE = 16;   // outputs of a tile
constexpr int TILES = 2;   // of a pair; of a gated product one of gates and one of their ups
constexpr int CHUNK = 64;  // inputs of a turn of a warp

struct Rows {
    const __nv_bfloat16* x;
    int count;
    int64_t stride;
};

struct Ends {
    const __nv_bfloat16* bias;      // or null
    const __nv_bfloat16* residual;  // or null; may be out
    __nv_bfloat16* out;
    const float* scales;  // of the outputs, or null
    int64_t stride;
    int64_t outputs;
};

template <int BYTES> __device__ void copy_ahead(void* to, const void* from) {
    const unsigned at = unsigned(__cvta_generic_to_shared(to));
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(BYTES) : "memory");
    }
}

__device__ void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __nv_bfloat162 two(unsigned bits) { return reinterpret_cast<const __nv_bfloat162&>(bits); }

__device__ unsigned bits_of(__nv_bfloat162 pair) { return reinterpret_cast<const unsigned&>(pair); }

// In the order of `tiled.py`. Codes become numbers two at a time: or-ed into the mantissa of 128 they are
// 128 + code (Frantar et al. 2024, "MARLIN"), from which 128 + zero is taken without a rounding.
// Scales multiply the sums of a group of 32 inputs, not weights.
template <bool EVEN> struct Int4 {
    static constexpr int STAGES = 4;
    static constexpr unsigned MAGIC = 0x43004300;  // 128 in bfloat16, twice
    const uint4* words;
    const uint2* scales;
    const unsigned* zeros;

    struct Stage {
        uint4 words[TILES][THREADS];
        uint2 scales[TILES][THREADS];
        unsigned zeros[EVEN ? 1 : TILES][EVEN ? 4 : THREADS];
    };

    static constexpr int blocks_of(int eights) { return eights == 1 ? 3 : 2; }

    __device__ static int input(int lane, int half) { return half * 32 + lane % 4 * 8; }

    __device__ void fetch(Stage& stage, const int (&tiles)[TILES], int chunks, int chunk, int lane) const {
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            const int64_t at = int64_t(tiles[i]) * chunks + chunk;
            copy_ahead<16>(&stage.words[i][threadIdx.x], words + at * 32 + lane);
            copy_ahead<8>(&stage.scales[i][threadIdx.x], scales + at * 8 + lane / 4);
            if (!EVEN) copy_ahead<4>(&stage.zeros[i][threadIdx.x], zeros + at * 8 + lane / 4);
        }
    }

    // A word's numbers as four registers of two: of the outputs g, g + 8, g, g + 8.
    __device__ static void spread(unsigned word, unsigned low, unsigned high, unsigned (&numbers)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            unsigned codes;
            asm("lop3.b32 %0, %1, 0x000F000F, %2, 0xEA;" : "=r"(codes) : "r"(word >> (4 * i)), "n"(MAGIC));
            numbers[i] = bits_of(__hsub2(two(codes), two(i % 2 == 0 ? low : high)));
        }
    }

    template <int EIGHTS>
    __device__ void add(float (&sums)[TILES][EIGHTS][4], const Stage& stage, const uint4 (&x)[EIGHTS][2]) const {
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            const uint4 four = stage.words[i][threadIdx.x];
            const uint2 scale_of = stage.scales[i][threadIdx.x];
            const unsigned zeros_of = EVEN ? 0x08080808 : stage.zeros[EVEN ? 0 : i][EVEN ? 0 : threadIdx.x];
#pragma unroll
            for (int group = 0; group < 2; ++group) {
                const unsigned own = zeros_of >> (16 * group);
                const unsigned low = MAGIC + (own & 255) * 0x10001, high = MAGIC + (own >> 8 & 255) * 0x10001;
                unsigned first[4], second[4];
                spread(group == 0 ? four.x : four.z, low, high, first);
                spread(group == 0 ? four.y : four.w, low, high, second);
                const unsigned pair = group == 0 ? scale_of.x : scale_of.y;
                const float2 scale = __half22float2(reinterpret_cast<const __half2&>(pair));
#pragma unroll
                for (int e = 0; e < EIGHTS; ++e) {
                    const uint4 v = x[e][group];
                    float part[4] = {};
                    multiply(part, first, v.x, v.y);
                    multiply(part, second, v.z, v.w);
                    sums[i][e][0] += scale.x * part[0];
                    sums[i][e][1] += scale.x * part[1];
                    sums[i][e][2] += scale.y * part[2];
                    sums[i][e][3] += scale.y * part[3];
                }
            }
        }
    }
};

// float8_e4m3fn [N, K] as a checkpoint has it; NaN is no weight. A lane reads 16 inputs of an output at a
// time. Sign, exponent and mantissa stand in a bfloat16 as they are, but for the exponent's bias:
// 2 ** 120 makes up for it.
struct Fp8 {
    static constexpr int STAGES = 4;
    static constexpr unsigned BIAS = 0x7B807B80;  // 2 ** 120 in bfloat16, twice
    const uint4* codes;
    int64_t k;

    struct Stage {
        uint4 codes[TILES][2][THREADS];
    };

    static constexpr int blocks_of(int eights) { return eights == 1 ? 3 : 2; }

    __device__ static int input(int lane, int half) { return lane % 4 * 16 + half * 8; }

    __device__ void fetch(Stage& stage, const int (&tiles)[TILES], int, int chunk, int lane) const {
#pragma unroll
        for (int i = 0; i < TILES; ++i)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const int64_t output = int64_t(tiles[i]) * TILE + lane / 4 + 8 * r;
                copy_ahead<16>(&stage.codes[i][r][threadIdx.x],
                               codes + (output * k + chunk * CHUNK) / 16 + lane % 4);
            }
    }

    // Two of the four numbers of a word: 0 and 1, or 2 and 3.
    __device__ static unsigned spread(unsigned word, bool upper) {
        const unsigned apart = __byte_perm(word, 0, upper ? 0x3424 : 0x1404);  // the upper bytes of two halves
        const unsigned bits = (apart & 0x80008000) | (apart >> 4 & 0x07F007F0);
        return bits_of(__hmul2(two(bits), two(BIAS)));
    }

    template <int EIGHTS>
    __device__ void add(float (&sums)[TILES][EIGHTS][4], const Stage& stage, const uint4 (&x)[EIGHTS][2]) const {
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
            const uint4 low = stage.codes[i][0][threadIdx.x], high = stage.codes[i][1][threadIdx.x];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const unsigned l = j == 0 ? low.x : j == 1 ? low.y : j == 2 ? low.z : low.w;
                const unsigned h = j == 0 ? high.x : j == 1 ? high.y : j == 2 ? high.z : high.w;
                const unsigned a[4] = {spread(l, false), spread(h, false), spread(l, true), spread(h, true)};
#pragma unroll
                for (int e = 0; e < EIGHTS; ++e) {
                    const uint4 v = x[e][j / 2];
                    multiply(sums[i][e], a, j % 2 == 0 ? v.x : v.z, j % 2 == 0 ? v.y : v.w);
                }
            }
        }
    }
};

}  // namespace
