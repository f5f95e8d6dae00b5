// Products with weights of eight and of four bits. Codes are widened in registers, once for several rows, so
// that a step reads a quarter or an eighth of the bytes that it would of float32; for many rows a weight is
// unpacked, and a library multiplies.
#include <cstdint>
#include <vector>

#include "threads.h"
#include "scores.h"


namespace {

constexpr int64_t WORTH_A_THREAD = 1 << 15;  // products, or numbers
constexpr int64_t AT_A_TIME = 64;            // outputs that a thread takes
constexpr int MOST_ROWS = LANES == 8 ? 8 : 16;

// A float16 without infinities: its bits, with an exponent that is 112 less, are a float32's upper ones.
inline Words widened(Words half) { return ((half & 0x8000) << 16) | ((half & 0x7fff) << 13); }

inline Floats load_half(const uint16_t* from) {
    const Words half = __builtin_convertvector(read<Halves>(from), Words);
    return (Floats)widened(half) * 0x1p112f;
}

int threads_for(int64_t work, int threads) { return at_most(threads, work / WORTH_A_THREAD); }

// x in float32, as it is or widened, and what is summed of it.
struct Rows {
    const float* x;
    int64_t rows, inputs;
    std::vector<float> wide;

    Rows(const void* given, bool is_bfloat16, int64_t rows, int64_t inputs)
        : x(static_cast<const float*>(given)), rows(rows), inputs(inputs) {
        if (!is_bfloat16) return;
        wide.resize(rows * inputs);
        const auto* from = static_cast<const BFloat16*>(given);
        for (size_t i = 0; i < wide.size(); i++) wide[i] = load_one(from + i);
        x = wide.data();
    }

    // [rows, groups]
    std::vector<float> sums(int64_t group) const {
        std::vector<float> found;
        for (int64_t begin = 0; begin < rows * inputs; begin += group) {
            Floats total{};
            for (int64_t i = 0; i < group; i += LANES) total += load_some(x + begin + i, int(group - i));
            found.push_back(sum_of(total));
        }
        return found;
    }
};

// A weight in tiles of LANES outputs, one behind the other: lanes are outputs, so that no sum runs across them,
// and a tile is read in one piece. See `gemm.py`.
template <int BITS>
struct Tiles {
    const void* codes;       // [tiles, inputs, LANES] int8, or [tiles, inputs / 8, LANES] words
    const uint16_t* scales;  // [tiles, groups, LANES], float16
    const int8_t* zeros;     // [tiles, groups, LANES]; in four bits of codes less 8
    int64_t inputs, outputs, group;

    static constexpr int STEP = 8;  // inputs whose codes are widened in one go

    // Calls take(j, codes of input i + j) for STEP inputs.
    template <typename Take>
    void widen(int64_t tile, int64_t i, const Take& take) const {
        if constexpr (BITS == 8) {
            const int8_t* from = static_cast<const int8_t*>(codes) + (tile * inputs + i) * LANES;
            for (int j = 0; j < STEP; j++) take(j, load(from + j * LANES));
        } else {
            const int32_t* from = static_cast<const int32_t*>(codes) + (tile * inputs + i) / 8 * LANES;
            const Words word = read<Words>(from);
            for (int j = 0; j < STEP; j++) take(j, level(word >> (4 * j)));
        }
    }

