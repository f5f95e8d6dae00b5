// The gated delta rule, token by token, over columns of the state that stay in the cache. A token's turn
// writes what it changes and reads what comes out and what the state holds for the next token's key, all
// in one walk through the state's rows.

#include <cmath>

#include "batch.h"

// See `library.py`. Strides are in elements; the numbers of a head are next to each other.
struct DeltaRule {
    Batch batch;
    void* out;  // [tokens, v_heads, d_v]
    const void *q, *k, *v;
    const float *log_decay, *beta;
    float* pool;  // [slots, v_heads, d_k, d_v]
    int64_t q_token, q_head, k_token, k_head, v_token, v_head, decay_token, beta_token, slot_stride;
    int32_t heads, v_heads, d_k, d_v, is_bfloat16;
};

namespace {

constexpr int MOST_ROWS = 512;  // d_k
constexpr int BLOCK = COLUMNS * LANES;

template <typename T, bool WHOLE>
void follow_part(const DeltaRule& call, int sequence, int head, int64_t first) {
    const Batch& batch = call.batch;
    const int64_t d_k = call.d_k, d_v = call.d_v, left = d_v - first;
    const int64_t begin = batch.starts[sequence], end = batch.starts[sequence + 1];
    const int64_t k_head = head / (call.v_heads / call.heads);
    float* state = call.pool + batch.slots[sequence] * call.slot_stride + head * d_k * d_v + first;
    float query[MOST_ROWS], keys[2][MOST_ROWS] = {};
    float *key = keys[0], *next = keys[1];

    const auto read_key = [&](int64_t t, float* to) {
        widen(static_cast<const T*>(call.k) + t * call.k_token + k_head * call.k_head, to, d_k);
    };
    Floats held[COLUMNS] = {};
    read_key(begin, key);
    for (int64_t i = 0; i < d_k; i++) {
        float* row = state + i * d_v;
        for (int c = 0; c < COLUMNS; c++) {
            if (batch.is_fresh[sequence])
                store_of<WHOLE>(row + c * LANES, Floats{}, left - c * LANES);
            else
                held[c] += key[i] * load_of<WHOLE>(row + c * LANES, left - c * LANES);
        }
    }
    for (int64_t t = begin; t < end; t++) {
        widen(static_cast<const T*>(call.q) + t * call.q_token + k_head * call.q_head, query, d_k);
        if (t + 1 < end) read_key(t + 1, next);
        const float decay = std::exp(call.log_decay[t * call.decay_token + head]);
        const float rate = call.beta[t * call.beta_token + head];
        const T* value = static_cast<const T*>(call.v) + t * call.v_token + head * call.v_head + first;
        Floats change[COLUMNS], out[COLUMNS] = {}, then[COLUMNS] = {};
        for (int c = 0; c < COLUMNS; c++)
            change[c] = rate * (load_of<WHOLE>(value + c * LANES, left - c * LANES) - decay * held[c]);
        for (int64_t i = 0; i < d_k; i++) {
            float* row = state + i * d_v;
            for (int c = 0; c < COLUMNS; c++) {
                const Floats old = load_of<WHOLE>(row + c * LANES, left - c * LANES);
                const Floats now = decay * old + key[i] * change[c];
                store_of<WHOLE>(row + c * LANES, now, left - c * LANES);
                out[c] += query[i] * now;
                then[c] += next[i] * now;
            }
        }
        T* to = static_cast<T*>(call.out) + (t * call.v_heads + head) * d_v + first;
        for (int c = 0; c < COLUMNS; c++) {
            store_of<WHOLE>(to + c * LANES, out[c], left - c * LANES);
            held[c] = then[c];
        }
        std::swap(key, next);
    }
}

template <typename T>
void follow(const DeltaRule& call) {
    const int blocks = (call.d_v + BLOCK - 1) / BLOCK;
    const int64_t numbers = int64_t(call.v_heads) * call.d_k * call.d_v;
    for_each_part(call.batch, call.v_heads * blocks, numbers, [&](int sequence, int part) {
        const int64_t first = int64_t(part % blocks) * BLOCK;
        const auto follow = first + BLOCK <= call.d_v ? follow_part<T, true> : follow_part<T, false>;
        follow(call, sequence, part / blocks, first);
    });
}

}  // namespace

extern "C" {

void yaie_delta_rule(const DeltaRule* call) { (call->is_bfloat16 ? follow<BFloat16> : follow<float>)(*call); }
}
