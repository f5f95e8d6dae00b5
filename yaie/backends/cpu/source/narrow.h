// Attention of up to NARROW rows (a query and a head each) of a key head, as in decoding. Time goes into
// reading keys and values from memory, so that each is read once and what comes out of it stays in registers:
// the scores of a tile of keys, their weights, then the values by weights. Lanes are dimensions, but for
// scores, whose lanes are keys. See tiles.h for what is kept of each row.
#pragma once

#include <algorithm>

#include "scores.h"

constexpr int NARROW = 8;
constexpr int STRETCH = 128;  // keys of a tile
constexpr int GROUP = 16;     // of them, those of which all heads are read before the next: whole vectors
constexpr int FAR = 8192;     // bytes between what is asked for and what is read
constexpr int SHORT = 256;    // bytes of a row, up to which all heads are asked for token by token

// Rows whose scores are computed together for four keys, and vectors that stay in registers for values.
constexpr int ROWS_AT_ONCE = LANES == 8 ? 2 : 4;
constexpr int ACCUMULATORS = LANES == 8 ? 8 : 16;

// Keys and values of `count` tokens, the first at position `first`: of head h those of token k are at keys +
// at[k] + h * head and at values. Behind them `at` goes on with the next ones, or repeats the last.
template <typename T>
struct Tokens {
    const T *keys, *values;
    int64_t at[2 * STRETCH];
    int64_t first, head;
    int count;
};

// What is asked for some time before it is read: rows of a group of tokens, of one head, or of all heads in
// the order in which they lie in memory. Few at a time: a processor waits once two dozen lines are on
// their way.
// Its functions are inlined, since compilers take one that does nothing else for one that does nothing.
template <typename T>
struct Later {
    const T* from;
    const int64_t* at;
    int64_t head;
    int heads, d, next = 0;

    // At row k of a part, before numbers [i, i + count) are read.
    __attribute__((always_inline)) void fetch(int k, int i, int count) {
        if (heads == 1) return lines(from + at[k] + i, count);
        if (i > 0) return;
        lines(from + *at + next * head, d);
        if (++next == heads) next = 0, at++;
    }

    __attribute__((always_inline)) static void lines(const T* from, int count) {
        constexpr int LINE = 64 / sizeof(T);
        for (int i = 0; i < count; i += LINE) __builtin_prefetch(from + i);
    }
};

struct Narrow {
    int heads, group, d, depth;  // group: rows of a head
    const int32_t* last;         // [group]: the position of each, which is the last key that it sees
    float *q, *out, *top, *sum;  // q, out: [heads, group, depth]; q is multiplied by the scale
    float *s, *kept;             // [heads * group, STRETCH], [heads * group]

    template <typename T>
    void see(const Tokens<T>& tokens, const Scores& scores) const {
        if (d == 2 * LANES) return see<2>(tokens, scores);
        if (d == 4 * LANES) return see<4>(tokens, scores);
        see<0>(tokens, scores);
    }

   private:
    // A tile is read in parts, which are a group of tokens of one head, or of all heads where rows are short;
    // its keys first, then its values. WIDTH: vectors of a head, where they are whole; 0 for any.
    template <int WIDTH, typename T>
    void see(const Tokens<T>& tokens, const Scores& scores) const {
        const int row = d * int(sizeof(T)), some = row <= SHORT && GROUP * heads * row <= 2 * FAR ? heads : 1;
        const int of_group = heads / some, parts = (tokens.count + GROUP - 1) / GROUP * of_group;
        const int distance = std::max(1, std::min(FAR / (GROUP * some * row), STRETCH / GROUP * of_group));
        const auto later = [&](int part) {  // of the keys, the values, and the next tile's keys
            const T* from = part >= parts && part < 2 * parts ? tokens.values : tokens.keys;
            if (part >= parts) part -= parts;
            const int64_t* at = tokens.at + part / of_group * GROUP;
            return Later<T>{from + part % of_group * tokens.head, at, tokens.head, some, d};
        };
        for (int part = 0; part < parts; part++) {
            auto next = later(part + distance);
            const int first = part / of_group * GROUP, first_head = part % of_group;
            for (int h = first_head; h < first_head + some; h++)
                for (int k = first; k < first + GROUP && k < tokens.count; k += LANES)
                    for (int r = 0; r < group;)
                        r += pieces<ROWS_AT_ONCE, 2, 1>(
                            group - r, [&](auto n) { score<n.value, WIDTH>(tokens, next, h, r, first, k); });
        }
        for (int i = 0; i < heads * group; i++) weigh_row(i, tokens.first, tokens.count, scores);
        for (int part = 0; part < parts; part++) {
            auto next = later(parts + part + distance);
            const int first = part / of_group * GROUP, first_head = part % of_group;
            for (int h = first_head; h < first_head + some; h++) add_head(tokens, next, h, first);
        }
    }

