// A lane computes the score of a whole key, for all heads; weights go to the other lanes through
// shared memory, and a warp has one softmax. The reference spreads a key over the lanes of a team.
#include "paged.cuh"

constexpr int WARPS = THREADS / WARP;

// Grid: (kv_heads * chunks, n, parts). shared: query [HEADS, dim], weights [WARPS, HEADS, WARP],
// then for the merge sums [WARPS * slices, HEADS, dim], and at its end stats [WARPS, HEADS, 2].
template <typename T, int HEADS>
__global__ void __launch_bounds__(THREADS)
    decode_by_lanes(const T *q, int64_t q_stride, Pool<T> pool, Rules rules, int group,
                    int keys_per_part, float *acc, float *stats) {
    extern __shared__ float shared[];
    const int dim = pool.dim, pieces = dim / ELEMENTS, slices = WARP / pieces;
    float *query = shared, *weights = query + HEADS * dim;
    float *gathered = weights + WARPS * HEADS * WARP;
    float *known = gathered + WARPS * slices * HEADS * dim;
    const int chunks = (group + HEADS - 1) / HEADS, parts = gridDim.z;
    const int kv_head = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
    const int sequence = blockIdx.y, part = blockIdx.z;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int heads = min(HEADS, group - chunk * HEADS);
    const int first_head = kv_head * group + chunk * HEADS;
    const int seq_len = pool.seq_lens[sequence];
    const int first = rules.window > 0 ? first_visible(seq_len, rules.window) : 0;
    Span span = {first, seq_len};
    if (parts > 1) span = keys_of_part(first, seq_len, part, keys_per_part);
    if (span.end <= span.begin) return;
    const int *table = pool.tables + sequence * pool.table_stride;
    const auto row_of = [&](int position) {
        const int block = table[position / pool.block_size];
        return pool.row(block * pool.block_size + position % pool.block_size, kv_head);
    };
    const T *from = q + sequence * q_stride + int64_t(first_head) * dim;
    for (int i = threadIdx.x; i < HEADS * dim; i += THREADS)
        query[i] = i < heads * dim ? rules.scale * to_float(from[i]) : 0.0f;
    __syncthreads();

    float maximum[HEADS], sum[HEADS], mine[HEADS][ELEMENTS];
    for (int head = 0; head < HEADS; ++head) {
        maximum[head] = LOWEST;
        sum[head] = 0.0f;
        for (int i = 0; i < ELEMENTS; ++i) mine[head][i] = 0.0f;
    }
    float *own = weights + warp * HEADS * WARP;
    const int slice = lane / pieces, piece = lane % pieces;
    for (int tile = span.begin + warp * WARP; tile < span.end; tile += THREADS) {
        const bool exists = tile + lane < span.end;
        float score[HEADS];
        for (int head = 0; head < HEADS; ++head) score[head] = 0.0f;
        const T *key = pool.keys + row_of(exists ? tile + lane : tile);
        for (int i = 0; exists && i < dim; i += ELEMENTS) {
            Row<T> some;
            some.load(key + i);
            for (int j = 0; j < ELEMENTS; ++j)
                for (int head = 0; head < HEADS; ++head)
                    score[head] += some[j] * query[head * dim + i + j];
        }
        for (int head = 0; head < HEADS; ++head) {
            if (rules.softcap > 0.0f) score[head] = capped(score[head], rules.softcap);
            if (!exists) score[head] = -INFINITY;
            float largest = score[head];
            for (int distance = WARP / 2; distance > 0; distance /= 2)
                largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, distance));
            if (largest > maximum[head]) {
                const float rescale = __expf(maximum[head] - largest);
                sum[head] *= rescale;
                for (int i = 0; i < ELEMENTS; ++i) mine[head][i] *= rescale;
                maximum[head] = largest;
            }
            const float weight = __expf(score[head] - maximum[head]);
            sum[head] += weight;
            own[head * WARP + lane] = weight;
        }
        __syncwarp();
        for (int k = slice; slice < slices && k < min(WARP, span.end - tile); k += slices) {
            Row<T> value;
            value.load(pool.values + row_of(tile + k) + piece * ELEMENTS);
            for (int head = 0; head < HEADS; ++head)
                for (int i = 0; i < ELEMENTS; ++i)
                    mine[head][i] += own[head * WARP + k] * value[i];
        }
        __syncwarp();
    }

    for (int head = 0; head < HEADS; ++head) {
        for (int distance = 1; distance < WARP; distance *= 2)
            sum[head] += __shfl_xor_sync(ALL_LANES, sum[head], distance);
        if (lane == 0) {
            known[(warp * HEADS + head) * 2] = maximum[head];
            known[(warp * HEADS + head) * 2 + 1] = sum[head];
        }
        float *place = gathered + ((warp * slices + slice) * HEADS + head) * dim + piece * ELEMENTS;
        for (int i = 0; slice < slices && i < ELEMENTS; ++i) place[i] = mine[head][i];
    }
    __syncthreads();
    const int64_t row = (int64_t(sequence) * group * pool.kv_heads + first_head) * parts + part;
    for (int n = threadIdx.x; n < heads * dim; n += THREADS) {
        const int head = n / dim, i = n % dim;
        float largest = LOWEST, all = 0.0f, total = 0.0f;
        for (int w = 0; w < WARPS; ++w) largest = fmaxf(largest, known[(w * HEADS + head) * 2]);
        for (int w = 0; w < WARPS; ++w) {
            const float factor = __expf(known[(w * HEADS + head) * 2] - largest);
            all += factor * known[(w * HEADS + head) * 2 + 1];
            for (int s = 0; s < slices; ++s)
                total += factor * gathered[((w * slices + s) * HEADS + head) * dim + i];
        }
        acc[(row + int64_t(head) * parts) * dim + i] = total;
        if (i > 0) continue;
        stats[(row + int64_t(head) * parts) * 2] = largest;
        stats[(row + int64_t(head) * parts) * 2 + 1] = all;
    }
}

