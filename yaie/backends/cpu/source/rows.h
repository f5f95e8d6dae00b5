// A row's norm and its activation. What PyTorch rounds between two of its operations is rounded here too.
#pragma once

#include <cmath>

#include "vectors.h"

template <typename T>
inline void norm_row(const T* x, T* residual, const T* weight, T* out, int64_t d, float eps) {
    Floats squares{};
    for (int64_t i = 0; i < d; i += LANES) {
        Floats one = load_some(x + i, d - i);
        if (residual != nullptr) {
            one = rounded<T>(one + load_some(residual + i, d - i));
            store_some(residual + i, one, d - i);
        }
        squares += one * one;
    }
    float total = 0.0f;
    for (int i = 0; i < LANES; i++) total += squares[i];
    const float factor = 1.0f / std::sqrt(total / float(d) + eps);
    const T* from = residual != nullptr ? residual : x;
    for (int64_t i = 0; i < d; i += LANES) {
        const Floats one = rounded<T>(load_some(from + i, d - i) * factor);
        store_some(out + i, one * load_some(weight + i, d - i), d - i);
    }
}

template <typename T>
inline void silu_row(const T* gate, const T* up, T* out, int64_t d) {
    for (int64_t i = 0; i < d; i += LANES) {
        const Floats silu = rounded<T>(silu_of(load_some(gate + i, d - i)));
        store_some(out + i, silu * load_some(up + i, d - i), d - i);
    }
}
