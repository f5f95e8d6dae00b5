// Weights in the blocks of GGUF files and of MXFP4, multiplied as they lie there: 32 or 256 numbers of a row share what
// they are multiplied with, and become float32 in registers, right before they meet x. So a step reads four
// or eight bits of each weight, and its sums are those of unpacked weights but for their order.
//
// The layouts are ggml's. Each kind below has the bytes of a block, and `part`: the i-th 32 numbers of it.
#include <cstdint>
#include <cstring>

#include "threads.h"
#include "vectors.h"

namespace {

constexpr int PART = 32;
constexpr int VECTORS = PART / LANES;
constexpr int64_t WORTH_A_THREAD = 1 << 15;  // products
constexpr int64_t TILE = 32;                 // outputs that a thread takes at a time

typedef uint8_t Bytes __attribute__((vector_size(LANES)));
typedef int8_t SignedBytes __attribute__((vector_size(LANES)));

inline float half(const uint8_t* at) {
    uint16_t bits;
    std::memcpy(&bits, at, 2);
#if defined(__F16C__)
    return _cvtsh_ss(bits);
#else
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, rest = bits & 0x7fff;
    // A float16's exponent and fraction as those of a float32 are 2^112 times too small, denormals too.
    const uint32_t scaled = rest >= 0x7c00 ? 0x7f800000 | (rest & 0x3ff) << 13 : rest << 13;
    float value;
    std::memcpy(&value, &scaled, 4);
    if (rest < 0x7c00) value *= 5.192296858534828e33f;
    return sign ? -value : value;
#endif
}

inline Floats widened(Bytes codes) {
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32((__m128i)codes));
#elif defined(__AVX2__)
    int64_t word;
    std::memcpy(&word, &codes, 8);
    return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(word)));
#else
    return __builtin_convertvector(codes, Floats);
#endif
}

inline Floats widened(SignedBytes codes) {
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)codes));
#elif defined(__AVX2__)
    int64_t word;
    std::memcpy(&word, &codes, 8);
    return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(word)));
#else
    return __builtin_convertvector(codes, Floats);
#endif
}

// Vector v of 32 codes of four bits: the low halves of 16 bytes come before the high ones.
inline Bytes nibbles(const uint8_t* codes, int v) {
    const int first = v * LANES;
    const Bytes bytes = read<Bytes>(codes + first % 16);
    return first < 16 ? bytes & 15 : bytes >> 4;
}

// Codes of four bits (E2M1) as twice the numbers that they stand for, which are whole.
inline SignedBytes doubled(Bytes codes) {
    alignas(16) static constexpr int8_t NUMBERS[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                       0, -1, -2, -3, -4, -6, -8, -12};
#if defined(__AVX2__)
    __m128i places = _mm_setzero_si128();
    std::memcpy(&places, &codes, sizeof codes);
    const __m128i found = _mm_shuffle_epi8(read<__m128i>(NUMBERS), places);
    SignedBytes numbers;
    std::memcpy(&numbers, &found, sizeof numbers);
    return numbers;
#else
    SignedBytes numbers;
    for (int lane = 0; lane < LANES; lane++) numbers[lane] = NUMBERS[codes[lane]];
    return numbers;
#endif
}

