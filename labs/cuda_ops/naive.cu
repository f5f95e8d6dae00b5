// The same operations as they come to mind first: one thread for each row, or for each number.
// Right, and many times too slow. The kernels of the other files are held against them.
#include "pack.cuh"

constexpr int64_t THREADS = 128;

// ANCHOR: naive_rms_norm
// Thread r norms row r: no thread needs another. Rows lie d apart.
template <typename T>
__global__ void naive_rms_norm_kernel(const T* x, const T* weight, T* out, int64_t count, int64_t d,
                                      float eps) {
    const int64_t r = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (r >= count) return;
    float squares = 0.0f;
    for (int64_t i = 0; i < d; ++i) squares += to_float(x[r * d + i]) * to_float(x[r * d + i]);
    const float scale = rsqrtf(squares / d + eps);
    for (int64_t i = 0; i < d; ++i) {
        const T rounded = from_float<T>(to_float(x[r * d + i]) * scale);
        out[r * d + i] = from_float<T>(to_float(rounded) * to_float(weight[i]));
    }
}
// ANCHOR_END: naive_rms_norm

YAIE_API int naive_rms_norm(const void* x, const void* weight, void* out, int64_t count, int64_t d,
                            float eps, int64_t dtype, cudaStream_t stream) {
    int error = 0;
    DISPATCH(dtype, T,
             error = launch(naive_rms_norm_kernel<T>, dim3(ceil_div(count, THREADS)), dim3(THREADS),
                            0, stream, (const T*)x, (const T*)weight, (T*)out, count, d, eps));
    return error;
}

// ANCHOR: naive_add
// Thread i adds x[i] to residual[i], all of which are `size`.
template <typename T> __global__ void naive_add_kernel(const T* x, T* residual, int64_t size) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < size) residual[i] = from_float<T>(to_float(residual[i]) + to_float(x[i]));
}
// ANCHOR_END: naive_add

YAIE_API int naive_add(const void* x, void* residual, int64_t size, int64_t dtype,
                       cudaStream_t stream) {
    int error = 0;
    DISPATCH(dtype, T,
             error = launch(naive_add_kernel<T>, dim3(ceil_div(size, THREADS)), dim3(THREADS), 0,
                            stream, (const T*)x, (T*)residual, size));
    return error;
}

// ANCHOR: naive_silu_mul
// Thread i writes out[i]; x: [count, 2 * d].
template <typename T>
__global__ void naive_silu_mul_kernel(const T* x, T* out, int64_t count, int64_t d) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count * d) return;
    const int64_t gate = i / d * 2 * d + i % d;
    const float g = to_float(x[gate]);
    const T silu = from_float<T>(g / (1.0f + expf(-g)));
    out[i] = from_float<T>(to_float(silu) * to_float(x[gate + d]));
}
// ANCHOR_END: naive_silu_mul

YAIE_API int naive_silu_mul(const void* x, void* out, int64_t count, int64_t d, int64_t dtype,
                            cudaStream_t stream) {
    int error = 0;
    DISPATCH(dtype, T,
             error = launch(naive_silu_mul_kernel<T>, dim3(ceil_div(count * d, THREADS)),
                            dim3(THREADS), 0, stream, (const T*)x, (T*)out, count, d));
    return error;
}

// ANCHOR: naive_rope
// Thread n turns pair n % half of head n / half, counted over all tokens; x: [tokens, heads, d].
template <typename T>
__global__ void naive_rope_kernel(T* x, const int64_t* positions, const float* cos,
                                  const float* sin, int64_t tokens, int64_t heads, int64_t d,
                                  int64_t half, int64_t stride) {
    const int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (n >= tokens * heads * half) return;
    const int64_t i = n % half, head = n / half % heads, token = n / half / heads;
    T* pair = x + token * stride + head * d + i;
    const float c = cos[positions[token] * half + i], s = sin[positions[token] * half + i];
    const float first = to_float(pair[0]), second = to_float(pair[half]);
    pair[0] = from_float<T>(first * c - second * s);
    pair[half] = from_float<T>(second * c + first * s);
}
// ANCHOR_END: naive_rope

YAIE_API int naive_rope(void* x, const int64_t* positions, const float* cos, const float* sin,
                        int64_t tokens, int64_t heads, int64_t d, int64_t half, int64_t stride,
                        int64_t dtype, cudaStream_t stream) {
    int error = 0;
    const int64_t pairs = tokens * heads * half;
    DISPATCH(dtype, T,
             error = launch(naive_rope_kernel<T>, dim3(ceil_div(pairs, THREADS)), dim3(THREADS), 0,
                            stream, (T*)x, positions, cos, sin, tokens, heads, d, half, stride));
    return error;
}

// ANCHOR: naive_store
// Thread n stores number n % row of token n / row; x: [tokens, row].
template <typename T>
__global__ void naive_store_kernel(const T* x, T* blocks, const int64_t* slot_mapping,
                                   int64_t tokens, int64_t row, int64_t stride) {
    const int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (n >= tokens * row || slot_mapping[n / row] < 0) return;
    blocks[slot_mapping[n / row] * row + n % row] = x[n / row * stride + n % row];
}
// ANCHOR_END: naive_store

YAIE_API int naive_store(const void* x, void* blocks, const int64_t* slot_mapping, int64_t tokens,
                         int64_t row, int64_t stride, int64_t dtype, cudaStream_t stream) {
    int error = 0;
    DISPATCH(dtype, T,
             error = launch(naive_store_kernel<T>, dim3(ceil_div(tokens * row, THREADS)),
                            dim3(THREADS), 0, stream, (const T*)x, (T*)blocks, slot_mapping, tokens,
                            row, stride));
    return error;
}
