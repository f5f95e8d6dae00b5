// The causal convolution. A vector has one tap of LANES channels; the taps of a token move on by one.

#include "batch.h"

// See `library.py`. Strides are in elements; the channels of a token are next to each other.
struct ShortConv {
    Batch batch;
    void* out;         // [tokens, channels]
    const void* x;
    const void* weight;  // [channels, width]
    const void* bias;    // [channels], or null
    void* pool;          // [slots, channels, width - 1]
    int64_t x_stride, slot_stride;
    int32_t channels, width, silu, is_bfloat16;
};

namespace {

constexpr int BLOCK = 4 * LANES;  // channels at a time: a token's then fill cache lines

template <typename T>
Floats every(const T* from, int64_t stride, int64_t count) {
    float some[LANES] = {};
    for (int64_t i = 0; i < count && i < LANES; i++) some[i] = load_one(from + i * stride);
    return load(some);
}

template <typename T>
void put_every(T* to, int64_t stride, Floats x, int64_t count) {
    for (int64_t i = 0; i < count && i < LANES; i++) store_one(to + i * stride, x[i]);
}

template <typename T, int WIDTH>
void convolve_part(const ShortConv& call, int sequence, int64_t first) {
    constexpr int VECTORS = BLOCK / LANES, KEPT = WIDTH - 1;
    const Batch& batch = call.batch;
    const int64_t left = call.channels - first;
    T* tail = static_cast<T*>(call.pool) + batch.slots[sequence] * call.slot_stride + first * KEPT;
    const T* weight = static_cast<const T*>(call.weight) + first * WIDTH;
    Floats factors[VECTORS][WIDTH], taps[VECTORS][WIDTH], bias[VECTORS] = {};
    for (int v = 0; v < VECTORS; v++) {
        const int64_t at = v * LANES;
        for (int j = 0; j < WIDTH; j++) factors[v][j] = every(weight + at * WIDTH + j, WIDTH, left - at);
        for (int j = 0; j < KEPT; j++)
            taps[v][j] = batch.is_fresh[sequence] ? Floats{} : every(tail + at * KEPT + j, KEPT, left - at);
        if (call.bias != nullptr && left > at)
            bias[v] = load_some(static_cast<const T*>(call.bias) + first + at, int(left - at));
    }
    for (int64_t t = batch.starts[sequence]; t < batch.starts[sequence + 1]; t++) {
        const T* x = static_cast<const T*>(call.x) + t * call.x_stride + first;
        T* out = static_cast<T*>(call.out) + t * call.channels + first;
        for (int v = 0; v < VECTORS && v * LANES < left; v++) {
            taps[v][KEPT] = load_some(x + v * LANES, int(left - v * LANES));
            Floats total = bias[v];
            for (int j = 0; j < WIDTH; j++) total += taps[v][j] * factors[v][j];
            for (int j = 0; j < KEPT; j++) taps[v][j] = taps[v][j + 1];
            store_some(out + v * LANES, call.silu ? silu_of(total) : total, left - v * LANES);
        }
    }
    for (int v = 0; v < VECTORS; v++)
        for (int j = 0; j < KEPT; j++)
            put_every(tail + v * LANES * KEPT + j, KEPT, taps[v][j], left - v * LANES);
}

template <typename T>
void convolve(const ShortConv& call) {
    const int blocks = (call.channels + BLOCK - 1) / BLOCK;
    for_each_part(call.batch, blocks, int64_t(call.channels) * call.width, [&](int sequence, int block) {
        const int64_t first = int64_t(block) * BLOCK;
        if (call.width == 2) convolve_part<T, 2>(call, sequence, first);
        if (call.width == 3) convolve_part<T, 3>(call, sequence, first);
        if (call.width == 4) convolve_part<T, 4>(call, sequence, first);
    });
}

}  // namespace

extern "C" {

void yaie_states_set_team(void* call) { team() = reinterpret_cast<Team>(call); }

void yaie_short_conv(const ShortConv* call) { (call->is_bfloat16 ? convolve<BFloat16> : convolve<float>)(*call); }
}
