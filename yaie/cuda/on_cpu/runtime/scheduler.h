// Runs a launch: its blocks one after another, the threads of a block in turns, both in drawn
// order.
#pragma once

#include "accesses.h"
#include "collectives.h"

namespace yaie {

// Nobody can run on, and not all wait at one barrier. Says what one who waits waits for.
[[noreturn]] inline void stop_stuck() {
    uint32_t waiting = 0;
    const Thread *at_barrier = nullptr, *in_collective = nullptr;
    for (const Thread& thread : machine.threads) {
        if (thread.state == AT_BARRIER) {
            waiting += 1;
            if (!at_barrier) at_barrier = &thread;
        }
        if (thread.state == IN_COLLECTIVE && !in_collective) in_collective = &thread;
    }
    if (in_collective) {
        const Thread& stuck = *in_collective;
        Fault fault = fault_here(DEADLOCK);
        fault.first = party_of(stuck);
        const Thread* lanes = &machine.threads[stuck.warp * WARP];
        const Thread* absent = nullptr;
        for (uint32_t lane = 0; lane < WARP; ++lane) {
            if (!(stuck.mask >> lane & 1)) continue;
            const Thread& other = lanes[lane];
            if (other.state == IN_COLLECTIVE && other.mask == stuck.mask &&
                other.collective == stuck.collective)
                continue;
            fault.count |= 1u << lane;
            if (!absent) absent = &other;
        }
        if (absent) fault.second = party_of(*absent);
        stop(fault);
    }
    Fault fault = fault_here(BARRIER);
    fault.first = party_of(*at_barrier);
    fault.count = waiting;
    for (const Thread& thread : machine.threads) {
        const bool same = thread.state == AT_BARRIER &&
                          thread.site.line == at_barrier->site.line &&
                          !strcmp(thread.site.file, at_barrier->site.file);
        if (!same) {
            fault.second = party_of(thread);
            break;
        }
    }
    stop(fault);
}

inline void release_barrier() {
    const Thread& first = machine.threads[0];
    uint64_t count = 0;
    for (const Thread& thread : machine.threads) {
        if (thread.state != AT_BARRIER || thread.site.line != first.site.line ||
            strcmp(thread.site.file, first.site.file))
            stop_stuck();
        count += thread.value != 0;
    }
    for (Thread& thread : machine.threads) {
        thread.state = READY;
        thread.result = thread.barrier_kind == 0   ? count
                        : thread.barrier_kind == 1 ? uint64_t(count != 0)
                                                   : uint64_t(count == machine.thread_count);
        machine.ready.push_back(thread.index);
    }
    stop_if_unwritten();
    machine.phase += 1;
    if (machine.recording) {
        machine.counters.record.barriers += 1;
        machine.counters.end_phase();
    }
}

inline void fibre_main() {
    machine.run(machine.body);
    machine.current->state = RETURNED;
    switch_context(machine.current->context, machine.scheduler);
    __builtin_unreachable();
}

inline void start_threads() {
    Machine& m = machine;
    uint32_t index = 0;
    m.ready.clear();
    for (uint32_t z = 0; z < m.block.z; ++z)
        for (uint32_t y = 0; y < m.block.y; ++y)
            for (uint32_t x = 0; x < m.block.x; ++x, ++index) {
                Thread& thread = m.threads[index];
                thread.stack = 0;
                thread.index = index;
                thread.lane = index % WARP;
                thread.warp = index / WARP;
                thread.position = {x, y, z};
                thread.state = READY;
                thread.site = {};
                thread.steps = 0;
                thread.fenced = false;
                m.ready.push_back(index);
            }
    m.free_stacks.resize(m.thread_count);
    for (uint32_t i = 0; i < m.thread_count; ++i) m.free_stacks[i] = m.thread_count - 1 - i;
    for (uint32_t w = 0; w < m.warps.size(); ++w) {
        Warp& warp = m.warps[w];
        memset(warp.seen, 0, sizeof warp.seen);
        for (uint32_t lane = 0; lane < WARP; ++lane) warp.seen[lane][lane] = 1;
        const uint32_t lanes = std::min(WARP, m.thread_count - w * WARP);
        warp.exists = lanes == WARP ? ~0u : (1u << lanes) - 1;
    }
}

// A thread has a stack from its first step to its last, and the next one takes what was given back:
// threads that never wait all run on one stack, which then stays in the processor's cache. Stacks begin
// at different places of their pages, or those of a block would share a few lines of the cache.
inline void run_thread(Thread& thread) {
    Machine& m = machine;
    if (!thread.stack) {
        thread.stack_index = m.free_stacks.back();
        m.free_stacks.pop_back();
        char* stack = m.stacks.stack(thread.stack_index);
        thread.stack = uintptr_t(stack);
        const size_t colour = thread.stack_index % 32 * 64;
        prepare(thread.context, stack, Stacks::SIZE - colour, fibre_main);
    }
    m.current = &thread;
    switch_context(m.scheduler, thread.context);
    if (thread.state == RETURNED) m.free_stacks.push_back(thread.stack_index);
}

inline void run_block(uint32_t index) {
    Machine& m = machine;
    m.block_index = index;
    m.block_position = {index % m.grid.x, index / m.grid.x % m.grid.y, index / m.grid.x / m.grid.y};
    m.phase += 1;
    m.block_phase = m.phase;
    m.block_phases.push_back(m.phase);
    if (m.published.empty()) m.known_blocks.resize(m.block_phases.size(), 0);
    else m.known_blocks.assign(m.block_phases.size(), 0);
    start_threads();
    uint32_t returned = 0;
    while (returned < m.thread_count) {
        if (m.ready.empty() && !tell_active_masks()) release_barrier();
        m.batch.swap(m.ready);
        m.ready.clear();
        shuffle(m.batch, m.random);
        for (uint32_t i : m.batch) {
            Thread& thread = m.threads[i];
            run_thread(thread);
            returned += thread.state == RETURNED;
        }
        m.current = nullptr;
        if (m.ready.empty() && returned > 0 && returned < m.thread_count && !tell_active_masks())
            stop_stuck();
    }
    stop_if_unwritten();
    if (m.recording) m.counters.end_phase();
}

constexpr int FAILED = 9;  // CUDA's cudaErrorInvalidConfiguration

[[noreturn]] inline void refuse_launch(const char* text, FaultKind kind = LAUNCH) {
    Fault fault = fault_here(kind);
    snprintf(fault.text, sizeof fault.text, "%s", text);
    stop(fault);
}

// CUDA's limits of a launch, for compute capability 9.0.
inline void check_launch() {
    const Machine& m = machine;
    char text[256];
    const uint64_t threads = uint64_t(m.block.x) * m.block.y * m.block.z;
    if (threads == 0 || threads > MOST_THREADS || m.block.z > 64) {
        snprintf(text, sizeof text,
                 "invalid configuration: a block of %u x %u x %u threads (1 to %u are possible, and "
                 "at most 64 in z)", m.block.x, m.block.y, m.block.z, MOST_THREADS);
        refuse_launch(text);
    }
    if (m.grid.x > 0x7FFFFFFF || m.grid.y > 65535 || m.grid.z > 65535) {
        snprintf(text, sizeof text,
                 "invalid configuration: a grid of %u x %u x %u blocks (at most 2147483647 x 65535 x "
                 "65535); a negative number became a large one if it looks like that",
                 m.grid.x, m.grid.y, m.grid.z);
        refuse_launch(text);
    }
    if (m.shared_bytes > MOST_SHARED) {
        snprintf(text, sizeof text,
                 "invalid argument: %llu bytes of shared memory asked for a block, of %u",
                 (unsigned long long)m.shared_bytes, MOST_SHARED);
        refuse_launch(text);
    }
    if (m.launched_on != m.stream)
        refuse_launch("launch() is given another stream than the one that the launcher got", STREAM);
}

inline void run_launch() {
    Machine& m = machine;
    m.launch_phase = m.phase + 1;
    m.block_phases.clear();
    m.known_blocks.clear();
    m.published.clear();
    const uint64_t blocks = m.dry ? 0 : uint64_t(m.grid.x) * m.grid.y * m.grid.z;
    m.block_order.resize(blocks);
    for (uint32_t i = 0; i < blocks; ++i) m.block_order[i] = i;
    shuffle(m.block_order, m.random);
    m.thread_count = m.block.x * m.block.y * m.block.z;
    m.threads.resize(m.thread_count);
    m.warps.resize((m.thread_count + WARP - 1) / WARP);
    if (!m.stacks.reserve(m.thread_count)) refuse_launch("no memory for the stacks of a block");
    if (m.recording) {
        LaunchRecord record;
        record.kernel = m.kernel;
        const uint32_t shape[6] = {m.grid.x, m.grid.y, m.grid.z, m.block.x, m.block.y, m.block.z};
        std::copy(shape, shape + 3, record.grid);
        std::copy(shape + 3, shape + 6, record.block);
        record.shared_bytes = m.shared_bytes;
        m.counters.start(record);
        m.counters.use_warps(uint32_t(m.warps.size()));
    }
    for (uint32_t block : m.block_order) run_block(block);
    if (m.recording) m.launches.push_back(m.counters.finish());
}

}  // namespace yaie
