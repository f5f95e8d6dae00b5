// The longest common prefix by a warp for each row, without shared memory.
#include "paged.cuh"

__global__ void prefix_kernel(const int *tokens, int length, const int *keys, int64_t key_stride,
                              const int *key_lens, int *out, int rows) {
    const int row = blockIdx.x * (THREADS / WARP) + int(threadIdx.x) / WARP;
    const int lane = int(threadIdx.x) % WARP;
    if (row >= rows) return;
    const int limit = min(length, key_lens[row]);
    int first = 0;
    for (; first < limit; first += WARP) {
        const int i = first + lane;
        const bool same = i < limit && tokens[i] == keys[row * key_stride + i];
        const unsigned votes = __ballot_sync(ALL_LANES, same);
        if (votes != ALL_LANES) {
            first += __ffs(int(~votes)) - 1;
            break;
        }
    }
    if (lane == 0) out[row] = min(first, limit);
}

YAIE_API int longest_common_prefix(const int *tokens, const int *keys, const int *key_lens,
                                   int *out, int64_t length, int64_t key_stride, int64_t n,
                                   cudaStream_t stream) {
    const int warps = THREADS / WARP;
    return launch(prefix_kernel, dim3((n + warps - 1) / warps), dim3(THREADS), 0, stream, tokens,
                  length, keys, key_stride, key_lens, out, n);
}
