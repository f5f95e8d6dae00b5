// The device vocabulary that the labs may use, each with a result that is checked.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "yaie.cuh"

constexpr int N = 32;
__constant__ const float WEIGHTS[4] = {1.0f, 2.0f, 4.0f, 8.0f};
__device__ float counter = 0.0f;

template <typename T, int SIZE> struct alignas(sizeof(T) * SIZE) Pack {
    T value[SIZE];
};

// Structs that functions return and the caller stores at once.
__device__ Pack<float, 4> doubled(const Pack<float, 4>& x) {
    Pack<float, 4> y;
    for (int i = 0; i < 4; ++i) y.value[i] = 2.0f * x.value[i];
    return y;
}
__device__ __half rounded(float x) { return from_float<__half>(x); }
__global__ void store_structs(const float* x, float* out, __half* small) {
    using Four = Pack<float, 4>;
    const int i = threadIdx.x;
    reinterpret_cast<Four*>(out)[i] = doubled(reinterpret_cast<const Four*>(x)[i]);
    small[i] = rounded(x[i]);
}
YAIE_API int store_returned_structs(const float* x, float* out, __half* small, cudaStream_t stream) {
    return launch(store_structs, 1, 8, 0, stream, x, out, small);
}

// out[k * 32 + lane]: result k of a lane.
__global__ void warp_operations(float* out) {
    const int lane = threadIdx.x;
    const float x = float(lane);
    int k = 0;
    auto put = [&](float value) { out[k++ * N + lane] = value; };
    put(__shfl_sync(0xffffffff, x, 5));
    put(__shfl_sync(0xffffffff, x, 1, 8));
    put(__shfl_up_sync(0xffffffff, x, 2));
    put(__shfl_down_sync(0xffffffff, x, 2));
    put(__shfl_down_sync(0xffffffff, x, 2, 4));
    put(__shfl_xor_sync(0xffffffff, x, 16));
    put(float(__ballot_sync(0xffffffff, lane < 3)));
    put(float(__any_sync(0xffffffff, lane == 7)));
    put(float(__all_sync(0xffffffff, lane < 31)));
    put(float(__reduce_add_sync(0xffffffff, lane)));
    put(float(__reduce_max_sync(0xffffffff, lane - 40)));
    put(float(__reduce_min_sync(0xffffffff, unsigned(lane + 3))));
    put(float(__match_any_sync(0xffffffff, lane / 16) & 0xff));
    if (lane < 16) put(__shfl_xor_sync(0x0000ffff, x, 1));
    else put(__shfl_xor_sync(0xffff0000, x, 2));
    put(float(__shfl_xor_sync(0xffffffff, (long long)lane << 33, 1) >> 33));
    put(to_float(__shfl_xor_sync(0xffffffff, from_float<__half>(x), 1)));
    put(float(__popc(__activemask())));
}
YAIE_API int warp_results(float* out, cudaStream_t stream) {
    return launch(warp_operations, 1, N, 0, stream, out);
}

__device__ __noinline__ float twice(float x) { return 2.0f * x; }
__device__ __forceinline__ float half_of(float x) { return 0.5f * x; }

__global__ void __launch_bounds__(32) number_functions(float* out, const float* __restrict__ x) {
    if (threadIdx.x > 0) return;
    int k = 0;
    auto put = [&](float value) { out[k++] = value; };
    put(rsqrtf(4.0f));
    put(exp2f(3.0f));
    put(__expf(0.0f));
    put(__logf(1.0f));
    put(__fdividef(1.0f, 4.0f));
    put(__int_as_float(__float_as_int(1.5f)));
    put(float(__popc(0xffu)));
    put(float(__clz(1)));
    put(float(__ffs(8)));
    put(fmaxf(1.0f, max(2.0f, float(min(3, 4)))));
    put(__ldg(x + 1));
    put(twice(half_of(3.0f)));
    put(WEIGHTS[int(x[1])]);
    put(float(warpSize));
    put(float(__umulhi(1u << 31, 4u)));
    put(to_float(__hadd(__float2half(1.0f), __float2half(2.0f))));
    put(to_float(__hfma(__float2bfloat16(2.0f), __float2bfloat16(3.0f), __float2bfloat16(1.0f))));
    const float2 both = __half22float2(__floats2half2_rn(1.0f, 2.0f));
    put(both.x + both.y);
    const __nv_bfloat162 pair = __floats2bfloat162_rn(3.0f, 4.0f);
    put(__low2float(pair) * __high2float(pair));
    counter += 1.0f;
    put(counter);
    const auto pack = *reinterpret_cast<const Pack<float, 4>*>(x);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += pack.value[i];
    put(sum);
}
YAIE_API int number_results(float* out, const float* x, cudaStream_t stream) {
    return launch(number_functions, 1, 32, 0, stream, out, x);
}

template <typename T> __global__ void round_all(const float* x, T* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = from_float<T>(x[i]);
}
YAIE_API int round_to(const float* x, void* out, int64_t n, int64_t dtype, cudaStream_t stream) {
    int code = 0;
    DISPATCH(dtype, T,
             code = launch(round_all<T>, int((n + 127) / 128), 128, 0, stream, x,
                           static_cast<T*>(out), n));
    return code;
}

__global__ void atomics(int* out, unsigned long long* wide, float* real) {
    atomicAdd(&out[0], 1);
    atomicMax(&out[1], int(threadIdx.x));
    atomicMin(&out[2], -int(threadIdx.x));
    atomicOr(&out[3], 1 << (threadIdx.x % 8));
    atomicCAS(&out[4], 0, 7);
    atomicExch(&out[5], 3);
    atomicAdd(wide, 1ull);
    atomicAdd(real, 0.5f);
}
YAIE_API int atomic_results(int* out, void* wide, float* real, cudaStream_t stream) {
    return launch(atomics, 2, 32, 0, stream, out, static_cast<unsigned long long*>(wide), real);
}

// A grid and blocks of three dimensions; every thread says who it is.
__global__ void positions(int* out) {
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int size = blockDim.x * blockDim.y * blockDim.z;
    out[block * size + thread] = block * 1000 + thread;
}
YAIE_API int all_positions(int* out, cudaStream_t stream) {
    return launch(positions, dim3(2, 3, 2), dim3(4, 2, 3), 0, stream, out);
}

__global__ void vote_of_block(int* out) {
    const int count = __syncthreads_count(threadIdx.x % 3 == 0);
    const int any = __syncthreads_or(threadIdx.x == 63);
    const int all = __syncthreads_and(threadIdx.x < 63);
    if (threadIdx.x == 0) out[0] = count, out[1] = any, out[2] = all;
}
YAIE_API int block_votes(int* out, cudaStream_t stream) {
    return launch(vote_of_block, 1, 64, 0, stream, out);
}

// Which thread came as the how manyth: the seed's order.
__global__ void arrivals(int* out, int* next) { out[atomicAdd(next, 1)] = threadIdx.x; }
YAIE_API int arrival_order(int* out, int* next, cudaStream_t stream) {
    return launch(arrivals, 1, 64, 0, stream, out, next);
}

__global__ void scale(float* x, int n, float by, float plus) {
    const int i = threadIdx.x;
    if (i < n) x[i] = x[i] * by + plus;
}
YAIE_API int many_arguments(int64_t a, float f, int64_t b, float* x, float g, int64_t c, int64_t d,
                            int64_t n, float* y, int64_t e, cudaStream_t stream) {
    const int code = launch(scale, 1, 32, 0, stream, x, n, f, g);
    if (code) return code;
    return launch(scale, 1, 32, 0, stream, y, n, f, float(a + b + c + d + e));
}
