// Block (x, y): y says whether its heads are of q, of k or of v, and its threads take units of
// pairs of those by number. The reference's threads go through the heads of all three.
#include <algorithm>

#include "pack.cuh"

constexpr int THREADS = 128;

template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Few {
    T at[N];
};

template <typename T> struct Role {
    const T* from;
    int64_t from_stride, heads;
    T* to;
    int64_t to_stride;
    bool turns, goes_to_slot;
};

template <typename T> struct Roles {
    Role<T> of[3];
    const int64_t *positions, *slots;
    const float *cos, *sin;
    int64_t tokens, d, half;
};

template <typename T, int N> __global__ void roles_kernel(Roles<T> roles) {
    const Role<T> role = roles.of[blockIdx.y];
    const int64_t half = roles.half, pairs = half / N, rest = roles.d / N - 2 * pairs;
    const bool copies_rest = role.goes_to_slot;
    const int64_t units = pairs + (copies_rest ? rest : 0), of_token = role.heads * units;
    const int64_t n = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (n >= roles.tokens * of_token) return;
    const int64_t token = n / of_token, head = n % of_token / units, unit = n % units;
    const int64_t to_row = role.goes_to_slot ? roles.slots[token] : token;
    if (to_row < 0) return;
    const T* from = role.from + token * role.from_stride + head * roles.d;
    T* to = role.to + to_row * role.to_stride + head * roles.d;
    using Unit = Few<T, N>;
    if (unit >= pairs) {
        const int64_t at = 2 * half + (unit - pairs) * N;
        *reinterpret_cast<Unit*>(to + at) = *reinterpret_cast<const Unit*>(from + at);
        return;
    }
    const int64_t at = unit * N, row = roles.positions[token] * half + at;
    Unit first = *reinterpret_cast<const Unit*>(from + at);
    Unit second = *reinterpret_cast<const Unit*>(from + half + at);
    if (role.turns) {
        for (int e = 0; e < N; ++e) {
            const float c = roles.cos[row + e], s = roles.sin[row + e];
            const float a = to_float(first.at[e]), b = to_float(second.at[e]);
            first.at[e] = from_float<T>(fmaf(a, c, -(b * s)));
            second.at[e] = from_float<T>(fmaf(a, s, b * c));
        }
    }
    *reinterpret_cast<Unit*>(to + at) = first;
    *reinterpret_cast<Unit*>(to + half + at) = second;
}

template <typename T>
static int turn(Roles<T> roles, int num_roles, cudaStream_t stream) {
    constexpr int N = Pack<T>::SIZE;
    const int64_t bytes = sizeof(T);
    int64_t bits = (roles.d | roles.half) * bytes, largest = 0;
    for (int i = 0; i < num_roles; ++i) {
        const Role<T>& role = roles.of[i];
        bits |= address(role.from) | address(role.to);
        bits |= (role.from_stride | role.to_stride) * bytes;
        largest = std::max(largest, role.heads);
    }
    const bool fit = packs_fit({bits});
    const int64_t units = num_roles == 3 ? roles.d - roles.half : roles.half;
    const int64_t needed = roles.tokens * largest * units / (fit ? N : 1);
    return launch(fit ? roles_kernel<T, N> : roles_kernel<T, 1>,
                  dim3(ceil_div(needed, THREADS), num_roles), dim3(THREADS), 0, stream, roles);
}

YAIE_API int rope(void* q, void* k, const int64_t* positions, const float* cos, const float* sin,
                  int64_t tokens, int64_t heads, int64_t kv_heads, int64_t d, int64_t half,
                  int64_t q_stride, int64_t k_stride, int64_t dtype, cudaStream_t stream) {
    DISPATCH(dtype, T, {
        const Role<T> of_q{(T*)q, q_stride, heads, (T*)q, q_stride, true, false};
        const Role<T> of_k{(T*)k, k_stride, kv_heads, (T*)k, k_stride, true, false};
        return turn(Roles<T>{{of_q, of_k, of_k}, positions, nullptr, cos, sin, tokens, d, half}, 2,
                    stream);
    });
    return 0;
}

YAIE_API int rope_and_store(void* q, void* k, void* v, const int64_t* positions, const float* cos,
                            const float* sin, void* key_blocks, void* value_blocks,
                            const int64_t* slot_mapping, int64_t tokens, int64_t heads,
                            int64_t kv_heads, int64_t d, int64_t half, int64_t q_stride,
                            int64_t k_stride, int64_t v_stride, int64_t dtype,
                            cudaStream_t stream) {
    const int64_t slot = kv_heads * d;
    DISPATCH(dtype, T, {
        const Role<T> of_q{(T*)q, q_stride, heads, (T*)q, q_stride, true, false};
        const Role<T> of_k{(T*)k, k_stride, kv_heads, (T*)key_blocks, slot, true, true};
        const Role<T> of_v{(T*)v, v_stride, kv_heads, (T*)value_blocks, slot, false, true};
        return turn(
            Roles<T>{{of_q, of_k, of_v}, positions, slot_mapping, cos, sin, tokens, d, half}, 3,
            stream);
    });
    return 0;
}
