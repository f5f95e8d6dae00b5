// A unit is a struct of W bytes, and the launcher goes from width to width by itself; the reference
// has CUDA's vector types and a macro.
#include "copy.cuh"

template <int W> struct alignas(W) Bytes {
    unsigned char at[W];
};

template <int W>
__global__ void store_bytes(const unsigned char* k, const unsigned char* v, unsigned char* keys,
                            unsigned char* values, const int64_t* slots, int64_t tokens,
                            int64_t row_bytes, int64_t k_stride, int64_t v_stride) {
    using Unit = Bytes<W>;
    const int64_t per_row = row_bytes / W;
    const unsigned char* const from[] = {k, v};
    unsigned char* const to[] = {keys, values};
    const int64_t strides[] = {k_stride, v_stride};
    // Which of the two, which token, and which unit, by number.
    int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (n >= 2 * tokens * per_row) return;
    const int64_t unit = n % per_row, token = n / per_row % tokens, which = n / per_row / tokens;
    const int64_t slot = slots[token];
    if (slot < 0) return;
    const Unit got =
        *reinterpret_cast<const Unit*>(from[which] + token * strides[which] + unit * W);
    *reinterpret_cast<Unit*>(to[which] + slot * row_bytes + unit * W) = got;
}

template <int W, typename... Arguments>
static int store_in(int64_t width, int64_t bytes, cudaStream_t stream, Arguments... arguments) {
    if constexpr (W > 1) {
        if (width < W) return store_in<W / 2>(width, bytes, stream, arguments...);
    }
    return launch(store_bytes<W>, dim3(ceil_div(bytes / W, 192)), dim3(192), 0, stream,
                  arguments...);
}

YAIE_API int store_kv(const void* k, const void* v, void* key_blocks, void* value_blocks,
                      const int64_t* slot_mapping, int64_t tokens, int64_t row_bytes,
                      int64_t k_stride, int64_t v_stride, cudaStream_t stream) {
    using Byte = unsigned char;
    const int64_t width = widest_copy({address(k), address(v), address(key_blocks),
                                       address(value_blocks), row_bytes, k_stride, v_stride});
    return store_in<16>(width, 2 * tokens * row_bytes, stream, static_cast<const Byte*>(k),
                        static_cast<const Byte*>(v), static_cast<Byte*>(key_blocks),
                        static_cast<Byte*>(value_blocks), slot_mapping, tokens, row_bytes,
                        k_stride, v_stride);
}
