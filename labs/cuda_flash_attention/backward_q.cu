// Lab 15, your part: task 15.6. The rest is given.
// FlashAttention backward for queries: a thread block owns a tile of queries of one head and goes
// over the keys that they see. And delta, which both kernels of the backward pass need first.
#include "backward.cuh"

// ANCHOR: backward_q_kernel
// Rows of every product are queries, columns are keys. Grid: (ceil(tq / OWN), heads, n).
template <typename T, int COLUMNS>
__global__ void __launch_bounds__(THREADS)
    backward_q_kernel(Heads<const T> grad_out, Heads<const T> q, Heads<const T> k,
                      Heads<const T> v, PerQuery known, Heads<T> dq, Mask mask, int group, int dim,
                      float scale) {
    constexpr int DIM = COLUMNS * COLUMNS_OF_THREADS, ROWS = rows_for(COLUMNS);
    constexpr int OWN = ROWS * ROWS_OF_THREADS;
    extern __shared__ float4 shared_memory[];
    float *queries = reinterpret_cast<float *>(shared_memory); // [OWN, DIM + PAD]
    float *gradients = queries + OWN * (DIM + PAD);            // of the output
    float *keys = gradients + OWN * (DIM + PAD);               // [PASSING, DIM + PAD]
    float *values = keys + PASSING * (DIM + PAD);
    float *weights = values + PASSING * (DIM + PAD);           // [OWN, PASSING + PAD]
    const int first_query = int(gridDim.x - 1 - blockIdx.x) * OWN, head = blockIdx.y;
    const int sequence = blockIdx.z, kv_head = head / group, heads = gridDim.y;
    const int count = min(OWN, mask.tq - first_query);

    load_tile<OWN, DIM>(queries, q.at(sequence, first_query, head, dim), q.token_stride, count,
                        dim);
    load_tile<OWN, DIM>(gradients, grad_out.at(sequence, first_query, head, dim),
                        grad_out.token_stride, count, dim);
    float query_gradient[ROWS][COLUMNS], lse[ROWS], delta[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int query = first_query + r * ROWS_OF_THREADS + thread_row();
        const int64_t at = known.at(sequence, head, heads, query, mask.tq);
        lse[r] = query < mask.tq ? known.lse[at] : 0.0f;
        delta[r] = query < mask.tq ? known.delta[at] : 0.0f;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) query_gradient[r][c] = 0.0f;
    }

    Span span = {0, mask.tk};
    if (mask.causal) span = mask.keys_of(first_query, first_query + count);
    for (int first = span.begin / PASSING * PASSING; first < span.end; first += PASSING) {
        if (mask.blocks != nullptr && !mask.any_block({first_query, first_query + count},
                                                      {first, first + PASSING}))
            continue;
        const int there = mask.tk - first; // keys from here on
        // TODO 15.6: your code here (the reference: 22 lines).
        NOT_IMPLEMENTED("cuda_flash_attention task 15.6: not implemented yet; see chapter FlashAttention in CUDA");
    }

    float scales[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) scales[r] = scale;
    store_rows(dq.at(sequence, first_query, head, dim), dq.token_stride, count, dim,
               query_gradient, scales);
}
// ANCHOR_END: backward_q_kernel

// See FlashAttention.backward in flash_attention.py.
YAIE_API int backward_q(const void *grad_out, const void *q, const void *k, const void *v,
                        const float *lse, const float *delta, void *dq, const bool *blocks,
                        int64_t dtype, int64_t n, int64_t tq, int64_t tk, int64_t heads,
                        int64_t kv_heads, int64_t dim, int64_t q_sequence, int64_t q_token,
                        int64_t k_sequence, int64_t k_token, int64_t v_sequence, int64_t v_token,
                        int64_t causal, int64_t window, int64_t block_shift,
                        int64_t block_columns, float scale, cudaStream_t stream) {
    const Mask mask = {int(tq),  int(tk),          int(causal),       int(window),
                       blocks,   int(block_shift), int(block_columns)};
    const PerQuery known = {lse, delta};
    DISPATCH(dtype, T, DISPATCH_DIM(dim, COLUMNS, {
                 constexpr int OWN = rows_for(COLUMNS) * ROWS_OF_THREADS;
                 const int64_t sequence = tq * heads * dim, token = heads * dim;
                 const Heads<const T> gs = {static_cast<const T *>(grad_out), sequence, token};
                 const Heads<const T> qs = {static_cast<const T *>(q), q_sequence, q_token};
                 const Heads<const T> ks = {static_cast<const T *>(k), k_sequence, k_token};
                 const Heads<const T> vs = {static_cast<const T *>(v), v_sequence, v_token};
                 const Heads<T> to = {static_cast<T *>(dq), sequence, token};
                 return launch(backward_q_kernel<T, COLUMNS>,
                               dim3((tq + OWN - 1) / OWN, heads, n), dim3(THREADS),
                               backward_floats(COLUMNS) * sizeof(float), stream, gs, qs, ks, vs,
                               known, to, mask, heads / kv_heads, dim, scale);
             }));
    return 0;
}

// ANCHOR: delta_kernel
// delta[n, heads, tq] = the product of each output row with its gradient, [n, tq, heads, dim] both.
// A warp computes a row. Grid: rows / warps of a block.
template <typename T>
__global__ void delta_kernel(const T *out, const T *grad_out, float *delta, int64_t rows, int tq,
                             int heads, int dim) {
    const int lane = threadIdx.x % 32;
    const int64_t row = (int64_t(blockIdx.x) * THREADS + threadIdx.x) / 32;
    if (row >= rows) return; // the whole warp
    float sum = 0.0f;
    for (int i = lane; i < dim; i += 32)
        sum += to_float(out[row * dim + i]) * to_float(grad_out[row * dim + i]);
    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    const int64_t head = row % heads, query = row / heads % tq, sequence = row / heads / tq;
    if (lane == 0) delta[(sequence * heads + head) * tq + query] = sum;
}
// ANCHOR_END: delta_kernel

YAIE_API int output_times_gradient(const void *out, const void *grad_out, float *delta,
                                   int64_t dtype, int64_t n, int64_t tq, int64_t heads,
                                   int64_t dim, cudaStream_t stream) {
    const int64_t rows = n * tq * heads, warps = THREADS / 32;
    DISPATCH(dtype, T,
             return launch(delta_kernel<T>, dim3((rows + warps - 1) / warps), dim3(THREADS), 0,
                           stream, static_cast<const T *>(out), static_cast<const T *>(grad_out),
                           delta, rows, tq, heads, dim));
    return 0;
}
