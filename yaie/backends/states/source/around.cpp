// What stands around the rules in a layer: the delta rule's inputs, and the gated norm behind it. Rounded
// where PyTorch rounds.

#include <cmath>

#include "threads.h"
#include "vectors.h"

// See `library.py`. Strides are in elements; the numbers of a head are next to each other.
struct DeltaInputs {
    void *q_out, *k_out;  // [tokens, heads, d]
    float *log_decay, *beta;  // [tokens, v_heads]
    const void *q, *k, *a, *b;
    const float *log_a, *dt_bias;
    int64_t q_token, q_head, k_token, k_head, a_token, b_token;
    float length, eps;
    int32_t tokens, heads, v_heads, d, is_bfloat16, threads;
};

struct GatedNorm {
    void* out;  // [tokens, rows, d]
    const void *x, *gate, *weight;
    int64_t x_token, x_row, gate_token, weight_row;
    float eps;
    int32_t tokens, rows, d, gate_first, is_bfloat16, threads;
};

namespace {

constexpr int64_t WORTH_A_THREAD = 1 << 13;  // numbers

template <typename T>
void scale_to(const T* x, T* to, int64_t d, float length, float eps) {
    Floats squares{};
    for (int64_t i = 0; i < d; i += LANES) {
        const Floats one = load_some(x + i, int(d - i));
        squares += one * one;
    }
    const float factor = length / std::sqrt(sum_of(squares) + eps);
    for (int64_t i = 0; i < d; i += LANES) store_some(to + i, load_some(x + i, int(d - i)) * factor, d - i);
}

template <typename T>
void inputs_of(const DeltaInputs& call, int64_t t) {
    for (int64_t h = 0; h < call.heads; h++) {
        const int64_t to = (t * call.heads + h) * call.d;
        const T* q = static_cast<const T*>(call.q) + t * call.q_token + h * call.q_head;
        const T* k = static_cast<const T*>(call.k) + t * call.k_token + h * call.k_head;
        scale_to(q, static_cast<T*>(call.q_out) + to, call.d, call.length, call.eps);
        scale_to(k, static_cast<T*>(call.k_out) + to, call.d, 1.0f, call.eps);
    }
    for (int64_t h = 0; h < call.v_heads; h++) {
        const int64_t to = t * call.v_heads + h;
        const float a = load_one(static_cast<const T*>(call.a) + t * call.a_token + h) + call.dt_bias[h];
        const float b = load_one(static_cast<const T*>(call.b) + t * call.b_token + h);
        const float softplus = a > 20.0f ? a : std::log1p(std::exp(a));
        call.log_decay[to] = -std::exp(call.log_a[h]) * softplus;
        T rounded;
        store_one(&rounded, 1.0f / (1.0f + std::exp(-b)));
        call.beta[to] = load_one(&rounded);
    }
}

template <typename T>
void norm_row(const GatedNorm& call, int64_t t, int64_t row) {
    const int64_t d = call.d;
    const T* x = static_cast<const T*>(call.x) + t * call.x_token + row * call.x_row;
    const T* gate = static_cast<const T*>(call.gate) + t * call.gate_token + row * d;
    const T* weight = static_cast<const T*>(call.weight) + row * call.weight_row;
    T* out = static_cast<T*>(call.out) + (t * call.rows + row) * d;
    const auto factor = [&](int64_t i) { return silu_of(load_some(gate + i, int(d - i))); };
    const auto value = [&](int64_t i) {
        const Floats one = load_some(x + i, int(d - i));
        return call.gate_first ? one * factor(i) : one;
    };
    Floats squares{};
    for (int64_t i = 0; i < d; i += LANES) {
        const Floats one = value(i);
        squares += one * one;
    }
    const float scale = 1.0f / std::sqrt(sum_of(squares) / float(d) + call.eps);
    for (int64_t i = 0; i < d; i += LANES) {
        Floats one = rounded<T>(value(i) * scale) * load_some(weight + i, int(d - i));
        if (!call.gate_first) one = rounded<T>(one) * factor(i);
        store_some(out + i, one, d - i);
    }
}

}  // namespace

extern "C" {

void yaie_delta_inputs(const DeltaInputs* call) {
    const int64_t numbers = int64_t(call->tokens) * 2 * call->heads * call->d;
    for_each(call->tokens, at_most(call->threads, numbers / WORTH_A_THREAD + 1), [&](int t) {
        call->is_bfloat16 ? inputs_of<BFloat16>(*call, t) : inputs_of<float>(*call, t);
    });
}

void yaie_gated_norm(const GatedNorm* call) {
    const int64_t numbers = int64_t(call->tokens) * call->rows * call->d;
    for_each(call->tokens * call->rows, at_most(call->threads, numbers / WORTH_A_THREAD + 1), [&](int i) {
        const int64_t t = i / call->rows, row = i % call->rows;
        call->is_bfloat16 ? norm_row<BFloat16>(*call, t, row) : norm_row<float>(*call, t, row);
    });
}
}
