// Products with weights of few bits (`kinds.h`), by sums of whole numbers: x in slices of eight bits
// (`slices.h`) meets the codes as they are stored, four at a time. A step reads four or eight bits of each
// weight; its sums are those of unpacked weights and x in float32, but for their order.
#include <memory>
#include <vector>

#include "kinds.h"
#include "rows.h"
#include "scores.h"
#include "threads.h"

namespace {

constexpr int64_t WORTH_A_THREAD = 1 << 16;  // products
constexpr int64_t AT_A_TIME = 1 << 14;       // weights that a thread takes
constexpr int MOST_ROWS = 8;                 // whose sums stay in registers

}  // namespace

// See `library.py`. Some outputs of a weight, all of one kind: [tiles, blocks of a row, bytes of LANES blocks].
struct BlockPart {
    const uint8_t* blocks;
    int64_t outputs;
    int32_t kind;
};

// See `library.py`. out = x by the weight, whose parts' outputs lie side by side. stride: from a row of out to
// the next. Null where there is none: gain: x is normed by it first. bias; residual: is added last, and may
// be out. gated: what is kept is silu of the first half of the outputs by the second.
struct BlocksProduct {
    const BlockPart* parts;
    const void *x, *gain, *bias, *residual;
    void* out;
    int64_t rows, inputs, stride;
    float eps;
    int32_t num_parts, gated, is_bfloat16, threads;
};

