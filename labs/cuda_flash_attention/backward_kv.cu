// Lab 15, your part: task 15.5. The rest is given.
// FlashAttention backward for keys and values (Dao 2023): a thread block owns a tile of keys of one
// key head and goes over the queries that see it, in all heads of the group. Nobody else adds to
// its gradients, so that no atomics are needed and the result is the same each time.
#include "backward.cuh"

// ANCHOR: backward_kv_kernel
// Rows of every product are keys, columns are queries: scores, weights and gradients are
// transposed. Grid: (ceil(tk / OWN), kv_heads, n).
template <typename T, int COLUMNS>
__global__ void __launch_bounds__(THREADS)
    backward_kv_kernel(Heads<const T> grad_out, Heads<const T> q, Heads<const T> k,
                       Heads<const T> v, PerQuery known, Heads<T> dk, Heads<T> dv, Mask mask,
                       int group, int dim, float scale) {
    constexpr int DIM = COLUMNS * COLUMNS_OF_THREADS, ROWS = rows_for(COLUMNS);
    constexpr int OWN = ROWS * ROWS_OF_THREADS;
    extern __shared__ float4 shared_memory[];
    float *keys = reinterpret_cast<float *>(shared_memory); // [OWN, DIM + PAD]
    float *values = keys + OWN * (DIM + PAD);
    float *queries = values + OWN * (DIM + PAD);            // [PASSING, DIM + PAD]
    float *gradients = queries + PASSING * (DIM + PAD);     // of the output
    float *weights = gradients + PASSING * (DIM + PAD);     // [OWN, PASSING + PAD]
    const int first_key = int(blockIdx.x) * OWN, kv_head = blockIdx.y, sequence = blockIdx.z;
    const int count = min(OWN, mask.tk - first_key), heads = int(gridDim.y) * group;

    load_tile<OWN, DIM>(keys, k.at(sequence, first_key, kv_head, dim), k.token_stride, count, dim);
    load_tile<OWN, DIM>(values, v.at(sequence, first_key, kv_head, dim), v.token_stride, count,
                        dim);
    float key_gradient[ROWS][COLUMNS], value_gradient[ROWS][COLUMNS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) key_gradient[r][c] = value_gradient[r][c] = 0.0f;

    Span span = {0, mask.tq};
    if (mask.causal) span = mask.queries_of(first_key, first_key + count);
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int first = span.begin / PASSING * PASSING; first < span.end; first += PASSING) {
            if (mask.blocks != nullptr && !mask.any_block({first, first + PASSING},
                                                          {first_key, first_key + count}))
                continue;
            const int there = mask.tq - first; // queries from here on
            // TODO 15.5: your code here (the reference: 31 lines).
            NOT_IMPLEMENTED("cuda_flash_attention task 15.5: not implemented yet; see chapter FlashAttention in CUDA");
        }
    }

    float ones[ROWS], scales[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        ones[r] = 1.0f;
        scales[r] = scale;
    }
    store_rows(dv.at(sequence, first_key, kv_head, dim), dv.token_stride, count, dim,
               value_gradient, ones);
    store_rows(dk.at(sequence, first_key, kv_head, dim), dk.token_stride, count, dim,
               key_gradient, scales);
}
// ANCHOR_END: backward_kv_kernel

// See FlashAttention.backward in flash_attention.py.
YAIE_API int backward_kv(const void *grad_out, const void *q, const void *k, const void *v,
                         const float *lse, const float *delta, void *dk, void *dv,
                         const bool *blocks, int64_t dtype, int64_t n, int64_t tq, int64_t tk,
                         int64_t heads, int64_t kv_heads, int64_t dim, int64_t q_sequence,
                         int64_t q_token, int64_t k_sequence, int64_t k_token, int64_t v_sequence,
                         int64_t v_token, int64_t causal, int64_t window, int64_t block_shift,
                         int64_t block_columns, float scale, cudaStream_t stream) {
    const Mask mask = {int(tq),  int(tk),          int(causal),       int(window),
                       blocks,   int(block_shift), int(block_columns)};
    const PerQuery known = {lse, delta};
    DISPATCH(dtype, T, DISPATCH_DIM(dim, COLUMNS, {
                 constexpr int OWN = rows_for(COLUMNS) * ROWS_OF_THREADS;
                 const Heads<const T> gs = {static_cast<const T *>(grad_out), tq * heads * dim,
                                            heads * dim};
                 const Heads<const T> qs = {static_cast<const T *>(q), q_sequence, q_token};
                 const Heads<const T> ks = {static_cast<const T *>(k), k_sequence, k_token};
                 const Heads<const T> vs = {static_cast<const T *>(v), v_sequence, v_token};
                 const int64_t sequence = tk * kv_heads * dim, token = kv_heads * dim;
                 const Heads<T> to_k = {static_cast<T *>(dk), sequence, token};
                 const Heads<T> to_v = {static_cast<T *>(dv), sequence, token};
                 return launch(backward_kv_kernel<T, COLUMNS>,
                               dim3((tk + OWN - 1) / OWN, kv_heads, n), dim3(THREADS),
                               backward_floats(COLUMNS) * sizeof(float), stream, gs, qs, ks, vs,
                               known, to_k, to_v, mask, heads / kv_heads, dim, scale);
             }));
    return 0;
}
