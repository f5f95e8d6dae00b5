// Races, by happened-before: two accesses of one byte by two threads, one of them a write, are a
// race unless something orders them, whatever order they happened to run in here.
//
// What orders: within a thread, the program; within a block, __syncthreads; within a warp, __syncwarp;
// between launches, the stream. Blocks of one launch are not ordered, but for one pattern: a block that
// calls __threadfence and then an atomic has published its work to the blocks whose atomics on the same
// address come later. Two atomics on one address are never a race.
#pragma once

#include "threads.h"

namespace yaie {

inline bool knows_block_of(uint32_t phase) {
    auto& phases = machine.block_phases;
    size_t i = size_t(std::upper_bound(phases.begin(), phases.end(), phase) - phases.begin());
    return i > 0 && machine.known_blocks[i - 1];
}

// ANCHOR: unordered
// since: the first phase of the launch, for shared memory of the block; what was before is ordered.
inline bool unordered(const Record& past, const Thread& me, uint32_t since) {
    if (past.phase < since) return false;
    if (past.phase == machine.phase) {
        if (past.thread == me.index) return past.flags & SEVERAL;
        if (past.thread / WARP != me.warp) return true;
        return machine.warps[me.warp].seen[me.lane][past.thread % WARP] < past.clock;
    }
    return past.phase < machine.block_phase && !knows_block_of(past.phase);
}
// ANCHOR_END: unordered

inline Record record_now(const Thread& me, uint8_t mask, uintptr_t pc) {
    Record record;
    record.phase = machine.phase;
    record.clock = machine.warps[me.warp].seen[me.lane][me.lane];
    record.pc = uint32_t(pc - machine.library);
    record.thread = uint16_t(me.index);
    record.mask = mask;
    return record;
}

// The party that left this record.
inline Party party_of(const Record& past, AccessKind access) {
    auto& phases = machine.block_phases;
    size_t i = size_t(std::upper_bound(phases.begin(), phases.end(), past.phase) - phases.begin());
    Party party;
    party.pc = machine.library + past.pc;
    party.access = access;
    party.block = i > 0 ? machine.block_order[i - 1] : 0;
    party.thread = past.thread;
    return party;
}

[[noreturn]] inline void stop_race(const Record& past, AccessKind past_access, uintptr_t address,
                                   size_t size, AccessKind access, const void* pc) {
    Fault fault = fault_here(RACE, pc);
    fault.address = address;
    fault.size = size;
    fault.first.access = access;
    fault.second = party_of(past, past_access);
    stop(fault);
}

inline AccessKind access_of(const Record& write) {
    return write.flags & ATOMIC_WRITE ? ATOMIC : WRITE;
}

// Bytes of `mask` in this cell are about to be read. False: no thread of this block wrote them.
inline bool watch_read(Cell& cell, const Thread& me, uint32_t since, uint8_t mask,
                       uintptr_t address, size_t size, const void* pc) {
    const Record& write = cell.write;
    if (write.mask & mask && unordered(write, me, since))
        stop_race(write, access_of(write), address, size, READ, pc);
    const uint32_t phase = machine.phase;
    Record& first = cell.reads[0];
    Record& other = cell.reads[1];
    const bool of_other_block =
        first.phase >= since && first.phase < machine.block_phase;
    if (first.phase != phase && !of_other_block) {
        first = record_now(me, mask, uintptr_t(pc));
    } else if (first.phase == phase && first.thread == me.index) {
        first = record_now(me, mask | first.mask, uintptr_t(pc));
    } else if (other.phase != phase || other.thread == me.index ||
               other.thread / WARP == first.thread / WARP) {
        const bool mine = other.phase == phase && other.thread == me.index;
        other = record_now(me, mine ? mask | other.mask : mask, uintptr_t(pc));
    }
    return write.phase >= machine.block_phase &&
           ((write.flags >> WRITTEN_SHIFT) & mask & 15) == (mask & 15);
}

inline void watch_write(Cell& cell, const Thread& me, uint32_t since, uint8_t mask,
                        uintptr_t address, size_t size, AccessKind access, const void* pc) {
    Record& write = cell.write;
    const bool both_atomic = access == ATOMIC && write.flags & ATOMIC_WRITE;
    const bool unordered_write = write.mask & mask && unordered(write, me, since);
    if (unordered_write && !both_atomic)
        stop_race(write, access_of(write), address, size, access, pc);
    for (const Record& read : cell.reads)
        if (read.mask & mask && unordered(read, me, since))
            stop_race(read, READ, address, size, access, pc);
    uint8_t written = write.phase >= machine.block_phase ? write.flags >> WRITTEN_SHIFT : 0;
    written = uint8_t((written | mask) << WRITTEN_SHIFT);
    if (unordered_write) {  // keep the other thread's atomic: it is the one to be found racing
        write.flags = uint8_t(ATOMIC_WRITE | SEVERAL | written);
        write.mask |= mask;
        return;
    }
    write = record_now(me, mask, uintptr_t(pc));
    write.flags = uint8_t((access == ATOMIC ? ATOMIC_WRITE : 0) | written);
}

// Fence, then atomic: publish. Any atomic: learn what was published here.
inline void order_blocks(Thread& me, uintptr_t address) {
    auto& blocks = machine.published[address];
    for (uint32_t block : blocks) machine.known_blocks[block] = 1;
    if (me.fenced) {
        const auto mine = uint32_t(machine.block_phases.size() - 1);
        for (uint32_t block = 0; block < mine; ++block)  // what it knows, it passes on
            if (machine.known_blocks[block]) blocks.push_back(block);
        blocks.push_back(mine);
        std::sort(blocks.begin(), blocks.end());
        blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
        me.fenced = false;
    }
}

}  // namespace yaie
