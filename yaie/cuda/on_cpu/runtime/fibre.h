// Fibres: functions with a stack of their own that give up the processor only where they say so.
//
// Every CUDA thread of a block is one. A thread of the operating system would cost microseconds at
// each barrier and would run whenever it likes; a fibre costs nanoseconds and runs in the order
// that the scheduler draws, so a run repeats exactly for the same seed.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace yaie {

#if defined(__APPLE__)
#define YAIE_SYMBOL(name) "_" name
#else
#define YAIE_SYMBOL(name) name
#endif

#if defined(__x86_64__) || defined(__aarch64__)

// What a switch must keep are the registers that a called function has to preserve. They are pushed on
// the stack that is left; its stack pointer is all that remains to be stored.
using Context = void*;
extern "C" void yaie_switch(Context* from, Context to);

#if defined(__x86_64__)
asm(".text\n.globl " YAIE_SYMBOL("yaie_switch") "\n" YAIE_SYMBOL("yaie_switch") ":\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n");

inline Context fresh_context(char* stack, size_t size, void (*entry)()) {
    auto top = reinterpret_cast<uintptr_t>(stack + size) & ~uintptr_t(15);
    auto* slot = reinterpret_cast<void**>(top);
    *--slot = nullptr;  // where a return address of `entry` would stand: it never returns
    *--slot = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) *--slot = nullptr;
    return slot;
}
#else
asm(".text\n.globl " YAIE_SYMBOL("yaie_switch") "\n.p2align 2\n" YAIE_SYMBOL("yaie_switch") ":\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n");

inline Context fresh_context(char* stack, size_t size, void (*entry)()) {
    auto top = reinterpret_cast<uintptr_t>(stack + size) & ~uintptr_t(15);
    auto* slot = reinterpret_cast<void**>(top - 160);
    for (int i = 0; i < 20; ++i) slot[i] = nullptr;
    slot[11] = reinterpret_cast<void*>(entry);  // x30, to which the switch returns
    return slot;
}
#endif

inline void switch_context(Context& from, Context& to) { yaie_switch(&from, to); }
inline void prepare(Context& context, char* stack, size_t size, void (*entry)()) {
    context = fresh_context(stack, size, entry);
}

#else  // any other processor: the C library's own, which also saves the signal mask and so is slower

using Context = ucontext_t;
inline void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }
inline void prepare(Context& context, char* stack, size_t size, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = size;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
}

#endif

// Stacks side by side, each above a page that may not be touched. They are mapped when a block first
// needs so many and kept for the next one; memory is only taken by the pages that are used.
class Stacks {
  public:
    static constexpr size_t SIZE = 64 * 1024;

    bool reserve(size_t count) {
        if (count <= count_) return true;
        if (base_) munmap(base_, count_ * slot());
        count_ = 0;
        void* memory = mmap(nullptr, count * slot(), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        base_ = memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
        if (!base_) return false;
        count_ = count;
        for (size_t i = 0; i < count; ++i) mprotect(base_ + i * slot(), page(), PROT_NONE);
        return true;
    }
    char* stack(size_t i) const { return base_ + i * slot() + page(); }
    bool holds(uintptr_t address) const {
        return address - reinterpret_cast<uintptr_t>(base_) < count_ * slot();
    }
    bool is_guard(uintptr_t address) const {
        return holds(address) && (address - reinterpret_cast<uintptr_t>(base_)) % slot() < page();
    }

  private:
    static size_t page() {
        static const size_t size = size_t(sysconf(_SC_PAGESIZE));
        return size;
    }
    static size_t slot() { return SIZE + page(); }

    char* base_ = nullptr;
    size_t count_ = 0;
};

}  // namespace yaie
