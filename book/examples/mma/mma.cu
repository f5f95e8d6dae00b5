// Scores of queries and keys on tensor cores, one mma.sync after the other. Run by tensor_cores.py.
#include "yaie.cuh"

#ifdef YAIE_ON_CPU
#include "on_cpu.cuh"
#else
// ANCHOR: instruction
// c += a times b. A lane hands in its registers of the three tiles; one of a or b has two numbers.
__device__ void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// ANCHOR_END: instruction
#endif

// ANCHOR: scores
// Two neighbouring numbers of a row, as the instruction takes them: one register.
__device__ uint32_t pair(const __nv_bfloat16* row) {
    return *reinterpret_cast<const uint32_t*>(row);
}

// A warp's 16 queries times its 8 keys. A row has d numbers, a multiple of 16, without gaps.
__global__ void scores_of_a_warp(const __nv_bfloat16* queries, const __nv_bfloat16* keys,
                                 float* scores, int64_t num_keys, int64_t d) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;  // as in the table
    const __nv_bfloat16* upper = queries + (16 * blockIdx.y + g) * d;  // row g of A
    const __nv_bfloat16* lower = upper + 8 * d;                        // row g + 8
    const __nv_bfloat16* key = keys + (8 * blockIdx.x + g) * d;        // column g of B
    float c[4] = {0, 0, 0, 0};
    for (int64_t i = 2 * t; i < d; i += 16) {
        const uint32_t a[4] = {pair(upper + i), pair(lower + i),
                               pair(upper + i + 8), pair(lower + i + 8)};
        const uint32_t b[2] = {pair(key + i), pair(key + i + 8)};
        mma(c, a, b);
    }
    float* out = scores + (16 * blockIdx.y + g) * num_keys + 8 * blockIdx.x + 2 * t;
    out[0] = c[0];
    out[1] = c[1];
    out[8 * num_keys] = c[2];
    out[8 * num_keys + 1] = c[3];
}
// ANCHOR_END: scores

YAIE_API int score(const void* queries, const void* keys, float* scores, int64_t num_queries,
                   int64_t num_keys, int64_t d, cudaStream_t stream) {
    const dim3 grid(int(num_keys / 8), int(num_queries / 16));
    return launch(scores_of_a_warp, grid, 32, 0, stream, static_cast<const __nv_bfloat16*>(queries),
                  static_cast<const __nv_bfloat16*>(keys), scores, num_keys, d);
}
