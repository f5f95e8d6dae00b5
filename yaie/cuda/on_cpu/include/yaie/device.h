// CUDA's qualifiers, indices, barriers and fences.
#pragma once

#include "runtime.h"
#include "vectors.h"

#define __global__
#ifdef YAIE_INLINED  // see build.py
#define __device__ __attribute__((always_inline))
#else
#define __device__
#endif
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
// One copy will do, as one block runs at a time; what it holds at the start of a block counts as not
// written. `used`: the runtime reads and writes it behind the compiler's back.
#define __shared__ static __attribute__((used))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#ifndef __CUDA_ARCH__
#define YAIE_ON_CPU 1
#endif

YAIE_INLINE uint3 yaie_uint3(YaieIndex i) { return {i.x, i.y, i.z}; }
#define threadIdx (yaie_uint3(yaie_thread_index()))
#define blockIdx (yaie_uint3(yaie_block_index()))
#define blockDim (dim3(yaie_uint3(yaie_block_size())))
#define gridDim (dim3(yaie_uint3(yaie_grid_size())))
constexpr int warpSize = 32;

// The file and line of the caller travel along as default arguments: two barriers are the same one if
// they stand on the same line.
#define YAIE_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(YAIE_HERE) { yaie_barrier(0, 0, "__syncthreads()", file, line); }
inline int __syncthreads_count(int predicate, YAIE_HERE) {
    return yaie_barrier(0, predicate, "__syncthreads_count()", file, line);
}
inline int __syncthreads_or(int predicate, YAIE_HERE) {
    return yaie_barrier(1, predicate, "__syncthreads_or()", file, line);
}
inline int __syncthreads_and(int predicate, YAIE_HERE) {
    return yaie_barrier(2, predicate, "__syncthreads_and()", file, line);
}

inline void __threadfence() { yaie_fence(); }
inline void __threadfence_system() { yaie_fence(); }
inline void __threadfence_block() {}

inline void __trap(YAIE_HERE) { yaie_stop(14, "__trap()", file, line); }
inline void __nanosleep(unsigned int) {}

// Loads and stores that on a GPU only differ in which cache keeps them.
template <typename T> YAIE_INLINE T __ldg(const T* p) { return *p; }
template <typename T> YAIE_INLINE T __ldcs(const T* p) { return *p; }
template <typename T> YAIE_INLINE T __ldcg(const T* p) { return *p; }
template <typename T> YAIE_INLINE T __ldca(const T* p) { return *p; }
template <typename T> YAIE_INLINE T __ldlu(const T* p) { return *p; }
template <typename T> YAIE_INLINE T __ldcv(const T* p) { return *p; }
template <typename T> void __stcs(T* p, T value) { *p = value; }
template <typename T> void __stcg(T* p, T value) { *p = value; }
template <typename T> void __stwb(T* p, T value) { *p = value; }
template <typename T> void __stwt(T* p, T value) { *p = value; }
