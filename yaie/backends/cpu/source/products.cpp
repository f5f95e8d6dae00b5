// Products of few rows with weights of eight and of four bits: codes are widened in registers, so that
// a step reads a quarter or an eighth of the bytes that it would of float32.
#include <cstdint>
#include <cstring>
#include <vector>

#include "threads.h"

namespace {

constexpr int LANES = 16;
constexpr int64_t WORTH_A_THREAD = 1 << 15;  // products

using Floats = float __attribute__((vector_size(4 * LANES)));
using Ints = int32_t __attribute__((vector_size(4 * LANES)));

template <typename Vector>
inline Vector load(const void* from) {
    Vector vector;
    std::memcpy(&vector, from, sizeof(vector));
    return vector;
}

inline float sum(Floats vector) {
    float total = 0;
    for (int lane = 0; lane < LANES; lane++) total += vector[lane];
    return total;
}

struct Product {
    const float* x;
    const void* codes;
    const float* scales;
    const int32_t* qzeros;
    float* out;
    int64_t rows, inputs, outputs, group;
};

// Four codes lie in a word, so that a vector of words holds 4 * LANES inputs: code j of each of them
// belongs to inputs j, 4 + j, 8 + j, ... x is brought into this order beforehand, by `by_places`.
constexpr int64_t STEP = 4 * LANES;

void by_places(const float* x, float* out, int64_t inputs) {
    for (int64_t i = 0; i + STEP <= inputs; i += STEP)
        for (int j = 0; j < 4; j++)
            for (int lane = 0; lane < LANES; lane++) out[i + j * LANES + lane] = x[i + 4 * lane + j];
    for (int64_t i = inputs / STEP * STEP; i < inputs; i++) out[i] = x[i];
}

// `OUTPUTS` outputs from `o` on of one row: x is loaded once for all of them.
template <int OUTPUTS>
void int8_outputs(const Product& call, int64_t row, int64_t o) {
    const float* x = call.x + row * call.inputs;
    const int8_t* codes = static_cast<const int8_t*>(call.codes) + o * call.inputs;
    Floats sums[OUTPUTS] = {};
    int64_t i = 0;
    for (; i + STEP <= call.inputs; i += STEP) {
        Ints words[OUTPUTS];
        for (int k = 0; k < OUTPUTS; k++) words[k] = load<Ints>(codes + k * call.inputs + i);
        for (int j = 0; j < 4; j++) {
            const Floats numbers = load<Floats>(x + i + j * LANES);
            for (int k = 0; k < OUTPUTS; k++) {
                const Ints wide = (words[k] << (24 - 8 * j)) >> 24;
                sums[k] += __builtin_convertvector(wide, Floats) * numbers;
            }
        }
    }
    for (int k = 0; k < OUTPUTS; k++) {
        float total = sum(sums[k]);
        for (int64_t j = i; j < call.inputs; j++) total += codes[k * call.inputs + j] * x[j];
        call.out[row * call.outputs + o + k] = total * call.scales[o + k];
    }
}

// LANES outputs from `o` on of one row, or those that are left: side by side in a vector.
void int4_outputs(const Product& call, int64_t row, int64_t o) {
    const float* x = call.x + row * call.inputs;
    const int32_t* words = static_cast<const int32_t*>(call.codes);
    const int count = call.outputs - o < LANES ? int(call.outputs - o) : LANES;
    Floats total = {};
    for (int64_t begin = 0, group = 0; begin < call.inputs; begin += call.group, group++) {
        Floats sums = {};
        float all = 0;
        for (int64_t i = begin; i < begin + call.group; i += 8) {
            Ints packed = {};
            std::memcpy(&packed, words + i / 8 * call.outputs + o, 4 * count);
            for (int j = 0; j < 8; j++) {
                const Ints codes = (packed >> (4 * j)) & 15;
                sums += __builtin_convertvector(codes, Floats) * x[i + j];
                all += x[i + j];
            }
        }
        Floats zeros = {}, scales = {};
        std::memcpy(&scales, call.scales + group * call.outputs + o, 4 * count);
        const int32_t* stored = call.qzeros + group * (call.outputs / 8) + o / 8;
        for (int k = 0; k < count; k++) zeros[k] = float((stored[k / 8] >> (k % 8 * 4)) & 15);
        total += (sums - zeros * all) * scales;
    }
    std::memcpy(call.out + row * call.outputs + o, &total, 4 * count);
}

int threads_for_products(const Product& call, int threads) {
    const int64_t worth = call.rows * call.inputs * call.outputs / WORTH_A_THREAD;
    return worth < threads ? int(worth < 1 ? 1 : worth) : threads;
}

constexpr int64_t TILE = 64;  // outputs that a thread takes at a time

}  // namespace

extern "C" {

// x: [rows, inputs], codes: [outputs, inputs] int8, scales: [outputs], out: [rows, outputs].
void yaie_int8_product(const float* x, const void* codes, const float* scales, float* out, int64_t rows,
                       int64_t inputs, int64_t outputs, int threads) {
    std::vector<float> ordered(rows * inputs);
    for (int64_t row = 0; row < rows; row++) by_places(x + row * inputs, &ordered[row * inputs], inputs);
    const Product call{ordered.data(), codes, scales, nullptr, out, rows, inputs, outputs, inputs};
    for_each(int((outputs + TILE - 1) / TILE), threads_for_products(call, threads), [&](int tile) {
        const int64_t end = std::min(outputs, (tile + 1) * TILE);
        for (int64_t row = 0; row < rows; row++) {
            int64_t o = tile * TILE;
            for (; o + 4 <= end; o += 4) int8_outputs<4>(call, row, o);
            for (; o < end; o++) int8_outputs<1>(call, row, o);
        }
    });
}

// qweight: [inputs / 8, outputs], scales: [groups, outputs], qzeros: [groups, outputs / 8]; outputs: a
// multiple of 8.
void yaie_int4_product(const float* x, const void* qweight, const float* scales, const int32_t* qzeros,
                       float* out, int64_t rows, int64_t inputs, int64_t outputs, int64_t group, int threads) {
    const Product call{x, qweight, scales, qzeros, out, rows, inputs, outputs, group};
    for_each(int((outputs + TILE - 1) / TILE), threads_for_products(call, threads), [&](int tile) {
        const int64_t end = std::min(outputs, (tile + 1) * TILE);
        for (int64_t row = 0; row < rows; row++)
            for (int64_t o = tile * TILE; o < end; o += LANES) int4_outputs(call, row, o);
    });
}
}
