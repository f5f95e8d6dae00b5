// The mask as the smallest and the largest key of a query, from which everything else follows; an
// empty span is {0, 0}. The reference has distances in `sees`, and other formulas in the spans.
#pragma once

#include "yaie.cuh"

struct Span {
    int begin, end;
};

struct Mask {
    int tq, tk;
    int causal;
    int window;
    const bool *blocks;
    int block_shift;
    int block_columns;

    __device__ int first_of(int query) const {
        return window > 0 ? max(tk - tq + query - window + 1, 0) : 0;
    }
    __device__ int last_of(int query) const {
        return causal ? min(tk - tq + query, tk - 1) : tk - 1;
    }
    __device__ bool block_of(int query, int key) const {
        return blocks[(query / (1 << block_shift)) * block_columns + key / (1 << block_shift)];
    }

    __device__ bool sees(int query, int key) const {
        if (key < first_of(query) || key > last_of(query)) return false;
        return blocks ? block_of(query, key) : true;
    }

    __device__ Span keys_of(int first, int end) const {
        const Span span = {first_of(first), last_of(end - 1) + 1};
        return span.begin < span.end ? span : Span{0, 0};
    }

    // By halving: the later a query, the later its first and its last key.
    __device__ Span queries_of(int first, int end) const {
        int low = 0, high = tq; // the first query whose last key is `first` or later
        while (low < high) {
            const int middle = (low + high) / 2;
            if (last_of(middle) >= first) high = middle;
            else low = middle + 1;
        }
        Span span = {low, tq};
        high = tq; // the first query whose first key is `end` or later
        while (low < high) {
            const int middle = (low + high) / 2;
            if (first_of(middle) >= end) high = middle;
            else low = middle + 1;
        }
        span.end = low;
        return span.begin < span.end ? span : Span{0, 0};
    }

    // Columns first, from the last on.
    __device__ bool any_block(Span queries, Span keys) const {
        const int size = 1 << block_shift;
        const int bottom = (min(queries.end, tq) + size - 1) / size;
        const int right = (min(keys.end, tk) + size - 1) / size;
        for (int column = right - 1; column * size + size > keys.begin; --column)
            for (int row = queries.begin / size; row < bottom; ++row)
                if (blocks[row * block_columns + column]) return true;
        return false;
    }

    __device__ bool has_rules() const { return causal || blocks != nullptr; }
};
