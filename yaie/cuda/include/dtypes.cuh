// The number types of tensors, the same for nvcc and for the CPU; included by either's yaie.cuh.
#pragma once

constexpr int64_t FLOAT32 = 0, FLOAT16 = 1, BFLOAT16 = 2;

#define DISPATCH(dtype, T, ...)                                                                    \
    do {                                                                                           \
        if ((dtype) == FLOAT32) { using T = float; __VA_ARGS__; }                                  \
        else if ((dtype) == FLOAT16) { using T = __half; __VA_ARGS__; }                            \
        else { using T = __nv_bfloat16; __VA_ARGS__; }                                             \
    } while (0)

__host__ __device__ inline float to_float(float x) { return x; }
__host__ __device__ inline float to_float(__half x) { return __half2float(x); }
__host__ __device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T> __host__ __device__ T from_float(float x);
template <> __host__ __device__ inline float from_float<float>(float x) { return x; }
template <> __host__ __device__ inline __half from_float<__half>(float x) {
    return __float2half_rn(x);
}
template <> __host__ __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}
