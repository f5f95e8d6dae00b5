// What ../../include/yaie.cuh is for nvcc, for an ordinary C++ compiler: the same names, run by the
// runtime of this folder.
#pragma once

#include <cstdint>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

#define YAIE_API extern "C" __attribute__((visibility("default")))

// Ends the call, whether kernel or host code runs; Python raises NotImplementedError(message).
#define NOT_IMPLEMENTED(message) yaie_stop(9, message, __FILE__, __LINE__)

#include "dtypes.cuh"

// A smaller number of the same meaning: a kernel that leaves out what is beyond its grid shows it with a
// thousand blocks. Grids up to CUDA's own limit run here as well.
#define YAIE_LARGEST_GRID_YZ 1023

template <typename... Parameters, typename... Arguments>
int launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
           cudaStream_t stream, Arguments... arguments) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return 0;
    auto body = [=] { kernel(Parameters(arguments)...); };
    using Body = decltype(body);
    void (*run)(const void*) = [](const void* self) { (*static_cast<const Body*>(self))(); };
    return yaie_launch(reinterpret_cast<const void*>(kernel), {grid.x, grid.y, grid.z},
                       {block.x, block.y, block.z}, shared_bytes, stream, run, &body, sizeof body);
}
