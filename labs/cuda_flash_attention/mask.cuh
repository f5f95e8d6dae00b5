// Lab 15, your part: task 15.4. The rest is given.
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
        // TODO 15.4: your code here (the reference: 5 lines).
        NOT_IMPLEMENTED("cuda_flash_attention task 15.4: not implemented yet; see chapter FlashAttention in CUDA");
    }

    // The keys that some query of first to end - 1 may see, by causality and window: between 0
    // and tk.
    __device__ Span keys_of(int first, int end) const {
        // TODO 15.4: your code here (the reference: 4 lines).
        NOT_IMPLEMENTED("cuda_flash_attention task 15.4: not implemented yet; see chapter FlashAttention in CUDA");
    }

    // The queries that may see some key of first to end - 1, by causality and window: between 0
    // and tq.
    __device__ Span queries_of(int first, int end) const {
        // TODO 15.4: your code here (the reference: 4 lines).
        NOT_IMPLEMENTED("cuda_flash_attention task 15.4: not implemented yet; see chapter FlashAttention in CUDA");
    }

    // Whether any block is True that the tile of these queries and keys touches. Ends are exclusive
    // and may lie past the last query or key.
    __device__ bool any_block(Span queries, Span keys) const {
        // TODO 15.4: your code here (the reference: 6 lines).
        NOT_IMPLEMENTED("cuda_flash_attention task 15.4: not implemented yet; see chapter FlashAttention in CUDA");
    }

    // Without any rule every query sees every key, and no method above need be called.
    __device__ bool has_rules() const { return causal || blocks != nullptr; }
};
// ANCHOR_END: mask
