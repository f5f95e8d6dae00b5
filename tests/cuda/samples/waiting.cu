// Barriers and warps in which not all take part, loops without an end, what C++ leaves undefined.
#include "yaie.cuh"

__global__ void return_early(float* out, int n) {
    if (int(threadIdx.x) >= n) return;
    __syncthreads();
    out[threadIdx.x] = 1.0f;
}
YAIE_API int barrier_after_return(float* out, int64_t n, cudaStream_t stream) {
    return launch(return_early, 1, 64, 0, stream, out, int(n));
}

__global__ void two_barriers(float* out) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        out[threadIdx.x] = 1.0f;
        __syncthreads();
    }
}
YAIE_API int barrier_in_a_branch(float* out, cudaStream_t stream) {
    return launch(two_barriers, 1, 64, 0, stream, out);
}

__global__ void shuffle_after_return(float* out, int n) {
    if (int(threadIdx.x) >= n) return;
    out[threadIdx.x] = __shfl_xor_sync(0xffffffff, float(threadIdx.x), 1);
}
YAIE_API int lanes_that_returned(float* out, int64_t n, cudaStream_t stream) {
    return launch(shuffle_after_return, 1, 32, 0, stream, out, int(n));
}

__global__ void shuffle_in_a_branch(float* out) {
    float value = float(threadIdx.x);
    if (threadIdx.x % 2 == 0) value = __shfl_xor_sync(0xffffffff, value, 2);
    __syncthreads();
    out[threadIdx.x] = value;
}
YAIE_API int lanes_at_a_barrier(float* out, cudaStream_t stream) {
    return launch(shuffle_in_a_branch, 1, 32, 0, stream, out);
}

// The mask is asked for before the lanes part: it names lanes that never vote.
__global__ void vote_after_parting(float* out) {
    const unsigned int mask = __activemask();
    if (threadIdx.x < 16) out[threadIdx.x] = float(__popc(__ballot_sync(mask, 1)));
}
YAIE_API int active_before_the_branch(float* out, cudaStream_t stream) {
    return launch(vote_after_parting, 1, 32, 0, stream, out);
}

__global__ void vote_in_a_branch(float* out) {
    if (threadIdx.x < 16) out[threadIdx.x] = float(__popc(__ballot_sync(__activemask(), 1)));
}
YAIE_API int active_in_the_branch(float* out, cudaStream_t stream) {
    return launch(vote_in_a_branch, 1, 32, 0, stream, out);
}

__global__ void shuffle_from_outside(float* out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_down_sync(0xffff, float(threadIdx.x), 8);
}
YAIE_API int lane_not_in_mask(float* out, cudaStream_t stream) {
    return launch(shuffle_from_outside, 1, 32, 0, stream, out);
}

__global__ void endless(float* out, int step) {
    float sum = 0.0f;
    for (int offset = 16; offset >= 0; offset /= step) sum += float(offset);
    out[0] = sum;
}
YAIE_API int runaway(float* out, cudaStream_t stream) {
    return launch(endless, 1, 1, 0, stream, out, 2);
}
YAIE_API int divides_by_zero(float* out, cudaStream_t stream) {
    return launch(endless, 1, 1, 0, stream, out, 0);
}

__global__ void overflow(int* out, int big) { out[0] = big * big; }
YAIE_API int overflows(int* out, cudaStream_t stream) {
    return launch(overflow, 1, 1, 0, stream, out, 100000);
}
__global__ void shift(int* out, int by) { out[0] = 1 << by; }
YAIE_API int shifts_too_far(int* out, cudaStream_t stream) {
    return launch(shift, 1, 1, 0, stream, out, 40);
}

__global__ void unwritten(float*) { NOT_IMPLEMENTED("waiting task 1.2: not implemented yet"); }
YAIE_API int stub_kernel(float* out, cudaStream_t stream) {
    return launch(unwritten, 1, 32, 0, stream, out);
}
YAIE_API int stub_launcher(float*, cudaStream_t) {
    NOT_IMPLEMENTED("waiting task 1.1: not implemented yet");
    return 0;
}

__global__ void nothing(float*) {}
YAIE_API int with_threads(float* out, int64_t blocks, int64_t threads, int64_t shared,
                          cudaStream_t stream) {
    return launch(nothing, int(blocks), int(threads), shared, stream, out);
}
YAIE_API int on_another_stream(float* out, cudaStream_t) {
    return launch(nothing, 1, 32, 0, nullptr, out);
}
YAIE_API int returns_an_error(float*, cudaStream_t) { return 700; }
YAIE_API int host_crash(float* out, cudaStream_t stream) {
    volatile int* nowhere = nullptr;
    return *nowhere + launch(nothing, 1, 1, 0, stream, out);
}
__global__ void fails(float*) { __trap(); }
YAIE_API int trap(float* out, cudaStream_t stream) { return launch(fails, 1, 1, 0, stream, out); }
