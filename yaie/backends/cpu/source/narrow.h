// Attention of up to NARROW rows (a query and a head each) of every key head, as in decoding. Time goes into
// reading keys and values from memory, so that they are read in the order in which they lie there: a
// token's heads side by side. Lanes are dimensions. See tiles.h for what is kept of each row.
#pragma once

#include "scores.h"

constexpr int NARROW = 8;
constexpr int SHORT = 32;  // keys of a tile

// Places of `count` tokens in the pool: the key and the value of the first head that is attended to. The
// next head's are `head` further on.
template <typename T>
struct Tokens {
    const T *key[SHORT], *value[SHORT];
    int64_t first, head;
    int count;
};

// rows: heads times the rows of each, rounded up to whole vectors: lanes of scores. last: the position of
// each, which is the last key that it sees.
struct Narrow {
    int heads, group, d, depth, rows;  // group: rows of a head
    const int32_t* last;
    float *q, *out, *top, *sum;  // q, out: [rows, depth]; q is multiplied by the scale
    float *s, *kept;             // [SHORT, rows], [rows]

    template <typename T>
    void see(const Tokens<T>& tokens, const Scores& scores) const {
        for (int k = 0; k < tokens.count; k++) multiply(tokens, k);
        weigh(*this, tokens.first, tokens.count, scores, true);
        for (int row = 0; row < heads * group; row++)
            if (kept[row] != 1.0f)
                for (float* o = out + row * depth; o < out + (row + 1) * depth; o += LANES)
                    store(o, load(o) * kept[row]);
        for (int k = 0; k < tokens.count;)
            k += pieces<4, 2, 1>(tokens.count - k, [&](auto n) {
                for (int h = 0; h < heads; h++) add<n.value>(tokens, h, k);
            });
    }

   private:
    // s[k] = a token's keys by all queries: their products are kept until there are as many as lanes.
    template <typename T>
    void multiply(const Tokens<T>& tokens, int k) const {
        Floats products[LANES] = {};
        int row = 0;
        const auto next = [&](Floats product) {
            products[row % LANES] = product;
            if (++row % LANES == 0) store(s + k * rows + row - LANES, sums_of(products));
        };
        for (int h = 0; h < heads; h++) {
            const T* key = tokens.key[k] + h * tokens.head;
            for (int r = 0; r < group;)
                r += pieces<4, 2, 1>(group - r, [&](auto n) {
                    Floats sums[n.value] = {};
                    for (int i = 0; i < d; i += LANES) {
                        const Floats x = load_some(key + i, d - i);
                        for (int j = 0; j < n.value; j++)
                            sums[j] += x * load(q + (h * group + r + j) * depth + i);
                    }
                    for (int j = 0; j < n.value; j++) next(sums[j]);
                });
        }
        while (row < rows) next(Floats{});
    }

    // The values of N tokens, by weights.
    template <int N, typename T>
    void add(const Tokens<T>& tokens, int h, int k) const {
        for (int i = 0; i < d; i += LANES) {
            Floats value[N];
            for (int n = 0; n < N; n++) value[n] = load_some(tokens.value[k + n] + h * tokens.head + i, d - i);
            for (int row = h * group; row < (h + 1) * group; row++) {
                Floats total = load(out + row * depth + i);
                for (int n = 0; n < N; n++) total += s[(k + n) * rows + row] * value[n];
                store(out + row * depth + i, total);
            }
        }
    }
};
