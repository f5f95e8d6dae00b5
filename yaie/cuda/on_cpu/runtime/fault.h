// What went wrong, as plain data. Python turns it into words: it knows the tensors' names and
// shapes, and looks up the lines of the code addresses. The order of fields is repeated in
// faults.py.
#pragma once

#include <cstdint>

namespace yaie {

enum FaultKind : int32_t {
    NO_FAULT = 0,
    RACE = 1,
    OUT_OF_BOUNDS = 2,
    UNINITIALIZED = 3,
    MISALIGNED = 4,
    BARRIER = 5,
    DEADLOCK = 6,
    RUNAWAY = 7,
    UNDEFINED = 8,    // what C++ leaves undefined: text says it
    NOT_WRITTEN = 9,  // NOT_IMPLEMENTED(text)
    LAUNCH = 10,      // what CUDA refuses: text says it
    HOST_ACCESS = 11, // host code touches a tensor
    CRASH = 12,       // a signal: text says it
    STACK = 13,       // a thread's local variables do not fit
    TRAP = 14,        // __trap() or assert
    STREAM = 15,      // a launch on another stream than the launcher's
};

enum AccessKind : int32_t { READ = 0, WRITE = 1, ATOMIC = 2 };

// One of the two parties of a fault: who, where, doing what.
struct Party {
    uint64_t pc = 0;    // return address of the access, 0 if `line` says it
    uint64_t file = 0;  // const char*
    int32_t line = 0;
    int32_t access = READ;
    uint32_t block = 0;   // linear index
    uint32_t thread = 0;  // linear index
    int32_t state = 0;    // see ThreadState in threads.h
    uint32_t mask = 0;
    uint64_t what = 0;  // const char*: name of the barrier or collective
};

struct Fault {
    int32_t kind = NO_FAULT;
    int32_t on_host = 0;
    uint64_t address = 0;
    uint64_t size = 0;
    uint64_t kernel = 0;  // address of the kernel's function
    uint32_t grid[3] = {};
    uint32_t block[3] = {};
    uint64_t shared_bytes = 0;
    uint64_t count = 0;  // threads that wait, or a mask of lanes, or the step limit
    Party first;         // who was stopped
    Party second;        // the other one, where there is one
    char text[1024] = {};
};

}  // namespace yaie
