// What the compiler calls. A learner's file is compiled with -fsanitize=thread,
// -fsanitize=bounds,... and -fsanitize-coverage=trace-pc, and linked without their libraries:
// these definitions stand in for them.
#pragma once

#include "accesses.h"

#define YAIE_HOOK extern "C" __attribute__((visibility("default")))
#define YAIE_CALLER __builtin_return_address(0)

#define YAIE_SIZED_HOOKS(size)                                                                     \
    YAIE_HOOK void __tsan_read##size(void* p) {                                                    \
        yaie::watch(p, size, yaie::READ, true, YAIE_CALLER);                                       \
    }                                                                                              \
    YAIE_HOOK void __tsan_write##size(void* p) {                                                   \
        yaie::watch(p, size, yaie::WRITE, true, YAIE_CALLER);                                      \
    }                                                                                              \
    YAIE_HOOK void __tsan_volatile_read##size(void* p) {                                           \
        yaie::watch(p, size, yaie::READ, true, YAIE_CALLER);                                       \
    }                                                                                              \
    YAIE_HOOK void __tsan_volatile_write##size(void* p) {                                          \
        yaie::watch(p, size, yaie::WRITE, true, YAIE_CALLER);                                      \
    }                                                                                              \
    YAIE_HOOK void __tsan_unaligned_read##size(void* p) {                                          \
        yaie::watch(p, size, yaie::READ, false, YAIE_CALLER);                                      \
    }                                                                                              \
    YAIE_HOOK void __tsan_unaligned_write##size(void* p) {                                         \
        yaie::watch(p, size, yaie::WRITE, false, YAIE_CALLER);                                     \
    }                                                                                              \
    YAIE_HOOK void __tsan_unaligned_volatile_read##size(void* p) {                                 \
        yaie::watch(p, size, yaie::READ, false, YAIE_CALLER);                                      \
    }                                                                                              \
    YAIE_HOOK void __tsan_unaligned_volatile_write##size(void* p) {                                \
        yaie::watch(p, size, yaie::WRITE, false, YAIE_CALLER);                                     \
    }
YAIE_SIZED_HOOKS(1)
YAIE_SIZED_HOOKS(2)
YAIE_SIZED_HOOKS(4)
YAIE_SIZED_HOOKS(8)
YAIE_SIZED_HOOKS(16)
#undef YAIE_SIZED_HOOKS

YAIE_HOOK void __tsan_read_range(void* p, size_t size) {
    yaie::watch_range(p, size, yaie::READ, YAIE_CALLER);
}
YAIE_HOOK void __tsan_write_range(void* p, size_t size) {
    yaie::watch_range(p, size, yaie::WRITE, YAIE_CALLER);
}
YAIE_HOOK void __tsan_init() {}
YAIE_HOOK void __tsan_func_entry(void*) {}
YAIE_HOOK void __tsan_func_exit() {}
YAIE_HOOK void __tsan_vptr_update(void**, void*) {}
YAIE_HOOK void __tsan_vptr_read(void**) {}

// C++'s own atomics, which become calls too. Sequentially consistent, whatever was asked for: one
// fibre runs at a time.
#define YAIE_ATOMIC_HOOKS(bits, T)                                                                 \
    YAIE_HOOK T __tsan_atomic##bits##_load(const volatile T* p, int) {                             \
        yaie::watch(const_cast<T*>(p), sizeof(T), yaie::ATOMIC, true, YAIE_CALLER);                \
        return *p;                                                                                 \
    }                                                                                              \
    YAIE_HOOK void __tsan_atomic##bits##_store(volatile T* p, T value, int) {                      \
        yaie::watch(const_cast<T*>(p), sizeof(T), yaie::ATOMIC, true, YAIE_CALLER);                \
        *p = value;                                                                                \
    }                                                                                              \
    YAIE_HOOK T __tsan_atomic##bits##_exchange(volatile T* p, T value, int) {                      \
        yaie::watch(const_cast<T*>(p), sizeof(T), yaie::ATOMIC, true, YAIE_CALLER);                \
        const T old = *p;                                                                          \
        *p = value;                                                                                \
        return old;                                                                                \
    }                                                                                              \
    YAIE_HOOK T __tsan_atomic##bits##_fetch_add(volatile T* p, T value, int) {                     \
        yaie::watch(const_cast<T*>(p), sizeof(T), yaie::ATOMIC, true, YAIE_CALLER);                \
        const T old = *p;                                                                          \
        *p = T(old + value);                                                                       \
        return old;                                                                                \
    }                                                                                              \
    YAIE_HOOK int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected,        \
                                                                T value, int, int) {               \
        yaie::watch(const_cast<T*>(p), sizeof(T), yaie::ATOMIC, true, YAIE_CALLER);                \
        const T old = *p;                                                                          \
        const bool same = old == *expected;                                                        \
        if (same) *p = value;                                                                      \
        else *expected = old;                                                                      \
        return same;                                                                               \
    }
YAIE_ATOMIC_HOOKS(8, uint8_t)
YAIE_ATOMIC_HOOKS(16, uint16_t)
YAIE_ATOMIC_HOOKS(32, uint32_t)
YAIE_ATOMIC_HOOKS(64, uint64_t)
#undef YAIE_ATOMIC_HOOKS

// Each basic block: the one place that a loop without an end cannot avoid.
YAIE_HOOK void __sanitizer_cov_trace_pc() {
    yaie::Thread* me = yaie::machine.current;
    if (!me || ++me->steps <= yaie::machine.step_limit) return;
    yaie::Fault fault = yaie::fault_here(yaie::RUNAWAY, YAIE_CALLER);
    fault.count = yaie::machine.step_limit;
    yaie::stop(fault);
}

// The linker's --wrap sends the library functions that read and write memory here.
YAIE_HOOK void* __wrap_memcpy(void* to, const void* from, size_t size) {
    yaie::watch_range(from, size, yaie::READ, YAIE_CALLER);
    yaie::watch_range(to, size, yaie::WRITE, YAIE_CALLER);
    return memcpy(to, from, size);
}
YAIE_HOOK void* __wrap_memmove(void* to, const void* from, size_t size) {
    yaie::watch_range(from, size, yaie::READ, YAIE_CALLER);
    yaie::watch_range(to, size, yaie::WRITE, YAIE_CALLER);
    return memmove(to, from, size);
}
YAIE_HOOK void* __wrap_memset(void* to, int value, size_t size) {
    yaie::watch_range(to, size, yaie::WRITE, YAIE_CALLER);
    return memset(to, value, size);
}
YAIE_HOOK void __wrap___assert_fail(const char* condition, const char* file, unsigned line,
                                    const char*) {
    yaie::Fault fault = yaie::fault_here(yaie::TRAP);
    fault.first.file = uint64_t(file);
    fault.first.line = int32_t(line);
    snprintf(fault.text, sizeof fault.text, "assert(%s) fails", condition);
    yaie::stop(fault);
}
