// Decode in two phases for each tile of 128 keys: first a thread computes the scores of one key,
// for all heads of the group; then a thread sums 8 elements of the values over some of the keys.
#include "paged.cuh"

constexpr int TILE = THREADS;

__device__ inline int slot_of(const int *table, int position, int block_size) {
    return table[position / block_size] * block_size + position % block_size;
}

// Grid: (kv_heads * chunks, n, parts).
template <typename T, int HEADS>
__global__ void __launch_bounds__(THREADS)
    decode_kernel(const T *q, int64_t q_stride, Pool<T> pool, Rules rules, int group,
                  int keys_per_part, float *acc, float *stats) {
    extern __shared__ float shared[];
    const int dim = pool.dim, chunks = (group + HEADS - 1) / HEADS, parts = gridDim.z;
    float *query = shared;                 // [HEADS, dim]
    float *score = query + HEADS * dim;    // [HEADS, TILE]
    float *gathered = score + HEADS * TILE; // [slices, HEADS, dim]
    const int kv_head = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
    const int sequence = blockIdx.y, part = blockIdx.z, thread = threadIdx.x;
    const int heads = min(HEADS, group - chunk * HEADS);
    const int first_head = kv_head * group + chunk * HEADS;
    const int seq_len = pool.seq_lens[sequence];
    const int *table = pool.tables + sequence * pool.table_stride;
    const int first = rules.window > 0 ? first_visible(seq_len, rules.window) : 0;
    Span span = {first, seq_len};
    if (parts > 1) span = keys_of_part(first, seq_len, part, keys_per_part);
    if (span.begin >= span.end) return;

    for (int i = thread; i < HEADS * dim; i += THREADS)
        query[i] = i / dim < heads
                       ? to_float(q[sequence * q_stride + int64_t(first_head) * dim + i])
                       : 0.0f;
    const int pieces = dim / ELEMENTS, slices = THREADS / pieces;
    const int slice = thread / pieces, piece = thread % pieces;
    const bool sums = slice < slices;
    float maximum[HEADS], total[HEADS], mine[HEADS][ELEMENTS];
    for (int head = 0; head < HEADS; ++head) {
        maximum[head] = LOWEST;
        total[head] = 0.0f;
        for (int i = 0; i < ELEMENTS; ++i) mine[head][i] = 0.0f;
    }
    __syncthreads();

    for (int tile = span.begin; tile < span.end; tile += TILE) {
        const int position = tile + thread, count = min(TILE, span.end - tile);
        float product[HEADS];
        for (int head = 0; head < HEADS; ++head) product[head] = 0.0f;
        if (position < span.end) {
            const int64_t row = pool.row(slot_of(table, position, pool.block_size), kv_head);
            for (int i = 0; i < dim; i += ELEMENTS) {
                Row<T> key;
                key.load(pool.keys + row + i);
                for (int head = 0; head < HEADS; ++head)
                    for (int j = 0; j < ELEMENTS; ++j)
                        product[head] += query[head * dim + i + j] * key[j];
            }
        }
        for (int head = 0; head < HEADS; ++head) {
            float one = product[head] * rules.scale;
            if (rules.softcap > 0.0f) one = capped(one, rules.softcap);
            score[head * TILE + thread] = one;
        }
        __syncthreads();
        for (int head = 0; head < HEADS; ++head) {
            float largest = maximum[head];
            for (int key = 0; key < count; ++key)
                largest = fmaxf(largest, score[head * TILE + key]);
            const float rescale = __expf(maximum[head] - largest);
            maximum[head] = largest;
            total[head] *= rescale;
            for (int i = 0; i < ELEMENTS; ++i) mine[head][i] *= rescale;
        }
        for (int key = slice; sums && key < count; key += slices) {
            Row<T> value;
            value.load(pool.values + piece * ELEMENTS +
                       pool.row(slot_of(table, tile + key, pool.block_size), kv_head));
            for (int head = 0; head < HEADS; ++head) {
                const float weight = __expf(score[head * TILE + key] - maximum[head]);
                total[head] += weight;
                for (int i = 0; i < ELEMENTS; ++i) mine[head][i] += weight * value[i];
            }
        }
        __syncthreads();
    }

    // All slices know the same maxima: their sums are simply added.
    float *all_totals = score;
    for (int head = 0; sums && head < HEADS; ++head) {
        for (int i = 0; i < ELEMENTS; ++i)
            gathered[(slice * HEADS + head) * dim + piece * ELEMENTS + i] = mine[head][i];
        if (piece == 0) all_totals[head * TILE + slice] = total[head];
    }
    __syncthreads();
    const int64_t row = (int64_t(sequence) * group * pool.kv_heads + first_head) * parts + part;
    for (int i = thread; i < heads * dim; i += THREADS) {
        const int head = i / dim;
        float sum = 0.0f;
        for (int other = 0; other < slices; ++other)
            sum += gathered[(other * HEADS + head) * dim + i % dim];
        acc[(row + int64_t(head) * parts) * dim + i % dim] = sum;
    }
    if (thread < heads) {
        float sum = 0.0f;
        for (int other = 0; other < slices; ++other) sum += all_totals[thread * TILE + other];
        float largest = LOWEST;
        for (int head = 0; head < HEADS; ++head)
            if (head == thread) largest = maximum[head];
        stats[(row + int64_t(thread) * parts) * 2] = largest;
        stats[(row + int64_t(thread) * parts) * 2 + 1] = sum;
    }
}

template <typename T, int HEADS>
int start(const T *q, int64_t q_stride, Pool<T> pool, Rules rules, int n, int group, int parts,
          int keys_per_part, float *acc, float *stats, cudaStream_t stream) {
    const int chunks = (group + HEADS - 1) / HEADS, slices = THREADS / (pool.dim / ELEMENTS);
    const size_t floats = size_t(HEADS) * (pool.dim + TILE + slices * pool.dim);
    return launch(decode_kernel<T, HEADS>, dim3(pool.kv_heads * chunks, n, parts), dim3(THREADS),
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
        const T *query = static_cast<const T *>(q);
        const Pool<T> pool = {static_cast<const T *>(keys), static_cast<const T *>(values),
                              tables, seq_lens, table_stride, int(block_size), int(kv_heads),
                              int(dim)};
        auto run = group == 1 ? start<T, 1> : group <= 4 ? start<T, 4> : start<T, 8>;
        return run(query, q_stride, pool, rules, int(n), group, int(parts), int(keys_per_part),
                   acc, stats, stream);
    });
    return 0;
}
