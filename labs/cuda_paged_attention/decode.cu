// Lab 16, your part: task 16.1. The rest is given.
// Decode: one query a sequence, over keys and values that a block table finds.
//
// A thread block computes the query heads of one key head, for one part of one sequence's keys. Its
// threads form teams: the 8 to 32 lanes that share a row of the pool, 8 elements each. Teams
// take keys in turn, each with a softmax of its own, and are merged once at the end.
#include "paged.cuh"

// ANCHOR: decode_state
// Which lane of a team knows which score. A turn has HEADS * KEYS scores, of KEYS keys with each
// head: number head * KEYS + k. They are spread over the lanes, so that each lane takes one
// exponential, or few.
template <int HEADS, int KEYS, int LANES> struct Spread {
    static constexpr int COUNT = HEADS * KEYS;
    static constexpr int HELD = COUNT > LANES ? COUNT / LANES : 1;   // scores that a lane holds
    static constexpr int COPIES = LANES > COUNT ? LANES / COUNT : 1; // lanes that hold the same
    static constexpr int PER_HEAD = LANES / HEADS;                   // neighbouring lanes

    __device__ static int first_held(int lane) { return lane / COPIES * HELD; } // of a lane
    __device__ static int holder(int score) { return score / HELD * COPIES; } // the first lane
};

// What a lane knows of the keys that its team has seen: for the head of its scores, the largest
// score and its own part of the sum of exp(score - maximum); for all heads, its 8 elements of the
// sum of exp(score - maximum) * value.
template <int HEADS> struct Running {
    float maximum = LOWEST, sum = 0.0f, acc[HEADS][ELEMENTS];

    __device__ Running() {
#pragma unroll
        for (int head = 0; head < HEADS; ++head)
#pragma unroll
            for (int i = 0; i < ELEMENTS; ++i) acc[head][i] = 0.0f;
    }
};
// ANCHOR_END: decode_state

// ANCHOR: slot_of
// The slot of the key at `position`. table: the blocks of its sequence.
__device__ inline int slot_of(const int *table, int position, int block_size) {
    // TODO 16.1: your code here (the reference: 1 line).
    NOT_IMPLEMENTED("cuda_paged_attention task 16.1: not implemented yet; see chapter Paged attention in CUDA");
}
// ANCHOR_END: slot_of

// ANCHOR: load_rows
// This team's KEYS rows of a turn: those of keys first + team, first + team + teams, ... of
// `count`. from: where this lane's share of slot 0 begins; stride: from slot to slot. Keys behind
// the last are not read: the last is read in their place, and their scores are thrown away.
template <typename T, int KEYS>
__device__ void load_rows(Row<T> (&row)[KEYS], const T *from, int64_t stride, const int *slots,
                          int first, int count, int team, int teams) {
#pragma unroll
    for (int k = 0; k < KEYS; ++k)
        row[k].load(from + slots[min(first + k * teams + team, count - 1)] * stride);
}
// ANCHOR_END: load_rows

// ANCHOR: spread_sums
// Sums of COUNT values over DISTANCE * 2 lanes, spread: the lanes keep half of the values at each
// step, those with the bit DISTANCE the upper half, and hand over the other half. Where one value
// is left, both keep it.
template <int COUNT, int DISTANCE> __device__ void spread_sums(float *value, int lane) {
    // TODO 16.1: your code here (the reference: 12 lines).
    NOT_IMPLEMENTED("cuda_paged_attention task 16.1: not implemented yet; see chapter Paged attention in CUDA");
}
// ANCHOR_END: spread_sums

// ANCHOR: add_keys
// Take KEYS more keys into the softmax of each head (Milakov and Gimelshein 2018). score: those
// that this lane holds, -infinity for a key that does not exist.
template <typename T, int HEADS, int KEYS, int LANES>
__device__ void add_keys(Running<HEADS> &state, float *score, const Row<T> (&value)[KEYS]) {
    using Map = Spread<HEADS, KEYS, LANES>;
    // TODO 16.1: your code here (the reference: 25 lines).
    NOT_IMPLEMENTED("cuda_paged_attention task 16.1: not implemented yet; see chapter Paged attention in CUDA");
}
// ANCHOR_END: add_keys

// ANCHOR: merge_teams
// The softmaxes of all teams as one, written to global memory: acc [HEADS, dim] and stats [HEADS,
// 2] (maximum, sum), of which the first `heads` exist. shared: room for teams * HEADS * (dim + 2)
// floats. Spread: a lane's head, and how many lanes hold the same score.
template <typename Map, int HEADS>
__device__ void merge_teams(const Running<HEADS> &state, float *shared, int team, int lane,
                            int teams, int dim, int heads, int64_t head_stride, float *acc,
                            float *stats) {
    // TODO 16.1: your code here (the reference: 32 lines).
    NOT_IMPLEMENTED("cuda_paged_attention task 16.1: not implemented yet; see chapter Paged attention in CUDA");
}
// ANCHOR_END: merge_teams

