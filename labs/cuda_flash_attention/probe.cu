// One thread block that runs the parts of the forward kernel alone, so that each can be looked at
// and graded by itself. Nothing but the grader and the notebook calls these.
#include "mask.cuh"
#include "softmax.cuh"

constexpr int PROBE_DIM = 32, PROBE_COLUMNS = PROBE_DIM / COLUMNS_OF_THREADS;
constexpr int PROBE_ROWS = 32, PROBE_R = PROBE_ROWS / ROWS_OF_THREADS;
constexpr int PROBE_COUNT = 16; // other than PROBE_DIM: rows of weights have a length of their own

// from: [rows, dim], rows `stride` elements apart; tile: [PROBE_ROWS, PROBE_DIM].
template <typename T>
__global__ void probe_tile_kernel(const T *from, int64_t stride, int rows, int dim, float *tile) {
    __shared__ float4 memory[PROBE_ROWS * (PROBE_DIM + PAD) / 4];
    float *shared = reinterpret_cast<float *>(memory);
    load_tile<PROBE_ROWS, PROBE_DIM>(shared, from, stride, rows, dim);
    __syncthreads();
    for (int i = threadIdx.x; i < PROBE_ROWS * PROBE_DIM; i += THREADS)
        tile[i] = shared[i / PROBE_DIM * (PROBE_DIM + PAD) + i % PROBE_DIM];
}

// a, b: [PROBE_ROWS, PROBE_DIM]. products: a times b transposed; sums: the first PROBE_COUNT columns
// of a times as many rows of b, added to ones.
__global__ void probe_products_kernel(const float *a, const float *b, float *products,
                                      float *sums) {
    constexpr int TILE = PROBE_ROWS * (PROBE_DIM + PAD);
    __shared__ float4 memory[3 * TILE / 4];
    float *left = reinterpret_cast<float *>(memory), *right = left + TILE, *weights = right + TILE;
    for (int i = threadIdx.x; i < PROBE_ROWS * PROBE_DIM; i += THREADS) {
        const int at = i / PROBE_DIM * (PROBE_DIM + PAD) + i % PROBE_DIM;
        left[at] = a[i];
        right[at] = b[i];
    }
    __syncthreads();
    const float ones[PROBE_R] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (products != nullptr) {
        float product[PROBE_R][PROBE_COLUMNS];
        rows_times_rows<PROBE_DIM>(left, right, product);
        store_rows(products, PROBE_ROWS, PROBE_ROWS, PROBE_ROWS, product, ones);
    }
    if (sums != nullptr) {
        for (int i = threadIdx.x; i < PROBE_ROWS * PROBE_COUNT; i += THREADS) {
            const int row = i / PROBE_COUNT, column = i % PROBE_COUNT;
            weights[row * (PROBE_COUNT + PAD) + column] = a[row * PROBE_DIM + column];
        }
        __syncthreads();
        float sum[PROBE_R][PROBE_COLUMNS];
        for (int r = 0; r < PROBE_R; ++r)
            for (int c = 0; c < PROBE_COLUMNS; ++c) sum[r][c] = 1.0f;
        weights_times_rows<PROBE_COUNT>(weights, right, sum);
        store_rows(sums, PROBE_DIM, PROBE_ROWS, PROBE_DIM, sum, ones);
    }
}

