// A warp has a query, and its lanes have keys in turn: what each adds to the gradient is summed
// over the warp at the end. Nothing goes through shared memory but the query; the reference
// multiplies tiles.
#include "backward.cuh"

constexpr int WARP_LANES = 32;

// Grid: (tq, heads, n), from the last query on; a block is a warp.
template <typename T, int DIM>
__global__ void gradient_of_a_query(Heads<const T> grad_out, Heads<const T> q, Heads<const T> k,
                                    Heads<const T> v, PerQuery known, Heads<T> dq, Mask mask,
                                    int group, int dim, float scale) {
    __shared__ float own[DIM], own_gradient[DIM];
    const int query = mask.tq - 1 - int(blockIdx.x), head = blockIdx.y, sequence = blockIdx.z;
    const int lane = threadIdx.x, kv_head = head / group;
    for (int i = lane; i < dim; i += WARP_LANES) {
        own[i] = to_float(q.at(sequence, query, head, dim)[i]);
        own_gradient[i] = to_float(grad_out.at(sequence, query, head, dim)[i]);
    }
    __syncthreads();
    const int64_t at = known.at(sequence, head, gridDim.y, query, mask.tq);
    const float lse = known.lse[at], delta = known.delta[at];
    float sums[DIM];
    for (int i = 0; i < dim; ++i) sums[i] = 0.0f;
    for (int key = lane; key < mask.tk; key += WARP_LANES) {
        if (mask.has_rules() && !mask.sees(query, key)) continue;
        const T *row = k.at(sequence, key, kv_head, dim);
        const T *value = v.at(sequence, key, kv_head, dim);
        float score = 0.0f, product = 0.0f;
        for (int i = 0; i < dim; ++i) {
            score += own[i] * to_float(row[i]);
            product += own_gradient[i] * to_float(value[i]);
        }
        const Pair pair = weight_and_gradient(scale * score, product, lse, delta);
        for (int i = 0; i < dim; ++i) sums[i] += pair.gradient * to_float(row[i]);
    }
    for (int i = 0; i < dim; ++i) {
        float sum = sums[i];
        for (int distance = 1; distance < WARP_LANES; distance *= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        if (lane == i % WARP_LANES)
            dq.at(sequence, query, head, dim)[i] = from_float<T>(scale * sum);
    }
}

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
                 const int64_t sequence = tq * heads * dim, token = heads * dim;
                 const Heads<const T> gs = {static_cast<const T *>(grad_out), sequence, token};
                 const Heads<const T> qs = {static_cast<const T *>(q), q_sequence, q_token};
                 const Heads<const T> ks = {static_cast<const T *>(k), k_sequence, k_token};
                 const Heads<const T> vs = {static_cast<const T *>(v), v_sequence, v_token};
                 const Heads<T> to = {static_cast<T *>(dq), sequence, token};
                 return launch(gradient_of_a_query<T, COLUMNS * 16>, dim3(tq, heads, n),
                               dim3(WARP_LANES), 0, stream, gs, qs, ks, vs, known, to, mask,
                               heads / kv_heads, dim, scale);
             }));
    return 0;
}

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
