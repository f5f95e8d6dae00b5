// What every .cu file of the labs includes: CUDA itself, and what makes one file run both on a
// GPU and, compiled by an ordinary C++ compiler against on_cpu/include/yaie.cuh, on a CPU.
//
//   YAIE_API                 marks a host function that Python calls. All its arguments are pointers,
//                            int64_t and float; the last is the stream; it returns 0 or a CUDA error.
//   launch(kernel, grid, block, shared_bytes, stream, arguments...)
//                            starts a kernel, as kernel<<<...>>>(...) would; returns 0 or a CUDA error.
//   YAIE_LARGEST_GRID_YZ     the most blocks of a grid in y, and in z; in x they are 2^31 - 1.
//   DISPATCH(dtype, T, ...)  runs the statements with T as float, __half or __nv_bfloat16.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define YAIE_API extern "C" __attribute__((visibility("default")))

// A stub's body, of a kernel or of a host function. It compiles, and never runs: a library with one is
// refused before it is called.
#define NOT_IMPLEMENTED(message) not_implemented()

[[noreturn]] __host__ __device__ inline void not_implemented() {
#ifdef __CUDA_ARCH__
    __trap();
#else
    abort();
#endif
}

// The words for an error that a function of the library returned.
extern "C" __attribute__((visibility("default"), weak)) const char* yaie_error_string(int code) {
    return cudaGetErrorString(cudaError_t(code));
}

#include "dtypes.cuh"

#define YAIE_LARGEST_GRID_YZ 65535

constexpr int SHARED_WITHOUT_ASKING = 48 * 1024;

template <typename... Parameters, typename... Arguments>
int launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
           cudaStream_t stream, Arguments... arguments) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return 0;
    if (shared_bytes > SHARED_WITHOUT_ASKING) {
        cudaError_t error = cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes));
        if (error != cudaSuccess) return int(error);
    }
    kernel<<<grid, block, shared_bytes, stream>>>(Parameters(arguments)...);
    return int(cudaGetLastError());
}