// Half of the power of two that an exponent stands for (E8M0, 127 is 1): codes are twice what they are.
inline float half_power(uint8_t exponent) {
    const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : uint32_t(exponent - 1) << 23;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

struct Q8_0 {
    static constexpr int BYTES = 34, PARTS = 1;
    const uint8_t* block;
    float scale;
    explicit Q8_0(const uint8_t* at) : block(at), scale(half(at)) {}
    Floats part(int, int v) const { return widened(read<SignedBytes>(block + 2 + v * LANES)) * scale; }
};

struct Q4_0 {
    static constexpr int BYTES = 18, PARTS = 1;
    const uint8_t* block;
    float scale;
    explicit Q4_0(const uint8_t* at) : block(at), scale(half(at)) {}
    Floats part(int, int v) const { return widened(nibbles(block + 2, v)) * scale - 8.0f * scale; }
};

struct Q4_1 {
    static constexpr int BYTES = 20, PARTS = 1;
    const uint8_t* block;
    float scale, least;
    explicit Q4_1(const uint8_t* at) : block(at), scale(half(at)), least(half(at + 2)) {}
    Floats part(int, int v) const { return widened(nibbles(block + 4, v)) * scale + least; }
};

// Eight scales and eight minima of six bits in 12 bytes; two parts share 32 bytes of codes.
struct Q4_K {
    static constexpr int BYTES = 144, PARTS = 8;
    const uint8_t* block;
    float scales[8], least[8];
    explicit Q4_K(const uint8_t* at) : block(at) {
        const float d = half(at), m = half(at + 2);
        const uint8_t* packed = at + 4;
        for (int i = 0; i < 4; i++) {
            scales[i] = d * float(packed[i] & 63);
            least[i] = m * float(packed[i + 4] & 63);
            scales[i + 4] = d * float((packed[i + 8] & 15) | (packed[i] >> 6 << 4));
            least[i + 4] = m * float((packed[i + 8] >> 4) | (packed[i + 4] >> 6 << 4));
        }
    }
    Floats part(int i, int v) const {
        const Bytes bytes = read<Bytes>(block + 16 + i / 2 * PART + v * LANES);
        return widened(i % 2 == 0 ? bytes & 15 : bytes >> 4) * scales[i] - least[i];
    }
};

// Four low bits of a code in `block`, two high ones behind them; 16 codes share a scale of eight bits.
struct Q6_K {
    static constexpr int BYTES = 210, PARTS = 8;
    const uint8_t* block;
    float scale;
    explicit Q6_K(const uint8_t* at) : block(at), scale(half(at + 208)) {}
    Floats part(int i, int v) const {
        const int upper = i / 4, j = i % 4, at = v * LANES;
        const Bytes low = read<Bytes>(block + upper * 64 + j % 2 * PART + at);
        const Bytes high = read<Bytes>(block + 128 + upper * PART + at) >> (2 * j) & 3;
        const Bytes codes = (j < 2 ? low & 15 : low >> 4) | high << 4;
        const float factor = scale * float(int8_t(block[192 + 2 * i + at / 16]));
        return widened(codes) * factor - 32.0f * factor;
    }
};

struct MXFP4 {
    static constexpr int BYTES = 17, PARTS = 1;
    const uint8_t* block;
    float scale;
    explicit MXFP4(const uint8_t* at) : block(at), scale(half_power(at[0])) {}
    Floats part(int, int v) const { return widened(doubled(nibbles(block + 1, v))) * scale; }
};

struct Product {
    const float* x;  // [rows, inputs]
    const uint8_t* blocks;
    float* out;
    int64_t rows, inputs, outputs, stride;  // stride: from a row of out to the next
};

// O outputs from `o` on of R rows from `row` on.
template <typename Kind, int O, int R>
void outputs_of(const Product& call, int64_t row, int64_t o) {
    const int64_t blocks = call.inputs / (PART * Kind::PARTS);
    const uint8_t* from = call.blocks + o * blocks * Kind::BYTES;
    Floats sums[O][R][VECTORS] = {};
    for (int64_t b = 0; b < blocks; b++) {
        const float* x = call.x + row * call.inputs + b * PART * Kind::PARTS;
        for (int k = 0; k < O; k++) {
            const Kind block(from + (k * blocks + b) * Kind::BYTES);
#pragma GCC unroll 8
            for (int i = 0; i < Kind::PARTS; i++)
                for (int v = 0; v < VECTORS; v++) {
                    const Floats weights = block.part(i, v);
                    for (int r = 0; r < R; r++)
                        sums[k][r][v] += weights * load(x + r * call.inputs + i * PART + v * LANES);
                }
        }
    }
    for (int k = 0; k < O; k++)
        for (int r = 0; r < R; r++) {
            Floats all = sums[k][r][0];
            for (int v = 1; v < VECTORS; v++) all += sums[k][r][v];
            float total = 0.0f;
            for (int lane = 0; lane < LANES; lane++) total += all[lane];
            call.out[(row + r) * call.stride + o + k] = total;
        }
}

template <typename Kind, int O, int R>
void rows_of(const Product& call, int64_t row, int64_t begin, int64_t end) {
    int64_t o = begin;
    for (; o + O <= end; o += O) outputs_of<Kind, O, R>(call, row, o);
    for (; o < end; o++) outputs_of<Kind, 1, R>(call, row, o);
}

template <typename Kind>
void multiply(const Product& call, int threads) {
    const int64_t worth = call.rows * call.inputs * call.outputs / WORTH_A_THREAD;
    threads = int(std::max<int64_t>(1, std::min<int64_t>(threads, worth)));
    for_each(int((call.outputs + TILE - 1) / TILE), threads, [&](int tile) {
        const int64_t begin = tile * TILE, end = std::min(call.outputs, begin + TILE);
        int64_t row = 0;
        for (; row + 4 <= call.rows; row += 4) rows_of<Kind, 2, 4>(call, row, begin, end);
        for (; row + 2 <= call.rows; row += 2) rows_of<Kind, 2, 2>(call, row, begin, end);
        for (; row < call.rows; row++) rows_of<Kind, 4, 1>(call, row, begin, end);
    });
}

inline void keep(float* at, Floats x) { store(at, x); }

inline void keep(BFloat16* at, Floats x) {
#if defined(__AVX512BF16__)
    const __m256bh halves = _mm512_cvtneps_pbh((__m512)x);
    std::memcpy(at, &halves, sizeof halves);
#else
    store(at, x);
#endif
}

template <typename Kind, typename T>
void unpack(const uint8_t* blocks, T* out, int64_t count, int threads) {
    constexpr int64_t SOME = 64;  // blocks
    for_each(int((count + SOME - 1) / SOME), threads, [&](int64_t piece) {
        for (int64_t b = piece * SOME; b < std::min(count, (piece + 1) * SOME); b++) {
            const Kind block(blocks + b * Kind::BYTES);
            T* to = out + b * PART * Kind::PARTS;
            for (int i = 0; i < Kind::PARTS; i++)
                for (int v = 0; v < VECTORS; v++) keep(to + i * PART + v * LANES, block.part(i, v));
        }
    });
}

template <typename Kind>
void unpack_as(const uint8_t* blocks, void* out, int64_t count, int is_bfloat16, int threads) {
    if (is_bfloat16)
        unpack<Kind>(blocks, static_cast<BFloat16*>(out), count, threads);
    else
        unpack<Kind>(blocks, static_cast<float*>(out), count, threads);
}

}  // namespace

