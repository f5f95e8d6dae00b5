// The rest of a decoder layer: norms, the activation, and the rotation on the way to the pool.

#include "rows.h"
#include "threads.h"

namespace {

constexpr int64_t WORTH_A_THREAD = 1 << 14;  // numbers

int threads_for(int64_t numbers, int threads) { return at_most(threads, numbers / WORTH_A_THREAD + 1); }

// Turns each pair (x[i], x[i + half]); the rest stays. `to` may be x.
template <typename T>
void rotate(const T* x, T* to, const float* cos, const float* sin, int64_t half, int64_t d) {
    for (int64_t i = 0; i < half; i += LANES) {
        const int64_t left = half - i;
        const Floats first = load_some(x + i, left), second = load_some(x + half + i, left);
        const Floats c = load_some(cos + i, left), s = load_some(sin + i, left);
        store_some(to + i, first * c - second * s, left);
        store_some(to + half + i, second * c + first * s, left);
    }
    if (to != x) std::memcpy(to + 2 * half, x + 2 * half, sizeof(T) * (d - 2 * half));
}

}  // namespace

// See `library.py`. Strides are in elements; the numbers of a head are next to each other.
struct RotateAndStore {
    void *q, *keys, *values;
    const void *k, *v;
    const int64_t *slots, *positions;
    const float *cos, *sin;  // [positions, half]; null if there is nothing to rotate
    int64_t q_token, q_head, k_token, k_head, v_token, v_head, block, slot, head;
    int32_t tokens, heads, kv_heads, d, half, block_size, is_bfloat16, threads;
};

namespace {

template <typename T>
void rotate_and_store(const RotateAndStore& call, int token) {
    const int64_t at = call.slots[token];
    const float *cos = nullptr, *sin = nullptr;
    if (call.cos != nullptr) {
        cos = call.cos + call.positions[token] * call.half;
        sin = call.sin + call.positions[token] * call.half;
        for (int h = 0; h < call.heads; h++) {
            T* q = static_cast<T*>(call.q) + token * call.q_token + h * call.q_head;
            rotate(q, q, cos, sin, call.half, call.d);
        }
    }
    if (at < 0) return;  // a row of nobody
    const int64_t place = at / call.block_size * call.block + at % call.block_size * call.slot;
    for (int h = 0; h < call.kv_heads; h++) {
        const T* k = static_cast<const T*>(call.k) + token * call.k_token + h * call.k_head;
        const T* v = static_cast<const T*>(call.v) + token * call.v_token + h * call.v_head;
        T* key = static_cast<T*>(call.keys) + place + h * call.head;
        if (cos != nullptr)
            rotate(k, key, cos, sin, call.half, call.d);
        else
            std::memcpy(key, k, sizeof(T) * call.d);
        std::memcpy(static_cast<T*>(call.values) + place + h * call.head, v, sizeof(T) * call.d);
    }
}

template <typename T>
void norm(const void* x, void* residual, const void* weight, void* out, int64_t rows, int64_t d, float eps,
          int threads) {
    for_each(int(rows), threads_for(rows * d, threads), [&](int64_t row) {
        T* kept = residual == nullptr ? nullptr : static_cast<T*>(residual) + row * d;
        norm_row(static_cast<const T*>(x) + row * d, kept, static_cast<const T*>(weight),
                 static_cast<T*>(out) + row * d, d, eps);
    });
}

template <typename T>
void silu_mul(const void* x, void* out, int64_t rows, int64_t d, int threads) {
    for_each(int(rows), threads_for(rows * d, threads), [&](int64_t row) {
        const T* gate = static_cast<const T*>(x) + row * 2 * d;
        silu_row(gate, gate + d, static_cast<T*>(out) + row * d, d);
    });
}

}  // namespace

extern "C" {

// x, out: [rows, d]. residual: null, or [rows, d], to which x is added first.
void yaie_rms_norm(const void* x, void* residual, const void* weight, void* out, int64_t rows, int64_t d,
                   float eps, int is_bfloat16, int threads) {
    (is_bfloat16 ? norm<BFloat16> : norm<float>)(x, residual, weight, out, rows, d, eps, threads);
}

// x: [rows, 2 * d], out: [rows, d].
void yaie_silu_mul(const void* x, void* out, int64_t rows, int64_t d, int is_bfloat16, int threads) {
    (is_bfloat16 ? silu_mul<BFloat16> : silu_mul<float>)(x, out, rows, d, threads);
}

void yaie_rotate_and_store(const RotateAndStore* call) {
    const int64_t numbers = int64_t(call->tokens) * (call->heads + 2 * call->kv_heads) * call->d;
    for_each(call->tokens, threads_for(numbers, call->threads), [&](int token) {
        call->is_bfloat16 ? rotate_and_store<BFloat16>(*call, token) : rotate_and_store<float>(*call, token);
    });
}
}
