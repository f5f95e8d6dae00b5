// Lab 15, your part: task 15.3. The rest is given.
// FlashAttention forward (Dao et al. 2022; the loop over keys innermost as in Dao 2023), on CUDA
// cores.
//
// A thread block computes 64 queries of one head. It goes over the keys in tiles: the scores of a
// tile never leave the block.
#include "mask.cuh"
#include "shapes.cuh"
#include "softmax.cuh"

constexpr int ROWS = 8, KEY_COLUMNS = 4;
constexpr int QUERIES = ROWS * ROWS_OF_THREADS, KEYS = KEY_COLUMNS * COLUMNS_OF_THREADS;

// ANCHOR: forward_kernel
// q, out: [n, tq, heads, dim]; k, v: [n, tk, kv_heads, dim]; lse: [n, heads, tq].
// Grid: (ceil(tq / QUERIES), heads, n).
template <typename T, int COLUMNS>
__global__ void __launch_bounds__(THREADS)
    forward_kernel(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out, float *lse,
                   Mask mask, int group, int dim, float scale) {
    constexpr int DIM = COLUMNS * COLUMNS_OF_THREADS;
    extern __shared__ float4 shared_memory[];
    float *queries = reinterpret_cast<float *>(shared_memory); // [QUERIES, DIM + PAD]
    float *tile = queries + QUERIES * (DIM + PAD);             // [KEYS, DIM + PAD]: keys, values
    float *weights = tile + KEYS * (DIM + PAD);                // [QUERIES, KEYS + PAD]
    // Under a causal mask the last queries have most to do: they begin first.
    const int first_query = int(gridDim.x - 1 - blockIdx.x) * QUERIES;
    const int head = blockIdx.y, sequence = blockIdx.z, kv_head = head / group;
    const int count = min(QUERIES, mask.tq - first_query);

    load_tile<QUERIES, DIM>(queries, q.at(sequence, first_query, head, dim), q.token_stride, count,
                            dim);
    SoftmaxRows<ROWS, COLUMNS> rows;
    Span span = {0, mask.tk};
    if (mask.causal) span = mask.keys_of(first_query, first_query + count);
    // Tiles begin at multiples of KEYS.
    for (int first_key = span.begin / KEYS * KEYS; first_key < span.end; first_key += KEYS) {
        if (mask.blocks != nullptr && !mask.any_block({first_query, first_query + count},
                                                      {first_key, first_key + KEYS}))
            continue;
        const int there = mask.tk - first_key; // keys from here on; may be more than KEYS
        // TODO 15.3: your code here (the reference: 21 lines).
        NOT_IMPLEMENTED("cuda_flash_attention task 15.3: not implemented yet; see chapter FlashAttention in CUDA");
    }

    float share[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        share[r] = rows.share(r);
        const int row = r * ROWS_OF_THREADS + thread_row();
        if (thread_column() == 0 && row < count)
            lse[(int64_t(sequence) * gridDim.y + head) * mask.tq + first_query + row] =
                rows.lse(r);
    }
    store_rows(out.at(sequence, first_query, head, dim), out.token_stride, count, dim, rows.acc,
               share);
}
// ANCHOR_END: forward_kernel

// See FlashAttention.forward in flash_attention.py.
YAIE_API int forward(const void *q, const void *k, const void *v, void *out, float *lse,
                     const bool *blocks, int64_t dtype, int64_t n, int64_t tq, int64_t tk,
                     int64_t heads, int64_t kv_heads, int64_t dim, int64_t q_sequence,
                     int64_t q_token, int64_t k_sequence, int64_t k_token, int64_t v_sequence,
                     int64_t v_token, int64_t causal, int64_t window, int64_t block_shift,
                     int64_t block_columns, float scale, cudaStream_t stream) {
    const Mask mask = {int(tq),  int(tk),          int(causal),       int(window),
                       blocks,   int(block_shift), int(block_columns)};
    const dim3 grid((tq + QUERIES - 1) / QUERIES, heads, n);
    DISPATCH(dtype, T, DISPATCH_DIM(dim, COLUMNS, {
                 constexpr int STRIDE = COLUMNS * COLUMNS_OF_THREADS + PAD;
                 constexpr int FLOATS = (QUERIES + KEYS) * STRIDE + QUERIES * (KEYS + PAD);
                 const Heads<const T> qs = {static_cast<const T *>(q), q_sequence, q_token};
                 const Heads<const T> ks = {static_cast<const T *>(k), k_sequence, k_token};
                 const Heads<const T> vs = {static_cast<const T *>(v), v_sequence, v_token};
                 const Heads<T> to = {static_cast<T *>(out), tq * heads * dim, heads * dim};
                 return launch(forward_kernel<T, COLUMNS>, grid, dim3(THREADS),
                               FLOATS * sizeof(float), stream, qs, ks, vs, to, lse, mask,
                               heads / kv_heads, dim, scale);
             }));
    return 0;
}
