// What all forms of attention share.
#pragma once

#include "vectors.h"

template <int N>
struct Number {
    static constexpr int value = N;
};

// Calls work for A, B or C of `left`, the most that there are; returns how many.
template <int A, int B, int C, typename Work>
inline int pieces(int left, const Work& work) {
    if (left >= A) return work(Number<A>{}), A;
    if (left >= B) return work(Number<B>{}), B;
    return work(Number<C>{}), C;
}

// What a layer does to scores. cap: 0 for none. window: keys that a query sees, or a very large number.
struct Scores {
    float cap;
    int64_t window;
};

inline Floats capped(Floats s, float cap) {
    return cap > 0.0f ? cap * hyperbolic_tangent(s / cap) : s;
}

// Scores of `count` keys, the first at position `first`, become weights, in place; `kept` is by what each
// row's sums so far are to be multiplied. Lanes are rows. is_masked: whether some key is hidden from some row.
template <typename Rows>
inline void weigh(const Rows& all_rows, int64_t first, int count, const Scores& scores, bool is_masked) {
    const int rows = all_rows.rows;
    const int32_t window = int32_t(scores.window > 0x3fffffff ? 0x3fffffff : scores.window);
    for (int at = 0; at < rows; at += LANES) {
        float* column = all_rows.s + at;
        const Floats before = load(all_rows.top + at);
        const Ints seen = read<Ints>(all_rows.last + at) - int32_t(first);
        Floats most = before;
        for (int k = 0; k < count; k++) {
            Floats x = capped(load(column + k * rows), scores.cap);
            if (is_masked) x = ((seen >= k) & (seen < k + window)) != 0 ? x : all(-INFINITE);
            store(column + k * rows, x);
            most = larger(most, x);
        }
        const Floats shift = most == -INFINITE ? Floats{} : most;
        Floats total{};
        for (int k = 0; k < count; k++) {
            const Floats weight = exponential(load(column + k * rows) - shift);
            store(column + k * rows, weight);
            total += weight;
        }
        const Floats factor = exponential(before - shift);
        store(all_rows.kept + at, factor);
        store(all_rows.top + at, most);
        store(all_rows.sum + at, load(all_rows.sum + at) * factor + total);
    }
}