extern "C" {

// out[r, o] = x[r] by row o of the weight [outputs, inputs]. kind: ggml's number. Returns whether there is
// such a kind here.
int yaie_blocks_product(const float* x, const uint8_t* blocks, float* out, int64_t rows, int64_t inputs,
                        int64_t outputs, int64_t stride, int kind, int threads) {
    const Product call{x, blocks, out, rows, inputs, outputs, stride};
    switch (kind) {
        case 2: multiply<Q4_0>(call, threads); return 1;
        case 3: multiply<Q4_1>(call, threads); return 1;
        case 8: multiply<Q8_0>(call, threads); return 1;
        case 12: multiply<Q4_K>(call, threads); return 1;
        case 14: multiply<Q6_K>(call, threads); return 1;
        case 39: multiply<MXFP4>(call, threads); return 1;
    }
    return 0;
}

// `count` blocks, one behind the other, as numbers.
int yaie_blocks_numbers(const uint8_t* blocks, void* out, int64_t count, int kind, int is_bfloat16,
                        int threads) {
    switch (kind) {
        case 2: unpack_as<Q4_0>(blocks, out, count, is_bfloat16, threads); return 1;
        case 3: unpack_as<Q4_1>(blocks, out, count, is_bfloat16, threads); return 1;
        case 8: unpack_as<Q8_0>(blocks, out, count, is_bfloat16, threads); return 1;
        case 12: unpack_as<Q4_K>(blocks, out, count, is_bfloat16, threads); return 1;
        case 14: unpack_as<Q6_K>(blocks, out, count, is_bfloat16, threads); return 1;
        case 39: unpack_as<MXFP4>(blocks, out, count, is_bfloat16, threads); return 1;
    }
    return 0;
}
}
