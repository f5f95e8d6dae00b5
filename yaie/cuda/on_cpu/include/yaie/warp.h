// Warp shuffles, votes, matches and reductions. `mask` names the lanes that take part: each of them must
// call with the same mask, or the runtime reports the lanes that never came.
#pragma once

#include "device.h"

// The order of CollectiveKind in runtime/threads.h.
enum YaieCollective {
    YAIE_SYNC, YAIE_SHUFFLE, YAIE_BALLOT, YAIE_MATCH_ANY, YAIE_MATCH_ALL,
    YAIE_ADD, YAIE_MIN_SIGNED, YAIE_MAX_SIGNED, YAIE_MIN_UNSIGNED, YAIE_MAX_UNSIGNED,
    YAIE_AND, YAIE_OR, YAIE_XOR,
};

inline unsigned int yaie_lane() {
    const uint3 t = threadIdx;
    const dim3 n = blockDim;
    return (t.x + n.x * (t.y + n.y * t.z)) % 32;
}

template <typename T> uint64_t yaie_pack(T value) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t packed = 0;
    __builtin_memcpy(&packed, &value, sizeof(T));
    return packed;
}
template <typename T> YAIE_INLINE T yaie_unpack(uint64_t packed) {
    T value;
    __builtin_memcpy(&value, &packed, sizeof(T));
    return value;
}
template <typename T>
YAIE_INLINE T yaie_shuffle(unsigned int mask, T value, int source, const char* what, const char* file, int line) {
    return yaie_unpack<T>(
        yaie_collective(YAIE_SHUFFLE, mask, yaie_pack(value), source, what, file, line));
}

inline void __syncwarp(unsigned int mask = 0xffffffff, YAIE_HERE) {
    yaie_collective(YAIE_SYNC, mask, 0, 0, "__syncwarp()", file, line);
}
inline unsigned int __activemask(YAIE_HERE) { return yaie_active_mask(file, line); }

// width splits the warp into groups of 2, 4, 8 or 16 lanes that shuffle among themselves.
template <typename T>
YAIE_INLINE T __shfl_sync(unsigned int mask, T value, int source, int width = 32, YAIE_HERE) {
    const int lane = int(yaie_lane());
    const int from = (lane & ~(width - 1)) | (source & (width - 1));
    return yaie_shuffle(mask, value, from, "__shfl_sync()", file, line);
}
template <typename T>
YAIE_INLINE T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = 32, YAIE_HERE) {
    const int lane = int(yaie_lane()), first = lane & ~(width - 1);
    const int from = lane - first < int(delta) ? lane : lane - int(delta);
    return yaie_shuffle(mask, value, from, "__shfl_up_sync()", file, line);
}
template <typename T>
YAIE_INLINE T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = 32, YAIE_HERE) {
    const int lane = int(yaie_lane()), first = lane & ~(width - 1);
    const int from = lane - first + int(delta) < width ? lane + int(delta) : lane;
    return yaie_shuffle(mask, value, from, "__shfl_down_sync()", file, line);
}
template <typename T>
YAIE_INLINE T __shfl_xor_sync(unsigned int mask, T value, int lane_mask, int width = 32, YAIE_HERE) {
    const int lane = int(yaie_lane()), other = lane ^ lane_mask;
    const int from = other < (lane & ~(width - 1)) + width ? other : lane;
    return yaie_shuffle(mask, value, from, "__shfl_xor_sync()", file, line);
}

inline unsigned int __ballot_sync(unsigned int mask, int predicate, YAIE_HERE) {
    return (unsigned int)yaie_collective(YAIE_BALLOT, mask, predicate != 0, 0, "__ballot_sync()",
                                         file, line);
}
inline int __any_sync(unsigned int mask, int predicate, YAIE_HERE) {
    return yaie_collective(YAIE_BALLOT, mask, predicate != 0, 0, "__any_sync()", file, line) != 0;
}
inline int __all_sync(unsigned int mask, int predicate, YAIE_HERE) {
    return yaie_collective(YAIE_BALLOT, mask, predicate == 0, 0, "__all_sync()", file, line) == 0;
}
template <typename T> unsigned int __match_any_sync(unsigned int mask, T value, YAIE_HERE) {
    return (unsigned int)yaie_collective(YAIE_MATCH_ANY, mask, yaie_pack(value), 0,
                                         "__match_any_sync()", file, line);
}
template <typename T>
unsigned int __match_all_sync(unsigned int mask, T value, int* all, YAIE_HERE) {
    const auto same = (unsigned int)yaie_collective(YAIE_MATCH_ALL, mask, yaie_pack(value), 0,
                                                    "__match_all_sync()", file, line);
    *all = same != 0;
    return same;
}

#define YAIE_REDUCTION(name, T, kind)                                                              \
    inline T name(unsigned int mask, T value, YAIE_HERE) {                                         \
        return static_cast<T>(yaie_collective(kind, mask, static_cast<unsigned int>(value), 0,     \
                                              #name "()", file, line));                            \
    }
YAIE_REDUCTION(__reduce_add_sync, int, YAIE_ADD)
YAIE_REDUCTION(__reduce_add_sync, unsigned int, YAIE_ADD)
YAIE_REDUCTION(__reduce_min_sync, int, YAIE_MIN_SIGNED)
YAIE_REDUCTION(__reduce_min_sync, unsigned int, YAIE_MIN_UNSIGNED)
YAIE_REDUCTION(__reduce_max_sync, int, YAIE_MAX_SIGNED)
YAIE_REDUCTION(__reduce_max_sync, unsigned int, YAIE_MAX_UNSIGNED)
YAIE_REDUCTION(__reduce_and_sync, unsigned int, YAIE_AND)
YAIE_REDUCTION(__reduce_or_sync, unsigned int, YAIE_OR)
YAIE_REDUCTION(__reduce_xor_sync, unsigned int, YAIE_XOR)
#undef YAIE_REDUCTION
