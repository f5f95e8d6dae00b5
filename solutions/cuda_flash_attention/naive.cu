// Attention with one thread for each query row: the definition, with an online softmax. Every
// thread reads all keys and values by itself, and its neighbours read the same ones.
#include "mask.cuh"
#include "shapes.cuh"

constexpr int NAIVE_THREADS = 64, MAX_DIM = 256;

// ANCHOR: naive_forward
// Grid: (ceil(tq / NAIVE_THREADS), heads, n).
template <typename T>
__global__ void naive_forward_kernel(Heads<const T> q, Heads<const T> k, Heads<const T> v,
                                     Heads<T> out, float *lse, Mask mask, int group, int dim,
                                     float scale) {
    const int query = blockIdx.x * NAIVE_THREADS + threadIdx.x, head = blockIdx.y;
    const int sequence = blockIdx.z;
    if (query >= mask.tq) return;
    const T *row = q.at(sequence, query, head, dim);
    float acc[MAX_DIM], maximum = -1e30f, sum = 0.0f;
    for (int i = 0; i < dim; ++i) acc[i] = 0.0f;
    for (int key = 0; key < mask.tk; ++key) {
        const int behind = mask.tk - mask.tq + query - key;
        if (mask.causal && (behind < 0 || (mask.window > 0 && behind >= mask.window))) continue;
        const int row_of_blocks = (query >> mask.block_shift) * mask.block_columns;
        if (mask.blocks != nullptr && !mask.blocks[row_of_blocks + (key >> mask.block_shift)])
            continue;
        const T *key_row = k.at(sequence, key, head / group, dim);
        const T *value_row = v.at(sequence, key, head / group, dim);
        float score = 0.0f;
        for (int i = 0; i < dim; ++i) score += to_float(row[i]) * to_float(key_row[i]);
        score *= scale;
        const float larger = fmaxf(maximum, score);
        const float rescale = __expf(maximum - larger), weight = __expf(score - larger);
        maximum = larger;
        sum = sum * rescale + weight;
        for (int i = 0; i < dim; ++i) acc[i] = acc[i] * rescale + weight * to_float(value_row[i]);
    }
    T *to = out.at(sequence, query, head, dim);
    for (int i = 0; i < dim; ++i) to[i] = from_float<T>(sum > 0.0f ? acc[i] / sum : 0.0f);
    lse[(int64_t(sequence) * gridDim.y + head) * mask.tq + query] =
        sum > 0.0f ? maximum + logf(sum) : -INFINITY;
}
// ANCHOR_END: naive_forward

YAIE_API int naive_forward(const void *q, const void *k, const void *v, void *out, float *lse,
                           const bool *blocks, int64_t dtype, int64_t n, int64_t tq, int64_t tk,
                           int64_t heads, int64_t kv_heads, int64_t dim, int64_t q_sequence,
                           int64_t q_token, int64_t k_sequence, int64_t k_token,
                           int64_t v_sequence, int64_t v_token, int64_t causal, int64_t window,
                           int64_t block_shift, int64_t block_columns, float scale,
                           cudaStream_t stream) {
    const Mask mask = {int(tq),  int(tk),          int(causal),       int(window),
                       blocks,   int(block_shift), int(block_columns)};
    const dim3 grid((tq + NAIVE_THREADS - 1) / NAIVE_THREADS, heads, n);
    DISPATCH(dtype, T, {
        const Heads<const T> qs = {static_cast<const T *>(q), q_sequence, q_token};
        const Heads<const T> ks = {static_cast<const T *>(k), k_sequence, k_token};
        const Heads<const T> vs = {static_cast<const T *>(v), v_sequence, v_token};
        const Heads<T> to = {static_cast<T *>(out), tq * heads * dim, heads * dim};
        return launch(naive_forward_kernel<T>, grid, dim3(NAIVE_THREADS), 0, stream, qs, ks, vs,
                      to, lse, mask, heads / kv_heads, dim, scale);
    });
    return 0;
}