    // The lowest four bits, less 8.
    static Floats level(Words shifted) {
#if defined(__AVX512F__)
        const Floats levels{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
        return (Floats)_mm512_permutexvar_ps((__m512i)shifted, (__m512)levels);
#else
        return __builtin_convertvector((Ints)(shifted & 15) - 8, Floats);
#endif
    }

    // R rows. Sums are kept apart where they are few, since each waits for the one before.
    template <int R, typename T>
    void multiply(const Rows& x, const float* sums, int64_t row, int64_t tile, T* out) const {
        constexpr int APART = R >= 4 ? 1 : 4 / R;
        const int64_t groups = inputs / group;
        Floats totals[R] = {};
        for (int64_t g = 0; g < groups; g++) {
            const float* const numbers = x.x + row * inputs + g * group;
            Floats some[R][APART] = {};
            for (int64_t i = 0; i < group; i += STEP)
                widen(tile, g * group + i, [&](int j, Floats wide) {
                    for (int r = 0; r < R; r++) some[r][j % APART] += wide * numbers[r * inputs + i + j];
                });
            const int64_t at = (tile * groups + g) * LANES;
            const Floats scale = load_half(scales + at), zero = load(zeros + at);
            for (int r = 0; r < R; r++) {
                Floats sum = some[r][0];
                for (int n = 1; n < APART; n++) sum += some[r][n];
                totals[r] += (sum - zero * sums[(row + r) * groups + g]) * scale;
            }
        }
        for (int r = 0; r < R; r++) put(out + (row + r) * outputs, tile, totals[r]);
    }

    // Calls one(row, R) for all rows, the most at a time.
    template <typename One>
    static void in_rows(int64_t rows, const One& one) {
        for (int64_t row = 0; row < rows;) {
            const int left = int(rows - row);
            const auto some = [&](auto r) { one(row, r); };
            row += left >= 8 ? pieces<MOST_ROWS, 8, 8>(left, some) : pieces<4, 2, 1>(left, some);
        }
    }

    // Some tiles by few rows: what is widened is used up at once.
    template <typename T>
    void multiply(const Rows& x, const float* sums, int64_t first, int64_t end, T* out) const {
        for (int64_t tile = first; tile < end; tile++)
            in_rows(x.rows, [&](int64_t row, auto r) { multiply<r.value>(x, sums, row, tile, out); });
    }

    // By many rows: the tiles are widened once, and stay in the cache.
    template <typename T>
    void multiply_many(const Rows& x, int64_t first, int64_t end, T* out) const {
        static thread_local std::vector<float> wide;
        wide.resize((end - first) * inputs * LANES);
        for (int64_t tile = first; tile < end; tile++)
            unpack_one(tile, &wide[(tile - first) * inputs * LANES]);
        in_rows(x.rows, [&](int64_t row, auto r) {
            constexpr int R = r.value;
            for (int64_t tile = first; tile < end; tile++) {
                const float* weights = &wide[(tile - first) * inputs * LANES];
                const float* const numbers = x.x + row * inputs;
                Floats totals[R] = {};
                for (int64_t i = 0; i < inputs; i += STEP)
                    for (int j = 0; j < STEP; j++) {
                        const Floats one = load(weights + (i + j) * LANES);
                        for (int n = 0; n < R; n++) totals[n] += one * numbers[n * inputs + i + j];
                    }
                for (int n = 0; n < R; n++) put(out + (row + n) * outputs, tile, totals[n]);
            }
        });
    }

    // Numbers of a tile: out [inputs, LANES].
    void unpack_one(int64_t tile, float* out) const {
        for (int64_t i = 0; i < inputs; i += STEP) {
            const int64_t at = (tile * (inputs / group) + i / group) * LANES;
            const Floats scale = load_half(scales + at), zero = load(zeros + at);
            widen(tile, i, [&](int j, Floats wide) { store(out + (i + j) * LANES, (wide - zero) * scale); });
        }
    }

    // Numbers of some tiles, which lie side by side in out [inputs, outputs].
    template <typename T>
    void unpack(int64_t first, int64_t end, T* out) const {
        for (int64_t i = 0; i < inputs; i += STEP)
            for (int64_t tile = first; tile < end; tile++) {
                const int64_t at = (tile * (inputs / group) + i / group) * LANES;
                const Floats scale = load_half(scales + at), zero = load(zeros + at);
                widen(tile, i, [&](int j, Floats wide) {
                    put(out + (i + j) * outputs, tile, (wide - zero) * scale);
                });
            }
    }

    // A tile's outputs of a row.
    template <typename T>
    void put(T* row, int64_t tile, Floats x) const {
        const int64_t left = outputs - tile * LANES;
        if (left >= LANES) return store(row + tile * LANES, x);
        for (int i = 0; i < left; i++) store_one(row + tile * LANES + i, x[i]);
    }
};

}  // namespace

// See `library.py`.
struct PackedWeight {
    const void *codes, *scales, *zeros;
    int64_t inputs, outputs, group;
    int32_t bits;
};

namespace {

// Calls work(weight, first tile, end) for all its tiles.
template <typename Work>
void in_tiles(const PackedWeight& given, int64_t rows, int threads, const Work& work) {
    const auto all = [&](const auto& weight) {
        constexpr int64_t SOME = AT_A_TIME / LANES;
        const int64_t tiles = (given.outputs + LANES - 1) / LANES;
        const int busy = threads_for(rows * given.inputs * given.outputs, threads);
        for_each(int((tiles + SOME - 1) / SOME), busy, [&](int i) {
            work(weight, i * SOME, std::min(tiles, (i + 1) * SOME));
        });
    };
    const auto* scales = static_cast<const uint16_t*>(given.scales);
    const auto* zeros = static_cast<const int8_t*>(given.zeros);
    if (given.bits == 8)
        all(Tiles<8>{given.codes, scales, zeros, given.inputs, given.outputs, given.group});
    else
        all(Tiles<4>{given.codes, scales, zeros, given.inputs, given.outputs, given.group});
}

}  // namespace

extern "C" {

// x: [rows, inputs], out: [rows, outputs], both float32 or bfloat16.
void yaie_packed_product(const PackedWeight* weight, const void* x, void* out, int64_t rows, int is_bfloat16,
                         int threads) {
    const Rows numbers(x, is_bfloat16, rows, weight->inputs);
    const bool are_many = rows > MOST_ROWS;
    const auto sums = are_many ? std::vector<float>() : numbers.sums(weight->group);
    in_tiles(*weight, rows, threads, [&](const auto& tiles, int64_t first, int64_t end) {
        const auto multiply = [&](auto* to) {
            are_many ? tiles.multiply_many(numbers, first, end, to)
                     : tiles.multiply(numbers, sums.data(), first, end, to);
        };
        is_bfloat16 ? multiply(static_cast<BFloat16*>(out)) : multiply(static_cast<float*>(out));
    });
}

// out: [inputs, outputs].
void yaie_unpack(const PackedWeight* weight, void* out, int is_bfloat16, int threads) {
    in_tiles(*weight, 1, threads, [&](const auto& tiles, int64_t first, int64_t end) {
        is_bfloat16 ? tiles.unpack(first, end, static_cast<BFloat16*>(out))
                    : tiles.unpack(first, end, static_cast<float*>(out));
    });
}
}
