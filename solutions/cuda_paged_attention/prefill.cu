// Prefill of chunks over the pool: given, and simple. A warp computes QUERIES neighbouring queries
// of one head; its teams take keys in turn and are merged by shuffles. No tile of shared memory is
// reused across warps: lab 15 has that, for keys that lie side by side.
#include "paged.cuh"

constexpr int QUERIES = 4, WARPS = THREADS / WARP;

__device__ inline float warp_teams_max(float value, int lanes) {
    for (int distance = lanes; distance < WARP; distance *= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

__device__ inline float warp_teams_sum(float value, int lanes) {
    for (int distance = lanes; distance < WARP; distance *= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

// ANCHOR: prefill_kernel
// q, out: [T, heads, dim]. Grid: (queries / (WARPS * QUERIES), heads, n).
template <typename T>
__global__ void __launch_bounds__(THREADS)
    prefill_kernel(const T *q, int64_t q_stride, const int *query_start_loc, Pool<T> pool,
                   Rules rules, const float *sinks, T *out) {
    const int head = blockIdx.y, heads = gridDim.y, sequence = blockIdx.z, dim = pool.dim;
    const int kv_head = head / (heads / pool.kv_heads), warp = int(threadIdx.x) / WARP;
    const int start = query_start_loc[sequence];
    const int queries = query_start_loc[sequence + 1] - start;
    const int first_query = (int(blockIdx.x) * WARPS + warp) * QUERIES;
    if (first_query >= queries) return; // the whole warp

    const int lanes = lanes_for(dim), teams = WARP / lanes;
    const int team = (int(threadIdx.x) % WARP) / lanes, lane = int(threadIdx.x) % lanes;
    const bool mine = lane * ELEMENTS < dim;
    const int first_position = pool.seq_lens[sequence] - queries + first_query;
    float query[QUERIES][ELEMENTS], acc[QUERIES][ELEMENTS], maximum[QUERIES], sum[QUERIES];
#pragma unroll
    for (int j = 0; j < QUERIES; ++j) {
        maximum[j] = LOWEST;
        sum[j] = 0.0f;
        const bool read = mine && first_query + j < queries;
        const T *from = q + (start + first_query + j) * q_stride + int64_t(head) * dim;
#pragma unroll
        for (int i = 0; i < ELEMENTS; ++i) {
            query[j][i] = read ? to_float(from[lane * ELEMENTS + i]) * rules.scale : 0.0f;
            acc[j][i] = 0.0f;
        }
    }

    const int *table = pool.tables + sequence * pool.table_stride;
    const int end = min(pool.seq_lens[sequence], first_position + QUERIES);
    const int begin = rules.window > 0 ? max(0, first_position - rules.window + 1) : 0;
    for (int tile = begin; tile < end; tile += teams) {
        const int position = tile + team, there = min(position, end - 1);
        const int slot = table[there / pool.block_size] * pool.block_size +
                         there % pool.block_size;
        const int64_t row = pool.row(slot, kv_head) + (mine ? lane * ELEMENTS : 0);
        Row<T> key, value;
        key.load(pool.keys + row);
        value.load(pool.values + row);
#pragma unroll
        for (int j = 0; j < QUERIES; ++j) {
            float score = 0.0f;
#pragma unroll
            for (int i = 0; i < ELEMENTS; ++i) score += query[j][i] * key[i];
            for (int distance = lanes / 2; distance > 0; distance /= 2)
                score += __shfl_xor_sync(ALL_LANES, score, distance);
            if (rules.softcap > 0.0f) score = rules.softcap * tanhf(score / rules.softcap);
            const int behind = first_position + j - position;
            if (position >= end || behind < 0 || (rules.window > 0 && behind >= rules.window))
                score = -INFINITY;
            const float larger = fmaxf(maximum[j], score);
            const float rescale = __expf(maximum[j] - larger), weight = __expf(score - larger);
            maximum[j] = larger;
            sum[j] = sum[j] * rescale + weight;
#pragma unroll
            for (int i = 0; i < ELEMENTS; ++i)
                acc[j][i] = acc[j][i] * rescale + weight * value[i];
        }
    }

#pragma unroll
    for (int j = 0; j < QUERIES; ++j) {
        const float sink = sinks != nullptr ? sinks[head] : LOWEST;
        const float largest = fmaxf(warp_teams_max(maximum[j], lanes), sink);
        const float rescale = __expf(maximum[j] - largest);
        float total = warp_teams_sum(sum[j] * rescale, lanes);
        if (sinks != nullptr) total += __expf(sink - largest);
        T *to = out + (int64_t(start + first_query + j) * heads + head) * dim;
#pragma unroll
        for (int i = 0; i < ELEMENTS; ++i) {
            const float element = warp_teams_sum(acc[j][i] * rescale, lanes);
            if (team == 0 && mine && first_query + j < queries)
                to[lane * ELEMENTS + i] = from_float<T>(total > 0.0f ? element / total : 0.0f);
        }
    }
}
// ANCHOR_END: prefill_kernel

// See PagedAttention.prefill in paged_attention.py.
YAIE_API int prefill(const void *q, const void *keys, const void *values, const int *tables,
                     const int *query_start_loc, const int *seq_lens, const float *sinks,
                     void *out, int64_t dtype, int64_t q_stride, int64_t table_stride, int64_t n,
                     int64_t max_query_len, int64_t heads, int64_t kv_heads, int64_t dim,
                     int64_t block_size, int64_t window, float scale, float softcap,
                     cudaStream_t stream) {
    const Rules rules = {scale, softcap, int(window)};
    const int64_t queries = WARPS * QUERIES;
    DISPATCH(dtype, T, {
        const Pool<T> pool = {static_cast<const T *>(keys), static_cast<const T *>(values),
                              tables, seq_lens, table_stride, int(block_size), int(kv_heads),
                              int(dim)};
        return launch(prefill_kernel<T>, dim3((max_query_len + queries - 1) / queries, heads, n),
                      dim3(THREADS), 0, stream, static_cast<const T *>(q), q_stride,
                      query_start_loc, pool, rules, sinks, static_cast<T *>(out));
    });
    return 0;
}