// scores: [tiles, PROBE_ROWS, PROBE_DIM], taken in one tile after another, every row's acc
// beginning with 0 and having the first column of each tile's weights added. Out, [PROBE_ROWS]
// each: share and lse, in another lane for each row, and the first element of acc; weights:
// [PROBE_ROWS, PROBE_DIM] of the last tile.
__global__ void probe_softmax_kernel(const float *scores, int tiles, float *share, float *lse,
                                     float *acc, float *weights) {
    SoftmaxRows<PROBE_R, 1> rows;
    float score[PROBE_R][PROBE_COLUMNS];
    for (int tile = 0; tile < tiles; ++tile) {
        for (int r = 0; r < PROBE_R; ++r)
            for (int c = 0; c < PROBE_COLUMNS; ++c)
                score[r][c] = scores[(tile * PROBE_ROWS + r * ROWS_OF_THREADS + thread_row()) *
                                         PROBE_DIM +
                                     c * COLUMNS_OF_THREADS + thread_column()];
        rows.update(score);
        for (int r = 0; r < PROBE_R; ++r) rows.acc[r][0] += score[r][0];
    }
    const float ones[PROBE_R] = {1.0f, 1.0f, 1.0f, 1.0f};
    store_rows(weights, PROBE_DIM, PROBE_ROWS, PROBE_DIM, score, ones);
    for (int r = 0; r < PROBE_R; ++r) {
        const int row = r * ROWS_OF_THREADS + thread_row();
        if (thread_column() == 0) acc[row] = rows.acc[r][0];
        if (thread_column() != row % COLUMNS_OF_THREADS) continue;
        share[row] = rows.share(r);
        lse[row] = rows.lse(r);
    }
}

// What the mask says: sees [tq, tk]; for each tile of `size` queries its span of keys, for each
// tile of `size` keys its span of queries, [.., 2]; for each pair of tiles any_block (if there are
// blocks).
__global__ void probe_mask_kernel(Mask mask, int size, bool *sees, int *key_spans,
                                  int *query_spans, bool *any) {
    const int rows = (mask.tq + size - 1) / size, columns = (mask.tk + size - 1) / size;
    for (int i = threadIdx.x; i < mask.tq * mask.tk; i += THREADS)
        sees[i] = mask.sees(i / mask.tk, i % mask.tk);
    for (int i = threadIdx.x; i < rows; i += THREADS) {
        const Span span = mask.keys_of(i * size, min((i + 1) * size, mask.tq));
        key_spans[2 * i] = span.begin;
        key_spans[2 * i + 1] = span.end;
    }
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        const Span span = mask.queries_of(i * size, min((i + 1) * size, mask.tk));
        query_spans[2 * i] = span.begin;
        query_spans[2 * i + 1] = span.end;
    }
    if (mask.blocks == nullptr) return;
    for (int i = threadIdx.x; i < rows * columns; i += THREADS) {
        const int query = i / columns * size, key = i % columns * size;
        any[i] = mask.any_block({query, query + size}, {key, key + size});
    }
}

YAIE_API int probe_mask(const bool *blocks, bool *sees, int *key_spans, int *query_spans,
                        bool *any, int64_t tq, int64_t tk, int64_t causal, int64_t window,
                        int64_t block_shift, int64_t block_columns, int64_t size,
                        cudaStream_t stream) {
    const Mask mask = {int(tq),  int(tk),          int(causal),       int(window),
                       blocks,   int(block_shift), int(block_columns)};
    return launch(probe_mask_kernel, dim3(1), dim3(THREADS), 0, stream, mask, size, sees,
                  key_spans, query_spans, any);
}

YAIE_API int probe_tile(const void *from, float *tile, int64_t dtype, int64_t stride, int64_t rows,
                        int64_t dim, cudaStream_t stream) {
    DISPATCH(dtype, T,
             return launch(probe_tile_kernel<T>, dim3(1), dim3(THREADS), 0, stream,
                           static_cast<const T *>(from), stride, rows, dim, tile));
    return 0;
}

YAIE_API int probe_products(const float *a, const float *b, float *products, float *sums,
                            cudaStream_t stream) {
    return launch(probe_products_kernel, dim3(1), dim3(THREADS), 0, stream, a, b, products, sums);
}

YAIE_API int probe_softmax(const float *scores, float *share, float *lse, float *acc,
                           float *weights, int64_t tiles, cudaStream_t stream) {
    return launch(probe_softmax_kernel, dim3(1), dim3(THREADS), 0, stream, scores, tiles, share,
                  lse, acc, weights);
}