    // s = LANES keys from k on by R queries.
    template <int R, int WIDTH, typename T>
    void score(const Tokens<T>& tokens, Later<T>& later, int h, int first_row, int first, int k) const {
        Floats quads[R][LANES / 4];
        const int row = h * group + first_row;
        const float* const queries = q + row * depth;
        const T* const keys = tokens.keys + h * tokens.head;
        const int whole = WIDTH > 0 ? WIDTH * LANES : d / LANES * LANES, step = WIDTH > 0 ? whole : depth;
        for (int four = 0; four < LANES / 4; four++) {
            const int64_t* at = tokens.at + k + 4 * four;
            const T *a = keys + at[0], *b = keys + at[1], *c = keys + at[2], *e = keys + at[3];
            if (first_row == 0)
                for (int n = 0; n < 4; n++) later.fetch(k - first + 4 * four + n, 0, d);
            Floats of_a[R] = {}, of_b[R] = {}, of_c[R] = {}, of_e[R] = {};
            const auto take = [&](int i, auto loaded) {
                const Floats x = loaded(a + i), y = loaded(b + i), z = loaded(c + i), w = loaded(e + i);
                for (int r = 0; r < R; r++) {
                    const Floats numbers = load(queries + r * step + i);
                    of_a[r] += x * numbers, of_b[r] += y * numbers;
                    of_c[r] += z * numbers, of_e[r] += w * numbers;
                }
            };
            for (int i = 0; i < whole; i += LANES) take(i, [](const T* from) { return load(from); });
            if (WIDTH == 0 && whole < d) take(whole, [&](const T* from) { return load_some(from, d - whole); });
            for (int r = 0; r < R; r++) quads[r][four] = quad(of_a[r], of_b[r], of_c[r], of_e[r]);
        }
        for (int r = 0; r < R; r++) store(s + (row + r) * STRETCH + k, joined(quads[r]));
    }

    // A row's scores become weights, in place; `kept` is by what its sums so far are to be multiplied.
    void weigh_row(int row, int64_t first, int count, const Scores& scores) const {
        float* mine = s + row * STRETCH;
        const int64_t seen = last[row % group] - first;  // of the tile's keys, the last that it sees
        const int64_t from = seen - scores.window;
        const bool is_masked = seen < count - 1 || from >= 0 || count % LANES != 0;
        const int32_t most_seen = int32_t(std::min<int64_t>(seen, count - 1));
        const int32_t hidden = int32_t(std::max<int64_t>(from, -1));
        Floats most = all(-INFINITE);
        for (int k = 0; k < count; k += LANES) {
            Floats x = capped(load(mine + k), scores.cap);
            if (is_masked) {
                const Ints place = numbered() + k;
                x = ((place <= most_seen) & (place > hidden)) != 0 ? x : all(-INFINITE);
            }
            store(mine + k, x);
            most = larger(most, x);
        }
        const float before = top[row], reached = largest(most), now = reached > before ? reached : before;
        const float shift = now == -INFINITE ? 0.0f : now;
        Floats total{};
        for (int k = 0; k < count; k += LANES) {
            const Floats weight = exponential(load(mine + k) - shift);
            store(mine + k, weight);
            total += weight;
        }
        const float factor = now == before && now == shift ? 1.0f : exponential(all(before - shift))[0];
        kept[row] = factor, top[row] = now;
        sum[row] = sum[row] * factor + sum_of(total);
    }

    template <typename T>
    void add_head(const Tokens<T>& tokens, Later<T>& later, int h, int first) const {
        for (int r = 0; r < group;) {
            const int left = group - r;
            if (left == 3)
                r += add_rows<3>(tokens, later, h, r, first);
            else if (left == 8)
                r += add_rows<8>(tokens, later, h, r, first);
            else
                r += pieces<4, 2, 1>(left, [&](auto n) { add_rows<n.value>(tokens, later, h, r, first); });
        }
    }

    template <int R, typename T>
    int add_rows(const Tokens<T>& tokens, Later<T>& later, int h, int row, int first) const {
        constexpr int MOST = ACCUMULATORS / R, C = MOST >= 8 ? 8 : MOST >= 4 ? 4 : MOST >= 2 ? 2 : 1;
        int i = 0;
        for (; i + C * LANES <= d; i += C * LANES) add<R, C>(tokens, later, h, row, i, first);
        if constexpr (C > 4)
            for (; i + 4 * LANES <= d; i += 4 * LANES) add<R, 4>(tokens, later, h, row, i, first);
        if constexpr (C > 2)
            for (; i + 2 * LANES <= d; i += 2 * LANES) add<R, 2>(tokens, later, h, row, i, first);
        for (; i < d; i += LANES) add<R, 1>(tokens, later, h, row, i, first);
        return R;
    }

    // out = out * kept + a group's values by weights: R rows by C vectors of dimensions.
    template <int R, int C, typename T>
    void add(const Tokens<T>& tokens, Later<T>& later, int h, int first_row, int i, int first) const {
        const int row = h * group + first_row, count = std::min(tokens.count - first, GROUP);
        const float* const weights = s + row * STRETCH + first;
        const T* const values = tokens.values + h * tokens.head + i;
        const int64_t* const at = tokens.at + first;
        Floats sums[R][C];
        for (int r = 0; r < R; r++) {
            const float factor = first == 0 ? kept[row + r] : 1.0f;
            for (int c = 0; c < C; c++) sums[r][c] = load(out + (row + r) * depth + i + c * LANES) * factor;
        }
        const auto take = [&](int k, auto loaded) {
            const T* value = values + at[k];
            Floats x[C];
            for (int c = 0; c < C; c++) x[c] = loaded(value + c * LANES);
            for (int r = 0; r < R; r++) {
                const float weight = weights[r * STRETCH + k];
                for (int c = 0; c < C; c++) sums[r][c] += weight * x[c];
            }
        };
        if (i + C * LANES <= d)
            for (int k = 0; k < count; k++) {
                if (first_row == 0) later.fetch(k, i, C * LANES);
                take(k, [](const T* from) { return load(from); });
            }
        else
            for (int k = 0; k < count; k++)
                take(k, [&](const T* from) { return load_some(from, d - i); });
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) store(out + (row + r) * depth + i + c * LANES, sums[r][c]);
    }
};
