// Which keys a query sees, and which tiles hold any of them.
#pragma once

#include "yaie.cuh"

// Numbers begin to end - 1; none if begin >= end.
struct Span {
    int begin, end;
};

// ANCHOR: mask
// Query j stands at position tk - tq + j, which may be negative: then it sees nothing.
struct Mask {
    int tq, tk;
    int causal;             // 1: a query sees keys up to its position; 0: all tk
    int window;             // and of those the last `window`; 0: all. Only with causal
    const bool *blocks;     // null, or [ceil(tq / size), block_columns]: which pairs count
    int block_shift;        // size is 1 << block_shift
    int block_columns;

    __device__ int position(int query) const { return tk - tq + query; }

    // Whether `query` sees `key`, both of which exist.
    __device__ bool sees(int query, int key) const {
        // BEGIN SOLUTION 15.4
        const int behind = position(query) - key;
        if (causal && behind < 0) return false;
        if (window > 0 && behind >= window) return false;
        if (blocks == nullptr) return true;
        return blocks[(query >> block_shift) * block_columns + (key >> block_shift)];
        // END SOLUTION
    }

    // The keys that some query of first to end - 1 may see, by causality and window: between 0
    // and tk.
    __device__ Span keys_of(int first, int end) const {
        // BEGIN SOLUTION 15.4
        Span span = {0, tk};
        if (causal) span.end = min(tk, position(end - 1) + 1);
        if (window > 0) span.begin = max(0, position(first) - window + 1);
        return span;
        // END SOLUTION
    }

    // The queries that may see some key of first to end - 1, by causality and window: between 0
    // and tq.
    __device__ Span queries_of(int first, int end) const {
        // BEGIN SOLUTION 15.4
        Span span = {0, tq};
        if (causal) span.begin = max(0, first - position(0));
        if (window > 0) span.end = min(tq, end - 1 + window - position(0));
        return span;
        // END SOLUTION
    }

    // Whether any block is True that the tile of these queries and keys touches. Ends are exclusive
    // and may lie past the last query or key.
    __device__ bool any_block(Span queries, Span keys) const {
        // BEGIN SOLUTION 15.4
        const int last_row = (min(queries.end, tq) - 1) >> block_shift;
        const int last_column = (min(keys.end, tk) - 1) >> block_shift;
        for (int row = queries.begin >> block_shift; row <= last_row; ++row)
            for (int column = keys.begin >> block_shift; column <= last_column; ++column)
                if (blocks[row * block_columns + column]) return true;
        return false;
        // END SOLUTION
    }

    // Without any rule every query sees every key, and no method above need be called.
    __device__ bool has_rules() const { return causal || blocks != nullptr; }
};
// ANCHOR_END: mask
