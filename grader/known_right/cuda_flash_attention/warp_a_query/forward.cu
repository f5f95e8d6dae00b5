// A warp has a query: each lane the score of one key of 32, and an eighth or more of the output. It
// uses neither tiles nor SoftmaxRows; the reference gives 128 threads 64 queries.
#include "mask.cuh"
#include "shapes.cuh"

constexpr int LANES = 32, WARPS = 4;
constexpr unsigned ALL = 0xffffffffu;

// Grid: (ceil(tq / WARPS), heads, n). shared: a query of DIM floats for each warp.
template <typename T, int DIM>
__global__ void __launch_bounds__(LANES *WARPS)
    forward_warps(Heads<const T> q, Heads<const T> k, Heads<const T> v, Heads<T> out, float *lse,
                  Mask mask, int group, int dim, float scale) {
    __shared__ float queries[WARPS][DIM];
    constexpr int HELD = DIM / LANES; // elements of the output that a lane has
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int query = int(blockIdx.x) * WARPS + warp, head = blockIdx.y, sequence = blockIdx.z;
    if (query >= mask.tq) return; // the whole warp, and no barrier of the block follows
    const T *row = q.at(sequence, query, head, dim);
    for (int i = lane; i < dim; i += LANES) queries[warp][i] = scale * to_float(row[i]);
    __syncwarp();
    float total = 0.0f, maximum = -INFINITY, sums[HELD];
    for (int h = 0; h < HELD; ++h) sums[h] = 0.0f;
    Span span = {0, mask.tk};
    if (mask.has_rules()) span = mask.keys_of(query, query + 1);
    for (int first = span.begin; first < span.end; first += LANES) {
        const int key = first + lane;
        float score = -INFINITY;
        if (key < span.end && (!mask.has_rules() || mask.sees(query, key))) {
            const T *other = k.at(sequence, key, head / group, dim);
            score = 0.0f;
            for (int i = 0; i < dim; ++i) score += queries[warp][i] * to_float(other[i]);
        }
        float largest = fmaxf(maximum, score);
        for (int distance = 16; distance > 0; distance /= 2)
            largest = fmaxf(largest, __shfl_xor_sync(ALL, largest, distance));
        if (largest == -INFINITY) continue; // no lane has seen a key yet
        const float old = expf(maximum - largest), weight = expf(score - largest);
        maximum = largest;
        total = total * old + weight;
        for (int h = 0; h < HELD; ++h) sums[h] *= old;
        const int there = min(LANES, span.end - first);
        for (int other = 0; other < there; ++other) {
            const float theirs = __shfl_sync(ALL, weight, other);
            if (theirs == 0.0f) continue;
            const T *value = v.at(sequence, first + other, head / group, dim);
            for (int h = 0; h < HELD; ++h)
                if (h * LANES + lane < dim)
                    sums[h] += theirs * to_float(value[h * LANES + lane]);
        }
    }
    for (int distance = 1; distance < LANES; distance *= 2)
        total += __shfl_xor_sync(ALL, total, distance);
    T *to = out.at(sequence, query, head, dim);
    for (int h = 0; h < HELD; ++h)
        if (h * LANES + lane < dim)
            to[h * LANES + lane] = from_float<T>(total == 0.0f ? 0.0f : sums[h] / total);
    if (lane == 0)
        lse[(int64_t(sequence) * gridDim.y + head) * mask.tq + query] =
            total == 0.0f ? -INFINITY : maximum + logf(total);
}

YAIE_API int forward(const void *q, const void *k, const void *v, void *out, float *lse,
                     const bool *blocks, int64_t dtype, int64_t n, int64_t tq, int64_t tk,
                     int64_t heads, int64_t kv_heads, int64_t dim, int64_t q_sequence,
                     int64_t q_token, int64_t k_sequence, int64_t k_token, int64_t v_sequence,
                     int64_t v_token, int64_t causal, int64_t window, int64_t block_shift,
                     int64_t block_columns, float scale, cudaStream_t stream) {
    const Mask mask = {int(tq),  int(tk),          int(causal),       int(window),
                       blocks,   int(block_shift), int(block_columns)};
    DISPATCH(dtype, T, DISPATCH_DIM(dim, COLUMNS, {
                 const Heads<const T> qs = {static_cast<const T *>(q), q_sequence, q_token};
                 const Heads<const T> ks = {static_cast<const T *>(k), k_sequence, k_token};
                 const Heads<const T> vs = {static_cast<const T *>(v), v_sequence, v_token};
                 const Heads<T> to = {static_cast<T *>(out), tq * heads * dim, heads * dim};
                 constexpr int DIM = (COLUMNS * 16 + LANES - 1) / LANES * LANES;
                 return launch(forward_warps<T, DIM>, dim3((tq + WARPS - 1) / WARPS, heads, n),
                               dim3(LANES * WARPS), 0, stream, qs, ks, vs, to, lse, mask,
                               heads / kv_heads, dim, scale);
             }));
    return 0;
}
