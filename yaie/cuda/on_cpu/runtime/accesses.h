// Every load and store of the learner's code comes through here, before it happens.
#pragma once

#include "races.h"

namespace yaie {

[[noreturn]] inline void stop_access(FaultKind kind, uintptr_t address, size_t size,
                                     AccessKind access, const void* pc) {
    Fault fault = fault_here(kind, pc);
    fault.address = address;
    fault.size = size;
    fault.first.access = access;
    if (machine.stacks.holds(address))
        snprintf(fault.text, sizeof fault.text, "a local variable of another thread");
    stop(fault);
}

inline void note_unwritten(uintptr_t address, size_t size, AccessKind access, const void* pc) {
    Fault& fault = machine.unwritten;
    if (fault.kind) return;
    fault = fault_here(UNINITIALIZED, pc);
    fault.address = address;
    fault.size = size;
    fault.first.access = access;
}

// Host code has its own memory, about which nothing is known; it must only leave tensors alone, which
// on a GPU lie where it cannot reach.
inline void watch_host(uintptr_t address, size_t size, AccessKind access, const void* pc) {
    if (!machine.in_call) return;
    Region* region = machine.regions.find(address);
    if (region && region->kind == TENSOR) stop_access(HOST_ACCESS, address, size, access, pc);
}

inline void count_access(const Region& region, const Thread& me, uintptr_t address, size_t size,
                         AccessKind access, const void* pc) {
    if (access == ATOMIC) {
        machine.counters.record.atomics += 1;
        return;
    }
    const bool store = access == WRITE;
    const TrafficClass kind = region.is_shared() ? (store ? SHARED_STORE : SHARED_LOAD)
                                                 : (store ? GLOBAL_STORE : GLOBAL_LOAD);
    machine.counters.access(kind, me.warp, me.lane, address, uint32_t(size), uint64_t(pc));
}

// An access that is neither to the thread's own stack nor to the kernel's arguments.
[[gnu::noinline]] inline void watch_memory(uintptr_t address, size_t size, AccessKind access,
                                           bool must_align, const void* pc) {
    Thread* me = machine.current;
    if (!me) return watch_host(address, size, access, pc);
    Region* region = machine.regions.find(address);
    if (!region || address + size > region->begin + region->size)
        stop_access(OUT_OF_BOUNDS, address, size, access, pc);
    if (must_align && address & (size - 1)) stop_access(MISALIGNED, address, size, access, pc);
    if (access != READ && region->kind == CONSTANT)
        stop_access(OUT_OF_BOUNDS, address, size, access, pc);
    if (!region->cells) return;
    const uintptr_t offset = address - region->begin;
    const int shift = region->granule_shift;
    const size_t granule = size_t(1) << shift;
    const bool shared = region->is_shared();
    const uint32_t since = shared ? machine.block_phase : machine.launch_phase;
    const size_t first = offset >> shift, last = (offset + size - 1) >> shift;
    for (size_t i = first; i <= last; ++i) {
        if (region->valid && !region->valid[i])
            stop_access(OUT_OF_BOUNDS, address, size, access, pc);
        uint32_t mask = (1u << granule) - 1;
        if (i == first) mask &= ~0u << (offset & (granule - 1));
        if (i == last) mask &= ~0u >> (31 - ((offset + size - 1) & (granule - 1)));
        Cell& cell = region->cells[i];
        if (access == READ) {
            const bool written = watch_read(cell, *me, since, uint8_t(mask), address, size, pc);
            if (!written && shared) note_unwritten(address, size, access, pc);
        } else {
            if (access == ATOMIC && shared && cell.write.phase < machine.block_phase)
                note_unwritten(address, size, access, pc);
            watch_write(cell, *me, since, uint8_t(mask), address, size, access, pc);
        }
    }
    if (access == ATOMIC) order_blocks(*me, address);
    if (machine.recording) count_access(*region, *me, address, size, access, pc);
}

// The threads of other warps and blocks have no say in a thread's stack, and its size is checked where
// functions begin; a kernel's arguments are the same for all, and only read. Both are let through here,
// in a few instructions.
[[gnu::always_inline]] inline void watch(const void* pointer, size_t size, AccessKind access,
                                         bool must_align, const void* pc) {
    const auto address = uintptr_t(pointer);
    if (machine.current) {
        if (address - machine.current->stack < Stacks::SIZE) return;
        if (access == READ && address - uintptr_t(machine.body) < machine.body_size) return;
    }
    watch_memory(address, size, access, must_align, pc);
}

// Ranges come from copies of structs and from memcpy; they may be long, so they go in pieces that the
// masks and counters are made for.
inline void watch_range(const void* pointer, size_t size, AccessKind access, const void* pc) {
    auto* bytes = static_cast<const char*>(pointer);
    for (size_t piece; size > 0; bytes += piece, size -= piece) {
        piece = size < 16 ? size : 16;
        watch(bytes, piece, access, false, pc);
    }
}

}  // namespace yaie
