// Atomics. Nothing can come between the load and the store of one: fibres only switch at barriers and in
// collectives. So each tells the runtime what it is about to touch, and then does it.
#pragma once

#include "runtime.h"

#define YAIE_ATOMIC(name, expression)                                                              \
    template <typename T> YAIE_UNWATCHED T name(T* p, T value) {                                   \
        yaie_atomic(p, sizeof(T), __builtin_return_address(0));                                    \
        const T old = *p;                                                                          \
        *p = expression;                                                                           \
        return old;                                                                                \
    }                                                                                              \
    template <typename T, typename U> T name(T* p, U value) { return name<T>(p, T(value)); }       \
    template <typename T, typename U> T name##_block(T* p, U value) { return name<T>(p, T(value)); } \
    template <typename T, typename U> T name##_system(T* p, U value) { return name<T>(p, T(value)); }
YAIE_ATOMIC(atomicAdd, T(old + value))
YAIE_ATOMIC(atomicSub, T(old - value))
YAIE_ATOMIC(atomicExch, value)
YAIE_ATOMIC(atomicMin, value < old ? value : old)
YAIE_ATOMIC(atomicMax, old < value ? value : old)
YAIE_ATOMIC(atomicAnd, T(old & value))
YAIE_ATOMIC(atomicOr, T(old | value))
YAIE_ATOMIC(atomicXor, T(old ^ value))
YAIE_ATOMIC(atomicInc, T(old >= value ? 0 : old + 1))
YAIE_ATOMIC(atomicDec, T(old == 0 || old > value ? value : old - 1))
#undef YAIE_ATOMIC

template <typename T> YAIE_UNWATCHED T yaie_compare_and_swap(T* p, T compare, T value) {
    yaie_atomic(p, sizeof(T), __builtin_return_address(0));
    const T old = *p;
    if (old == compare) *p = value;
    return old;
}
template <typename T, typename U, typename V> T atomicCAS(T* p, U compare, V value) {
    return yaie_compare_and_swap<T>(p, T(compare), T(value));
}
