// Decode with one thread block for each sequence and head, and one thread for each output element.
//
// Every thread goes over all keys and computes every score anew: dim times the work, and each key
// is read by `group` blocks. The oracle of decode.cu on the same hardware, and where its design
// starts from.
#include "paged.cuh"

// ANCHOR: naive_decode
// q, out: [n, heads, dim]; sinks: [heads] or null. Grid: (heads, n); threads: dim.
template <typename T>
__global__ void naive_decode_kernel(const T *q, int64_t q_stride, Pool<T> pool, Rules rules,
                                    const float *sinks, T *out) {
    const int head = blockIdx.x, sequence = blockIdx.y, i = threadIdx.x, dim = pool.dim;
    const int heads = gridDim.x, kv_head = head / (heads / pool.kv_heads);
    const int seq_len = pool.seq_lens[sequence];
    const int *table = pool.tables + sequence * pool.table_stride;
    const T *query = q + sequence * q_stride + int64_t(head) * dim;
    float maximum = sinks ? sinks[head] : LOWEST, sum = sinks ? 1.0f : 0.0f, total = 0.0f;
    for (int key = rules.window > 0 ? max(0, seq_len - rules.window) : 0; key < seq_len; ++key) {
        const int block = table[key / pool.block_size];
        const int64_t row = pool.row(block * pool.block_size + key % pool.block_size, kv_head);
        float score = 0.0f;
        for (int j = 0; j < dim; ++j)
            score += to_float(query[j]) * to_float(pool.keys[row + j]);
        score *= rules.scale;
        if (rules.softcap > 0.0f) score = rules.softcap * tanhf(score / rules.softcap);
        const float larger = fmaxf(maximum, score);
        const float rescale = __expf(maximum - larger), weight = __expf(score - larger);
        maximum = larger;
        sum = sum * rescale + weight;
        total = total * rescale + weight * to_float(pool.values[row + i]);
    }
    out[(int64_t(sequence) * heads + head) * dim + i] =
        from_float<T>(sum > 0.0f ? total / sum : 0.0f);
}
// ANCHOR_END: naive_decode

YAIE_API int naive_decode(const void *q, const void *keys, const void *values, const int *tables,
                          const int *seq_lens, const float *sinks, void *out, int64_t dtype,
                          int64_t q_stride, int64_t table_stride, int64_t n, int64_t heads,
                          int64_t kv_heads, int64_t dim, int64_t block_size, int64_t window,
                          float scale, float softcap, cudaStream_t stream) {
    const Rules rules = {scale, softcap, int(window)};
    DISPATCH(dtype, T, {
        const Pool<T> pool = {static_cast<const T *>(keys), static_cast<const T *>(values),
                              tables, seq_lens, table_stride, int(block_size), int(kv_heads),
                              int(dim)};
        return launch(naive_decode_kernel<T>, dim3(heads, n), dim3(dim), 0, stream,
                      static_cast<const T *>(q), q_stride, pool, rules, sinks,
                      static_cast<T *>(out));
    });
    return 0;
}
