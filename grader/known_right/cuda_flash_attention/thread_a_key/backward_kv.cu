// A thread has a key, and all of its gradients in its registers; queries come by in shared memory,
// 16 at a time, read by every thread at once. The reference multiplies tiles, whose sums 16 threads
// share.
#include "backward.cuh"

constexpr int COME_BY = 16, OWNERS = 64;

// Grid: (ceil(tk / OWNERS), kv_heads, n).
template <typename T, int DIM>
__global__ void gradients_of_keys(Heads<const T> grad_out, Heads<const T> q, Heads<const T> k,
                                  Heads<const T> v, PerQuery known, Heads<T> dk, Heads<T> dv,
                                  Mask mask, int group, int dim, float scale) {
    __shared__ float queries[COME_BY][DIM], gradients[COME_BY][DIM];
    const int kv_head = blockIdx.y, sequence = blockIdx.z, heads = int(gridDim.y) * group;
    const int first_key = int(blockIdx.x) * OWNERS, key = first_key + int(threadIdx.x);
    const bool exists = key < mask.tk;
    float own_key[DIM], own_value[DIM], key_gradient[DIM], value_gradient[DIM];
    for (int i = 0; i < dim; ++i) {
        own_key[i] = exists ? to_float(k.at(sequence, key, kv_head, dim)[i]) : 0.0f;
        own_value[i] = exists ? to_float(v.at(sequence, key, kv_head, dim)[i]) : 0.0f;
        key_gradient[i] = value_gradient[i] = 0.0f;
    }
    Span span = {0, mask.tq};
    if (mask.causal) span = mask.queries_of(first_key, min(first_key + OWNERS, mask.tk));
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head)
        for (int first = span.begin; first < span.end; first += COME_BY) {
            const int there = min(COME_BY, span.end - first);
            __syncthreads();
            for (int n = threadIdx.x; n < there * dim; n += OWNERS) {
                const int row = n / dim, i = n % dim;
                queries[row][i] = to_float(q.at(sequence, first + row, head, dim)[i]);
                gradients[row][i] = to_float(grad_out.at(sequence, first + row, head, dim)[i]);
            }
            __syncthreads();
            for (int row = 0; exists && row < there; ++row) {
                const int query = first + row;
                if (mask.has_rules() && !mask.sees(query, key)) continue;
                float score = 0.0f, product = 0.0f;
                for (int i = 0; i < dim; ++i) {
                    score += queries[row][i] * own_key[i];
                    product += gradients[row][i] * own_value[i];
                }
                const int64_t at = known.at(sequence, head, heads, query, mask.tq);
                const float weight = expf(score * scale - known.lse[at]);
                const float gradient = scale * weight * (product - known.delta[at]);
                for (int i = 0; i < dim; ++i) {
                    value_gradient[i] += weight * gradients[row][i];
                    key_gradient[i] += gradient * queries[row][i];
                }
            }
        }
    if (!exists) return;
    for (int i = 0; i < dim; ++i) {
        dk.at(sequence, key, kv_head, dim)[i] = from_float<T>(key_gradient[i]);
        dv.at(sequence, key, kv_head, dim)[i] = from_float<T>(value_gradient[i]);
    }
}

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
                 const Heads<const T> gs = {static_cast<const T *>(grad_out), tq * heads * dim,
                                            heads * dim};
                 const Heads<const T> qs = {static_cast<const T *>(q), q_sequence, q_token};
                 const Heads<const T> ks = {static_cast<const T *>(k), k_sequence, k_token};
                 const Heads<const T> vs = {static_cast<const T *>(v), v_sequence, v_token};
                 const int64_t sequence = tk * kv_heads * dim, token = kv_heads * dim;
                 const Heads<T> to_k = {static_cast<T *>(dk), sequence, token};
                 const Heads<T> to_v = {static_cast<T *>(dv), sequence, token};
                 return launch(gradients_of_keys<T, COLUMNS * 16>,
                               dim3((tk + OWNERS - 1) / OWNERS, kv_heads, n), dim3(OWNERS), 0,
                               stream, gs, qs, ks, vs, known, to_k, to_v, mask, heads / kv_heads,
                               dim, scale);
             }));
    return 0;
}