// ANCHOR: decode_kernel
// q: [n, group * kv_heads, dim]; acc: [n, heads, parts, dim]; stats: [n, heads, parts, 2].
// Grid: (kv_heads * chunks, n, parts), where a chunk is up to HEADS heads of a group.
template <typename T, int HEADS, int LANES>
__global__ void __launch_bounds__(THREADS, HEADS > 4 ? 2 : 4)
    decode_kernel(const T *q, int64_t q_stride, Pool<T> pool, Rules rules, int group,
                  int keys_per_part, float *acc, float *stats) {
    // Keys that a team holds at once: as many as fit into the registers beside the heads.
    constexpr int KEYS = HEADS > 4 || sizeof(T) == sizeof(float) ? 2 : 4;
    constexpr int TEAMS = THREADS / LANES;
    using Map = Spread<HEADS, KEYS, LANES>;
    extern __shared__ float4 shared_memory[];
    const int chunks = (group + HEADS - 1) / HEADS, parts = gridDim.z, dim = pool.dim;
    const int kv_head = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
    const int sequence = blockIdx.y, part = blockIdx.z;
    const int heads = min(HEADS, group - chunk * HEADS); // of this block
    const int first_head = kv_head * group + chunk * HEADS;
    const int seq_len = pool.seq_lens[sequence];

    const int first = rules.window > 0 ? first_visible(seq_len, rules.window) : 0;
    Span span = {first, seq_len};
    if (parts > 1) span = keys_of_part(first, seq_len, part, keys_per_part);
    const int count = span.end - span.begin;
    if (count <= 0) return;

    // The slots of all keys of the part, so that the load of a key waits for nothing.
    int *slots = reinterpret_cast<int *>(shared_memory);
    const int *table = pool.tables + sequence * pool.table_stride;
    for (int i = threadIdx.x; i < count; i += THREADS)
        slots[i] = slot_of(table, span.begin + i, pool.block_size);
    __syncthreads();

    const int team = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const bool mine = lane * ELEMENTS < dim; // a row of 80 or 96 elements leaves some lanes without
    const int offset = mine ? lane * ELEMENTS : 0;
    float query[HEADS][ELEMENTS];
    const T *from = q + sequence * q_stride + int64_t(first_head) * dim + offset;
#pragma unroll
    for (int head = 0; head < HEADS; ++head)
#pragma unroll
        for (int i = 0; i < ELEMENTS; ++i)
            query[head][i] =
                mine && head < heads ? to_float(from[head * dim + i]) * rules.scale : 0.0f;

    Running<HEADS> state;
    const T *keys = pool.keys + pool.row(0, kv_head) + offset;
    const T *values = pool.values + pool.row(0, kv_head) + offset;
    const int64_t stride = pool.row(1, 0); // from slot to slot
    constexpr int TURN = TEAMS * KEYS;     // keys of all teams
    Row<T> key[KEYS], value[KEYS];
    load_rows(key, keys, stride, slots, 0, count, team, TEAMS);
    load_rows(value, values, stride, slots, 0, count, team, TEAMS);
    for (int tile = 0; tile < count; tile += TURN) {
        // TODO 16.1: your code here (the reference: 16 lines).
        NOT_IMPLEMENTED("cuda_paged_attention task 16.1: not implemented yet; see chapter Paged attention in CUDA");
    }

    __syncthreads(); // the merge writes over the slots
    const int64_t row = (int64_t(sequence) * group * pool.kv_heads + first_head) * parts + part;
    merge_teams<Map>(state, reinterpret_cast<float *>(shared_memory), team, lane, TEAMS, dim,
                     heads, parts, acc + row * dim, stats + row * 2);
}
// ANCHOR_END: decode_kernel

template <typename T, int HEADS, int LANES>
int start(const T *q, int64_t q_stride, Pool<T> pool, Rules rules, int n, int group, int parts,
          int keys_per_part, float *acc, float *stats, cudaStream_t stream) {
    const int chunks = (group + HEADS - 1) / HEADS;
    const size_t slots = keys_per_part * sizeof(int);
    const size_t merge = size_t(THREADS / LANES) * HEADS * (pool.dim + 2) * sizeof(float);
    return launch(decode_kernel<T, HEADS, LANES>, dim3(pool.kv_heads * chunks, n, parts),
                  dim3(THREADS), slots > merge ? slots : merge, stream, q, q_stride, pool, rules,
                  group, keys_per_part, acc, stats);
}

template <typename T, int HEADS, typename... Arguments>
int start_for(int dim, Arguments... arguments) {
    if (dim <= 8 * ELEMENTS) return start<T, HEADS, 8>(arguments...);
    if (dim <= 16 * ELEMENTS) return start<T, HEADS, 16>(arguments...);
    return start<T, HEADS, 32>(arguments...);
}

// See PagedAttention.decode_parts in paged_attention.py.
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
        const auto run = [&](auto heads) {
            return start_for<T, heads>(int(dim), query, q_stride, pool, rules, int(n), group,
                                       int(parts), int(keys_per_part), acc, stats, stream);
        };
        if (group == 1) return run(std::integral_constant<int, 1>());
        if (group == 2) return run(std::integral_constant<int, 2>());
        if (group <= 4) return run(std::integral_constant<int, 4>());
        return run(std::integral_constant<int, 8>());
    });
    return 0;
}
