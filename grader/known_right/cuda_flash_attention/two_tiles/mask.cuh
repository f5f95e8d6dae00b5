// The mask by distances, and spans by asking `sees` of neither row nor column.
#pragma once

#include "yaie.cuh"

struct Span {
    int begin, end;
};

struct Mask {
    int tq, tk;
    int causal, window;
    const bool *blocks;
    int block_shift, block_columns;

    __device__ int least() const { return causal ? 0 : -tk - tq; }
    __device__ int most() const { return window > 0 ? window - 1 : tk + tq; }

    __device__ bool sees(int query, int key) const {
        const int behind = query + tk - tq - key;
        const bool in_order = behind >= least() && behind <= most();
        return in_order && (!blocks || blocks[(query >> block_shift) * block_columns +
                                              (key >> block_shift)]);
    }

    __device__ Span keys_of(int first, int end) const {
        const int ahead = tk - tq;
        return {max(0, first + ahead - most()), min(tk, end + ahead - least())};
    }

    __device__ Span queries_of(int first, int end) const {
        const int ahead = tk - tq;
        return {max(0, first - ahead + least()), min(tq, end - ahead + most())};
    }

    __device__ bool any_block(Span queries, Span keys) const {
        const int step = 1 << block_shift;
        bool any = false;
        for (int query = queries.begin / step * step; query < min(queries.end, tq); query += step)
            for (int key = keys.begin / step * step; key < min(keys.end, tk); key += step)
                any = any || blocks[(query >> block_shift) * block_columns + (key >> block_shift)];
        return any;
    }

    __device__ bool has_rules() const { return causal || blocks; }
};
