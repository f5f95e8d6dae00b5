// Mamba-2's selective scan, token by token, over rows of the state that stay in the cache: a row is
// changed and read by itself.

#include <cmath>

#include "batch.h"

// See `library.py`. Strides are in elements; the numbers of a head or group are next to each other.
struct SelectiveScan {
    Batch batch;
    void* out;  // [tokens, heads, p]
    const void *x, *b, *c;
    const float *dt, *a, *d;  // d: null if there is none
    float* pool;              // [slots, heads, p, n_state]
    int64_t x_token, x_head, dt_token, b_token, b_group, c_token, c_group, slot_stride;
    int32_t heads, groups, p, n_state, is_bfloat16;
};

namespace {

constexpr int MOST_COLUMNS = 512;  // n_state
constexpr int ROWS = 16;

template <typename T>
void follow_part(const SelectiveScan& call, int sequence, int head, int64_t first) {
    const Batch& batch = call.batch;
    const int64_t n_state = call.n_state, last = std::min<int64_t>(first + ROWS, call.p);
    const int64_t group = head / (call.heads / call.groups);
    float* state = call.pool + batch.slots[sequence] * call.slot_stride + head * call.p * n_state;
    float write[MOST_COLUMNS], read[MOST_COLUMNS];
    if (batch.is_fresh[sequence]) std::fill(state + first * n_state, state + last * n_state, 0.0f);
    for (int64_t t = batch.starts[sequence]; t < batch.starts[sequence + 1]; t++) {
        widen(static_cast<const T*>(call.b) + t * call.b_token + group * call.b_group, write, n_state);
        widen(static_cast<const T*>(call.c) + t * call.c_token + group * call.c_group, read, n_state);
        const float step = call.dt[t * call.dt_token + head], decay = std::exp(step * call.a[head]);
        const T* x = static_cast<const T*>(call.x) + t * call.x_token + head * call.x_head;
        T* out = static_cast<T*>(call.out) + (t * call.heads + head) * call.p;
        for (int64_t i = first; i < last; i++) {
            const float value = load_one(x + i), written = step * value;
            float* row = state + i * n_state;
            Floats total{};
            for (int64_t j = 0; j < n_state; j += LANES) {
                const Floats old = load_some(row + j, int(n_state - j));
                const Floats now = decay * old + written * load_some(write + j, int(n_state - j));
                store_some(row + j, now, n_state - j);
                total += now * load_some(read + j, int(n_state - j));
            }
            store_one(out + i, sum_of(total) + (call.d == nullptr ? 0.0f : call.d[head] * value));
        }
    }
}

template <typename T>
void follow(const SelectiveScan& call) {
    const int blocks = (call.p + ROWS - 1) / ROWS;
    const int64_t numbers = int64_t(call.heads) * call.p * call.n_state;
    for_each_part(call.batch, call.heads * blocks, numbers, [&](int sequence, int part) {
        follow_part<T>(call, sequence, part / blocks, int64_t(part % blocks) * ROWS);
    });
}

}  // namespace

extern "C" {

void yaie_selective_scan(const SelectiveScan* call) {
    (call->is_bfloat16 ? follow<BFloat16> : follow<float>)(*call);
}
}
