// FlashAttention forward with keys and values in two tiles, each of 32 rows: a barrier less in each
// turn.
#include "mask.cuh"
#include "shapes.cuh"
#include "softmax.cuh"

constexpr int ROWS = 4, KEY_COLUMNS = 2;
constexpr int QUERIES = ROWS * ROWS_OF_THREADS, KEYS = KEY_COLUMNS * COLUMNS_OF_THREADS;

template <typename T, int COLUMNS>
__global__ void __launch_bounds__(THREADS)
    forward_kernel(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out, float *lse,
                   Mask mask, int group, int dim, float scale) {
    constexpr int DIM = COLUMNS * COLUMNS_OF_THREADS;
    extern __shared__ float4 shared_memory[];
    float *queries = reinterpret_cast<float *>(shared_memory);
    float *keys = queries + QUERIES * (DIM + PAD), *values = keys + KEYS * (DIM + PAD);
    float *weights = values + KEYS * (DIM + PAD);
    const int first_query = int(blockIdx.x) * QUERIES, head = blockIdx.y, sequence = blockIdx.z;
    const int count = min(QUERIES, mask.tq - first_query), kv_head = head / group;
    load_tile<QUERIES, DIM>(queries, q.at(sequence, first_query, head, dim), q.token_stride, count,
                            dim);
    SoftmaxRows<ROWS, COLUMNS> rows;
    const Span span = mask.keys_of(first_query, first_query + count);
    for (int first = span.begin / KEYS * KEYS; first < span.end; first += KEYS) {
        if (mask.blocks && !mask.any_block({first_query, first_query + count},
                                           {first, first + KEYS}))
            continue;
        load_tile<KEYS, DIM>(keys, k.at(sequence, first, kv_head, dim), k.token_stride,
                             mask.tk - first, dim);
        load_tile<KEYS, DIM>(values, v.at(sequence, first, kv_head, dim), v.token_stride,
                             mask.tk - first, dim);
        __syncthreads();
        float score[ROWS][KEY_COLUMNS];
        rows_times_rows<DIM>(queries, keys, score);
        for (int r = 0; r < ROWS; ++r)
            for (int c = 0; c < KEY_COLUMNS; ++c) {
                const int query = first_query + r * ROWS_OF_THREADS + thread_row();
                const int key = first + c * COLUMNS_OF_THREADS + thread_column();
                const bool exists = query < mask.tq && key < mask.tk;
                score[r][c] = exists && mask.sees(query, key) ? scale * score[r][c] : -INFINITY;
            }
        rows.update(score);
        store_tile(weights, score);
        __syncthreads();
        weights_times_rows<KEYS>(weights, values, rows.acc);
        __syncthreads();
    }
    float share[ROWS];
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
                 constexpr int FLOATS = (QUERIES + 2 * KEYS) * STRIDE + QUERIES * (KEYS + PAD);
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