template <typename T, int HEADS>
static int start(const T *q, int64_t q_stride, Pool<T> pool, Rules rules, int n, int group,
                 int parts, int keys_per_part, float *acc, float *stats, cudaStream_t stream) {
    const int chunks = (group + HEADS - 1) / HEADS, slices = WARP / (pool.dim / ELEMENTS);
    const size_t floats =
        size_t(HEADS) * (pool.dim + WARPS * (WARP + 2) + WARPS * slices * pool.dim);
    return launch(decode_by_lanes<T, HEADS>, dim3(pool.kv_heads * chunks, n, parts), dim3(THREADS),
                  floats * sizeof(float), stream, q, q_stride, pool, rules, group, keys_per_part,
                  acc, stats);
}

YAIE_API int decode_parts(const void *q, const void *keys, const void *values, const int *tables,
                          const int *seq_lens, float *acc, float *stats, int64_t dtype,
                          int64_t q_stride, int64_t table_stride, int64_t n, int64_t heads,
                          int64_t kv_heads, int64_t dim, int64_t block_size, int64_t parts,
                          int64_t keys_per_part, int64_t window, float scale, float softcap,
                          cudaStream_t stream) {
    const int group = int(heads / kv_heads);
    const Rules rules = {scale, softcap, int(window)};
    DISPATCH(dtype, T, {
        const Pool<T> pool = {static_cast<const T *>(keys), static_cast<const T *>(values),
                              tables, seq_lens, table_stride, int(block_size), int(kv_heads),
                              int(dim)};
        const auto run = group == 1 ? start<T, 1> : group <= 3 ? start<T, 3> : start<T, 6>;
        return run(static_cast<const T *>(q), q_stride, pool, rules, int(n), group, int(parts),
                   int(keys_per_part), acc, stats, stream);
    });
    return 0;
}
