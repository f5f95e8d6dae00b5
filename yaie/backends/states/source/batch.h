// Which sequences a call is about; `StateBatch`, as `library.py` hands it over.
#pragma once

#include <cstdint>

#include "threads.h"
#include "vectors.h"

struct Batch {
    const int32_t* starts;  // [n + 1]
    const int64_t* slots;
    const uint8_t* is_fresh;
    int32_t n, threads;
};

constexpr int64_t WORTH_A_THREAD = 1 << 14;  // numbers of states that a token changes

// Calls one(sequence, part) for each sequence that has tokens and each of `parts` parts of its state,
// which has `numbers` numbers.
template <typename One>
void for_each_part(const Batch& batch, int parts, int64_t numbers, const One& one) {
    const int64_t tokens = batch.starts[batch.n] - batch.starts[0];
    const int threads = at_most(batch.threads, tokens * numbers / WORTH_A_THREAD + 1);
    for_each(batch.n * parts, threads, [&](int i) {
        const int sequence = i / parts;
        if (batch.starts[sequence] < batch.starts[sequence + 1]) one(sequence, i % parts);
    });
}

template <typename T>
void widen(const T* from, float* to, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) store_some(to + i, load_some(from + i, int(count - i)), count - i);
}

// The first `left` numbers of a vector; all of them if it is known that they are there.
template <bool WHOLE, typename T>
Floats load_of(const T* from, int64_t left) {
    return WHOLE ? load(from) : load_some(from, int(left));
}

template <bool WHOLE, typename T>
void store_of(T* to, Floats x, int64_t left) {
    WHOLE ? store(to, x) : store_some(to, x, left);
}
