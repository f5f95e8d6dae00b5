// The runtime's functions, as the headers beside this one call them.
#pragma once

#include <cstddef>
#include <cstdint>

struct YaieIndex {
    uint32_t x, y, z;
};

extern "C" {
YaieIndex yaie_thread_index() __attribute__((const));  // of the fibre: the same in all of a kernel
YaieIndex yaie_block_index() __attribute__((const));
YaieIndex yaie_block_size() __attribute__((const));
YaieIndex yaie_grid_size() __attribute__((const));
int yaie_barrier(int kind, int predicate, const char* what, const char* file, int line);
uint64_t yaie_collective(int kind, uint32_t mask, uint64_t value, int source, const char* what,
                         const char* file, int line);
uint32_t yaie_active_mask(const char* file, int line);
void yaie_fence();
void yaie_atomic(void* p, size_t size, const void* caller);
void* yaie_dynamic_shared();
[[noreturn]] void yaie_stop(int kind, const char* text, const char* file, int line);
int yaie_launch(const void* kernel, YaieIndex grid, YaieIndex block, size_t shared_bytes,
                void* stream, void (*run)(const void*), const void* body, size_t body_size);
}

// A function whose accesses are reported by hand, for the place from which it is called.
#define YAIE_UNWATCHED                                                                             \
    __attribute__((noinline, no_sanitize("thread"), no_sanitize("undefined")))
