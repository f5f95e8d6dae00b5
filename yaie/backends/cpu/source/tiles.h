// Wide: attention of up to WIDEST rows (a query and a head each) to a tile of keys, as in chunks and shared
// prefixes, with the online softmax of Milakov and Gimelshein (2018). Lanes are rows, so that no sum and no
// maximum runs across lanes. For each row it keeps the largest score so far, the sum of its weights and
// the weighted sum of values.
//
// Tiles lie in one piece, in float32. In the pool the keys of one head are far apart, at distances that are
// powers of 2, and would drive each other out of the cache; copied, they are read many times.
#pragma once

#include "scores.h"

constexpr int TILE = 64;  // keys
constexpr int WIDEST = 64;

// Numbers of a key or a value in a tile: d, rounded up to whole vectors by zeros.
inline int depth_of(int d) { return (d + LANES - 1) / LANES * LANES; }

// Keys and values [TILE, depth] of one head: `count` of them, the first at position `first`. What lies
// behind them is finite.
struct Tile {
    float *keys, *values;
    int64_t first;
    int count;
};

struct Wide {
    int rows, depth;  // rows: a multiple of LANES
    const int32_t* last;
    float *q, *out, *top, *sum;  // q, out: [depth, rows]; q is multiplied by the scale
    float *s, *kept;             // [TILE, rows], [rows]

    // s[k] = key k times every query: R keys by C vectors of rows.
    template <int C>
    void score(const float* keys, int k, int at) const {
        constexpr int R = 4;
        Floats sums[R][C] = {};
        for (int i = 0; i < depth; i++)
            for (int c = 0; c < C; c++) {
                const Floats query = load(q + i * rows + at + c * LANES);
                for (int r = 0; r < R; r++) sums[r][c] += keys[(k + r) * depth + i] * query;
            }
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) store(s + (k + r) * rows + at + c * LANES, sums[r][c]);
    }

    // out[i] = out[i] * kept + the values of dimension i by weights: R dimensions by C vectors of rows.
    template <int C>
    void add(const Tile& tile, int i, int at) const {
        constexpr int R = 4;
        Floats sums[R][C];
        for (int c = 0; c < C; c++) {
            const Floats factor = load(kept + at + c * LANES);
            for (int r = 0; r < R; r++) sums[r][c] = load(out + (i + r) * rows + at + c * LANES) * factor;
        }
        for (int k = 0; k < tile.count; k++)
            for (int c = 0; c < C; c++) {
                const Floats weight = load(s + k * rows + at + c * LANES);
                for (int r = 0; r < R; r++) sums[r][c] += tile.values[k * depth + i + r] * weight;
            }
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) store(out + (i + r) * rows + at + c * LANES, sums[r][c]);
    }

    void see(const Tile& tile, const Scores& scores, bool is_masked) const {
        for (int at = 0; at < rows;)
            at += LANES * pieces<COLUMNS, 2, 1>((rows - at) / LANES, [&](auto c) {
                for (int k = 0; k < tile.count; k += 4) score<c.value>(tile.keys, k, at);
            });
        weigh(*this, tile.first, tile.count, scores, is_masked);
        for (int at = 0; at < rows;)
            at += LANES * pieces<COLUMNS, 2, 1>((rows - at) / LANES, [&](auto c) {
                for (int i = 0; i < depth; i += 4) add<c.value>(tile, i, at);
            });
    }
};
