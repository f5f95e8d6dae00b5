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
constexpr int ROWS = 16, AT_ONCE = 4;

// WHOLE: n_state is a multiple of LANES, p of AT_ONCE.
template <typename T, bool WHOLE>
void follow_part(const SelectiveScan& call, int sequence, int head, int64_t first) {
    const Batch& batch = call.batch;
    const int64_t n_state = call.n_state, last = std::min<int64_t>(first + ROWS, call.p);
    const int64_t group = head / (call.heads / call.groups);
    float* state = call.pool + batch.slots[sequence] * call.slot_stride + head * call.p * n_state;
    float write[MOST_COLUMNS + LANES] = {}, read[MOST_COLUMNS + LANES] = {};
    if (batch.is_fresh[sequence]) std::fill(state + first * n_state, state + last * n_state, 0.0f);
    for (int64_t t = batch.starts[sequence]; t < batch.starts[sequence + 1]; t++) {
        widen(static_cast<const T*>(call.b) + t * call.b_token + group * call.b_group, write, n_state);
        widen(static_cast<const T*>(call.c) + t * call.c_token + group * call.c_group, read, n_state);
        const float step = call.dt[t * call.dt_token + head], decay = std::exp(step * call.a[head]);
        const float straight = call.d == nullptr ? 0.0f : call.d[head];
        const T* x = static_cast<const T*>(call.x) + t * call.x_token + head * call.x_head;
        T* out = static_cast<T*>(call.out) + (t * call.heads + head) * call.p;
        for (int64_t i = first; i < last; i += AT_ONCE) {
            const int rows = WHOLE ? AT_ONCE : int(std::min<int64_t>(AT_ONCE, last - i));
            float values[AT_ONCE] = {};
            Floats totals[AT_ONCE] = {};
            for (int r = 0; r < rows; r++) values[r] = load_one(x + i + r);
            for (int64_t j = 0; j < n_state; j += LANES) {
                const Floats written = step * load(write + j), wanted = load(read + j);
                for (int r = 0; r < rows; r++) {
                    float* row = state + (i + r) * n_state + j;
                    const Floats now = decay * load_of<WHOLE>(row, n_state - j) + values[r] * written;
                    store_of<WHOLE>(row, now, n_state - j);
                    totals[r] += now * wanted;
                }
            }
            // Lane l has a part of the sum of row l % AT_ONCE.
            float parts[LANES];
            store(parts, quad(totals[0], totals[1], totals[2], totals[3]));
            for (int r = 0; r < rows; r++) {
                float total = straight * values[r];
                for (int l = r; l < LANES; l += AT_ONCE) total += parts[l];
                store_one(out + i + r, total);
            }
        }
    }
}

template <typename T>
void follow(const SelectiveScan& call) {
    const int blocks = (call.p + ROWS - 1) / ROWS;
    const bool is_whole = call.n_state % LANES == 0 && call.p % AT_ONCE == 0;
    const int64_t numbers = int64_t(call.heads) * call.p * call.n_state;
    for_each_part(call.batch, call.heads * blocks, numbers, [&](int sequence, int part) {
        const auto follow = is_whole ? follow_part<T, true> : follow_part<T, false>;
        follow(call, sequence, part / blocks, int64_t(part % blocks) * ROWS);
    });
}

}  // namespace

extern "C" {

void yaie_selective_scan(const SelectiveScan* call) {
    (call->is_bfloat16 ? follow<BFloat16> : follow<float>)(*call);
}
}