namespace {

// A part of a call. first: where its outputs begin among all.
struct Product {
    const uint8_t* blocks;
    int64_t rows, inputs, outputs, first, stride;
    void* out;
    const void *bias, *residual;
};

// The sum over all slices.
inline Floats as_floats(const Ints (&sums)[2]) {
    return __builtin_convertvector((sums[0] << 8) + sums[1], Floats);
}

inline Floats as_floats(const Ints (&sums)[3]) {
    const Floats large = __builtin_convertvector(sums[0], Floats);
    return large * 65536.0f + __builtin_convertvector((sums[1] << 8) + sums[2], Floats);
}

// A tile of a row, rounded after each step as separate operations would.
template <typename T>
inline void put(const Product& call, int64_t row, int64_t tile, Floats x) {
    const int64_t at = call.first + tile * LANES, count = call.outputs - tile * LANES;
    x = rounded<T>(x);
    if (call.bias != nullptr) x = rounded<T>(x + load_some(static_cast<const T*>(call.bias) + at, count));
    const int64_t place = row * call.stride + at;
    if (call.residual != nullptr) x += load_some(static_cast<const T*>(call.residual) + place, count);
    store_some(static_cast<T*>(call.out) + place, x, count);
}

// A tile of outputs of R rows from `row` on. x: [rows, parts].
template <typename Kind, typename T, int R, int S>
void tile_of(const Product& call, const Part<S>* x, int64_t row, int64_t tile) {
    constexpr int SOME = GROUPS / Kind::HALVES;
    const int64_t parts = call.inputs / PART, blocks = parts / Kind::PARTS;
    Floats totals[R] = {};
    Kind block = opened<Kind>(call.blocks, tile, blocks);
    const Part<S>* of_block = x + row * parts;
    for (int64_t b = 0; b < blocks; b++, block.at += Kind::BYTES * LANES, of_block += Kind::PARTS)
        for (int i = 0; i < Kind::PARTS; i++) {
            Words groups[GROUPS];
            block.groups(i, groups);
            for (int h = 0; h < Kind::HALVES; h++) {
                const Floats scale = block.scale(i, h);
                for (int r = 0; r < R; r++) {
                    const Part<S>& part = of_block[r * parts + i];
                    Ints sums[S];
                    for (int s = 0; s < S; s++) {
                        const int32_t all = Kind::HALVES == 2 ? part.halves[s][h]
                                                              : part.halves[s][0] + part.halves[s][1];
                        sums[s] = everywhere(-Kind::BIAS * all);
                    }
#pragma GCC unroll 8
                    for (int g = h * SOME; g < (h + 1) * SOME; g++)
                        for (int s = 0; s < S; s++)
                            sums[s] = Kind::BITS == 8 ? dot_of_bytes(sums[s], groups[g], part.slices[s][g])
                                                      : dot(sums[s], groups[g], part.slices[s][g]);
                    totals[r] += as_floats(sums) * (scale * part.scale);
                }
            }
            if (Kind::HAS_LEAST) {
                const Floats least = block.least(i);
                for (int r = 0; r < R; r++) totals[r] += least * of_block[r * parts + i].total;
            }
        }
    for (int r = 0; r < R; r++) put<T>(call, row + r, tile, totals[r]);
}

// Some tiles of all rows.
template <typename Kind, typename T, int S>
void tiles_of(const Product& call, const Part<S>* x, int64_t first, int64_t end) {
    for (int64_t row = 0; row < call.rows;) {
        const int left = int(call.rows - row);
        const auto some = [&](auto r) {
            for (int64_t tile = first; tile < end; tile++) tile_of<Kind, T, r.value, S>(call, x, row, tile);
        };
        row += left >= 4 ? pieces<MOST_ROWS, 4, 4>(left, some) : pieces<2, 1, 1>(left, some);
    }
}

// Calls work(a Kind) for the number of one: ggml's, or, above 255, ours.
template <typename Work>
void of_kind(int kind, const Work& work) {
    switch (kind) {
        case 2: return work(Q4_0{});
        case 3: return work(Q4_1{});
        case 8: return work(Q8_0{});
        case 12: return work(Q4_K{});
        case 14: return work(Q6_K{});
        case 39: return work(MXFP4{});
        case 256: return work(Int8{});
        case 257: return work(Int4<1>{});
        case 258: return work(Int4<2>{});
        case 260: return work(Int4<4>{});
    }
}

inline int64_t tiles_in(int64_t outputs) { return (outputs + LANES - 1) / LANES; }

// Rows in slices, normed if there is a gain.
template <typename T, int S>
std::unique_ptr<Part<S>[]> sliced(const BlocksProduct& call) {
    const int64_t parts = call.inputs / PART;
    std::unique_ptr<Part<S>[]> all(new Part<S>[call.rows * parts]);
    const int threads = at_most(call.threads, call.rows * call.inputs / (1 << 14));
    for_each(int(call.rows), threads, [&](int64_t row) {
        const T* x = static_cast<const T*>(call.x) + row * call.inputs;
        std::unique_ptr<T[]> normed;
        if (call.gain != nullptr) {
            normed.reset(new T[call.inputs]);
            norm_row(x, static_cast<T*>(nullptr), static_cast<const T*>(call.gain), normed.get(), call.inputs,
                     call.eps);
            x = normed.get();
        }
        for (int64_t i = 0; i < parts; i++) {
            float wide[PART];
            for (int k = 0; k < PART; k += LANES) store(wide + k, load(x + i * PART + k));
            slice(wide, all[row * parts + i]);
        }
    });
    return all;
}

template <typename T, int S>
void multiply(const BlocksProduct& call, void* out, int64_t stride) {
    const auto x = sliced<T, S>(call);
    const int64_t some = std::max<int64_t>(1, AT_A_TIME / (call.inputs * LANES));
    std::vector<Product> products;
    std::vector<int64_t> pieces;  // of all parts up to each
    int64_t first = 0, count = 0;
    for (int p = 0; p < call.num_parts; p++) {
        const BlockPart& part = call.parts[p];
        products.push_back({part.blocks, call.rows, call.inputs, part.outputs, first, stride, out, call.bias,
                            call.residual});
        pieces.push_back(count += (tiles_in(part.outputs) + some - 1) / some);
        first += part.outputs;
    }
    const int threads = at_most(call.threads, call.rows * call.inputs * first / WORTH_A_THREAD);
    for_each_in_runs(int(count), threads, [&](int i) {
        int p = 0;
        while (i >= pieces[p]) p++;
        const int64_t begin = (i - (p == 0 ? 0 : pieces[p - 1])) * some;
        const int64_t end = std::min(tiles_in(call.parts[p].outputs), begin + some);
        of_kind(call.parts[p].kind, [&](auto kind) {
            tiles_of<decltype(kind), T>(products[p], x.get(), begin, end);
        });
    });
}

template <typename T, int S>
void multiply(const BlocksProduct& call) {
    if (!call.gated) return multiply<T, S>(call, call.out, call.stride);
    int64_t both = 0;
    for (int p = 0; p < call.num_parts; p++) both += call.parts[p].outputs;
    const std::unique_ptr<T[]> products(new T[call.rows * both]);
    multiply<T, S>(call, products.get(), both);
    for_each(int(call.rows), at_most(call.threads, call.rows * both / (1 << 15)), [&](int64_t row) {
        const T* gate = products.get() + row * both;
        silu_row(gate, gate + both / 2, static_cast<T*>(call.out) + row * call.stride, both / 2);
    });
}

// Blocks of rows, as a file has them, into tiles.
template <typename Kind>
void arrange(const uint8_t* rows, int64_t outputs, int64_t inputs, uint8_t* to, int threads) {
    const int64_t blocks = inputs / (PART * Kind::PARTS);
    for_each(int((outputs + LANES - 1) / LANES), threads, [&](int64_t tile) {
        const int64_t held = std::min<int64_t>(LANES, outputs - tile * LANES);
        for (int lane = 0; lane < held; lane++)
            for (int64_t b = 0; b < blocks; b++)
                Kind::place(rows + ((tile * LANES + lane) * blocks + b) * Kind::FILE_BYTES,
                            to + (tile * blocks + b) * Kind::BYTES * LANES, lane);
    });
}

// Numbers of some tiles, which lie side by side in out [inputs, stride].
template <typename Kind, typename T>
void unpack(const BlockPart& part, int64_t inputs, T* out, int64_t first, int64_t end) {
    const int64_t blocks = inputs / (PART * Kind::PARTS);
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t tile = first; tile < end; tile++) {
            Kind block = opened<Kind>(part.blocks, tile, blocks);
            block.at += b * Kind::BYTES * LANES;
            for (int i = 0; i < Kind::PARTS; i++) {
                Words groups[GROUPS];
                block.groups(i, groups);
                const Floats least = block.least(i);
                for (int k = 0; k < PART; k++) {
                    const Words word = groups[k / 8 * 2 + k % 2] >> (8 * (k % 8 / 2)) & 255;
                    const Floats code = __builtin_convertvector((Ints)word - Kind::BIAS, Floats);
                    const Floats scale = block.scale(i, Kind::HALVES == 2 ? k / 16 : 0);
                    T* to = out + ((b * Kind::PARTS + i) * PART + k) * part.outputs;
                    store_some(to + tile * LANES, code * scale + least, part.outputs - tile * LANES);
                }
            }
        }
}

