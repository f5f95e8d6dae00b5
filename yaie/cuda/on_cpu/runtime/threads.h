// The threads of the block that runs, and what the whole machine knows.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "counters.h"
#include "fault.h"
#include "fibre.h"
#include "memory.h"

namespace yaie {

constexpr uint32_t WARP = 32;
constexpr uint32_t MOST_THREADS = 1024;
constexpr uint32_t MOST_SHARED = 227 * 1024;  // of an H100 or H200
constexpr size_t HOST_STACK = 1024 * 1024;

struct Index {
    uint32_t x = 0, y = 0, z = 0;
};

enum ThreadState : int32_t { READY = 0, AT_BARRIER = 1, IN_COLLECTIVE = 2, RETURNED = 3 };

enum CollectiveKind : int32_t {
    SYNC, SHUFFLE, BALLOT, MATCH_ANY, MATCH_ALL,
    ADD_SIGNED, MIN_SIGNED, MAX_SIGNED, MIN_UNSIGNED, MAX_UNSIGNED, AND, OR, XOR,
    ACTIVE,
};

// Where a thread waits. Two barriers are the same one if they stand on the same line: the compiler may
// copy code, so addresses would not do.
struct Site {
    const char* what = "";
    const char* file = "";
    int32_t line = 0;
};

struct Thread {
    Context context{};
    uintptr_t stack = 0;  // 0 before the first step
    uint32_t stack_index = 0;
    uint32_t index = 0, lane = 0, warp = 0;
    Index position;
    ThreadState state = READY;
    Site site;
    uint64_t steps = 0;
    bool fenced = false;  // has called __threadfence since its last atomic

    int32_t barrier_kind = 0;  // what it posts at a barrier or in a collective, and what it gets
    CollectiveKind collective = SYNC;
    uint32_t mask = 0;
    uint64_t value = 0;
    int32_t source = 0;
    uint64_t result = 0;
};

// seen[a][b]: the time of lane b up to which lane a knows what b did. seen[a][a] is a's own time.
// __syncwarp makes all of its lanes know what each of them knew (vector clocks; FastTrack, Flanagan
// and Freund 2009, does the same for threads and locks).
struct Warp {
    uint32_t seen[WARP][WARP];
    uint32_t exists = 0;  // lanes of this warp: the last warp may be short
};

struct Machine {
    // The call
    Context caller{};
    Context host{};
    std::unique_ptr<char[]> host_stack;
    bool in_call = false;
    // A read of shared memory that nobody has written yet. If the write comes before the next barrier
    // it was a race, else there is none: so this waits until it is known.
    Fault unwritten;
    int64_t result = 0;
    Fault fault;
    Regions regions;
    Arena data, shadow;
    uintptr_t library = 0;  // base address of the code

    // Settings
    uint64_t seed = 0;
    uint64_t step_limit = 20'000'000;
    bool recording = false;
    bool dry = false;      // no kernel runs: only launches are looked at
    bool failing = false;  // launch() returns an error

    // The launch
    uint64_t kernel = 0;
    Index grid, block;
    uint64_t shared_bytes = 0;
    int64_t stream = 0, launched_on = 0;  // the launcher's last argument, and that of launch()
    const void* body = nullptr;
    size_t body_size = 0;
    void (*run)(const void*) = nullptr;
    uint64_t random = 0;
    uint32_t launch_phase = 0;  // the first of this launch
    std::vector<uint32_t> block_phases, block_order;  // of the blocks that ran, in that order
    // For each atomic's address, the blocks that published what they did by fence and atomic; and
    // those of which the block that runs knows so.
    std::unordered_map<uintptr_t, std::vector<uint32_t>> published;
    std::vector<uint8_t> known_blocks;

    // The block
    Stacks stacks;
    std::vector<uint32_t> free_stacks;
    Context scheduler{};
    Index block_position;
    uint32_t block_index = 0;
    uint32_t block_phase = 0;  // the first of this block
    uint32_t phase = 0;        // of now
    uint32_t thread_count = 0;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<uint32_t> ready, batch;
    Thread* current = nullptr;  // null: host code runs
    Counters counters;
    std::vector<LaunchRecord> launches;

    char* dynamic_shared = nullptr;
    Region dynamic_region;
};

extern Machine machine;

// Ends the call: stores the fault and goes back to Python, leaving host code and fibres where they are.
[[noreturn]] void stop(const Fault& fault);
Fault fault_here(FaultKind kind, const void* pc = nullptr);
Party party_of(const Thread& thread);

// The next barrier is reached, or the end of the block.
inline void stop_if_unwritten() {
    if (machine.unwritten.kind) stop(machine.unwritten);
}

inline uint64_t next_random(uint64_t& state) {  // splitmix64 (Steele, Lea and Flood 2014)
    uint64_t z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

inline void shuffle(std::vector<uint32_t>& items, uint64_t& state) {
    for (size_t i = items.size(); i > 1; --i)
        std::swap(items[i - 1], items[next_random(state) % i]);
}

}  // namespace yaie