template <typename T>
void unpack(const BlockPart& part, int64_t inputs, T* out, int threads) {
    const int64_t tiles = tiles_in(part.outputs);
    constexpr int64_t SOME = 64 / LANES;
    for_each(int((tiles + SOME - 1) / SOME), threads, [&](int64_t i) {
        of_kind(part.kind, [&](auto kind) {
            unpack<decltype(kind)>(part, inputs, out, i * SOME, std::min(tiles, (i + 1) * SOME));
        });
    });
}

// Numbers of one output.
template <typename Kind, typename T>
void unpack_row(const BlockPart& part, int64_t inputs, int64_t output, T* to) {
    const int64_t blocks = inputs / (PART * Kind::PARTS), tile = output / LANES, lane = output % LANES;
    Kind block = opened<Kind>(part.blocks, tile, blocks);
    for (int64_t b = 0; b < blocks; b++, block.at += Kind::BYTES * LANES)
        for (int i = 0; i < Kind::PARTS; i++) {
            Words groups[GROUPS];
            block.groups(i, groups);
            const float least = block.least(i)[lane];
            for (int k = 0; k < PART; k++) {
                const uint32_t word = groups[k / 8 * 2 + k % 2][lane];
                const float code = float(int(word >> (8 * (k % 8 / 2)) & 255) - Kind::BIAS);
                const float scale = block.scale(i, Kind::HALVES == 2 ? k / 16 : 0)[lane];
                store_one(to++, code * scale + least);
            }
        }
}

template <typename T>
void unpack_rows(const BlockPart& part, int64_t inputs, const int64_t* which, T* out, int64_t count,
                 int threads) {
    of_kind(part.kind, [&](auto kind) {
        for_each(int(count), at_most(threads, count * inputs / (1 << 14)), [&](int64_t i) {
            unpack_row<decltype(kind)>(part, inputs, which[i], out + i * inputs);
        });
    });
}

}  // namespace

extern "C" {

int yaie_has_dots() { return HAS_DOTS; }

// Bytes of LANES blocks of this kind.
int64_t yaie_block_bytes(int kind) {
    int64_t bytes = 0;
    of_kind(kind, [&](auto some) { bytes = decltype(some)::BYTES * LANES; });
    return bytes;
}

// rows: [outputs, blocks of a row] as a file has them. to: [tiles, blocks of a row, yaie_block_bytes].
void yaie_arrange_blocks(const uint8_t* rows, uint8_t* to, int64_t inputs, int64_t outputs, int kind,
                         int threads) {
    of_kind(kind, [&](auto some) {
        using Kind = decltype(some);
        if constexpr (Kind::FILE_BYTES > 0) arrange<Kind>(rows, outputs, inputs, to, threads);
    });
}

void yaie_blocks_product(const BlocksProduct* call) {
    call->is_bfloat16 ? multiply<BFloat16, 2>(*call) : multiply<float, 3>(*call);
}

// out: [inputs, outputs] of the part's numbers, in float32 or bfloat16.
void yaie_blocks_numbers(const BlockPart* part, void* out, int64_t inputs, int is_bfloat16, int threads) {
    is_bfloat16 ? unpack(*part, inputs, static_cast<BFloat16*>(out), threads)
                : unpack(*part, inputs, static_cast<float*>(out), threads);
}

// out: [count, inputs] of these outputs of the part, in float32 or bfloat16.
void yaie_blocks_rows(const BlockPart* part, const int64_t* which, void* out, int64_t count, int64_t inputs,
                      int is_bfloat16, int threads) {
    is_bfloat16 ? unpack_rows(*part, inputs, which, static_cast<BFloat16*>(out), count, threads)
                : unpack_rows(*part, inputs, which, static_cast<float*>(out), count, threads);
}
}
