// The runtime as one library: compiled once, without the hooks, and loaded by every lab's library.
//
// Python calls yaie_begin, then yaie_add_* for each tensor and shared array, then yaie_invoke, and
// looks at the fault, at which tensors were written, and at the counters.

#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "device_api.h"

namespace yaie {

Machine machine;

Party party_of(const Thread& thread) {
    Party party;
    party.block = machine.block_index;
    party.thread = thread.index;
    party.state = thread.state;
    party.file = uint64_t(thread.site.file);
    party.line = thread.site.line;
    party.what = uint64_t(thread.site.what);
    party.mask = thread.mask;
    return party;
}

Fault fault_here(FaultKind kind, const void* pc) {
    const Machine& m = machine;
    Fault fault;
    fault.kind = kind;
    fault.on_host = !m.kernel;
    fault.kernel = m.kernel;
    const uint32_t shape[6] = {m.grid.x, m.grid.y, m.grid.z, m.block.x, m.block.y, m.block.z};
    memcpy(fault.grid, shape, sizeof fault.grid);
    memcpy(fault.block, shape + 3, sizeof fault.block);
    fault.shared_bytes = m.shared_bytes;
    fault.first.block = m.block_index;
    fault.first.thread = m.current ? m.current->index : 0;
    fault.first.pc = uint64_t(pc);
    return fault;
}

void stop(const Fault& fault) {
    const bool garbage = machine.unwritten.kind && fault.kind != RACE;  // then this follows from it
    machine.fault = garbage ? machine.unwritten : fault;
    machine.in_call = false;
    machine.current = nullptr;
    machine.counters.drop();
    Context dropped;
    switch_context(dropped, machine.caller);
    __builtin_unreachable();
}

namespace {

struct Call {
    void* function = nullptr;
    int64_t integers[40] = {};
    float floats[8] = {};
    pthread_t thread{};
} call;

// Calls a function whose signature is only known to be made of pointers, int64_t and float. Both
// kinds travel in registers of their own, and what does not fit in those follows on the stack,
// where only integers stand as there are no more than eight floats: so one type serves for all of
// them.
void host_main() {
    const int64_t* i = call.integers;
    const float* f = call.floats;
    using I = int64_t;
    using Any = int (*)(I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I,
                        I, I, I, I, I, I, I, I, I, I, I, I, I, I, float, float, float, float, float,
                        float, float, float);
    machine.result = reinterpret_cast<Any>(call.function)(
        i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], i[8], i[9], i[10], i[11], i[12], i[13], i[14],
        i[15], i[16], i[17], i[18], i[19], i[20], i[21], i[22], i[23], i[24], i[25], i[26], i[27],
        i[28], i[29], i[30], i[31], i[32], i[33], i[34], i[35], i[36], i[37], i[38], i[39], f[0], f[1],
        f[2], f[3], f[4], f[5], f[6], f[7]);
    machine.in_call = false;
    Context dropped;
    switch_context(dropped, machine.caller);
}

// A crash that no hook saw coming ends the call, not the process. The signal's own stack is simply
// left.
void on_signal(int number, siginfo_t* info, void*) {
    if (!machine.in_call || !pthread_equal(pthread_self(), call.thread)) {
        signal(number, SIG_DFL);
        return;
    }
    const auto address = uintptr_t(info->si_addr);
    Fault fault = fault_here(number == SIGSEGV && machine.stacks.is_guard(address) ? STACK : CRASH);
    fault.address = address;
    snprintf(fault.text, sizeof fault.text, "%s", strsignal(number));
    stop(fault);
}

constexpr int CRASHES[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

struct Guard {  // our signal handlers, on a stack of their own, for the time of a call
    struct sigaction before[4];
    stack_t stack_before;
    static char* stack() {
        static char memory[64 * 1024];
        return memory;
    }
    Guard() {
        stack_t mine{};
        mine.ss_sp = stack();
        mine.ss_size = 64 * 1024;
        sigaltstack(&mine, &stack_before);
        struct sigaction action{};
        action.sa_sigaction = on_signal;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        for (int i = 0; i < 4; ++i) sigaction(CRASHES[i], &action, &before[i]);
    }
    ~Guard() {
        for (int i = 0; i < 4; ++i) sigaction(CRASHES[i], &before[i], nullptr);
        sigaltstack(&stack_before, nullptr);
    }
};

// Constants of the learner's library that kernels may read: what the loader has mapped without the
// right to write, or taken it away from.
int add_constants(dl_phdr_info* info, size_t, void*) {
    if (info->dlpi_addr != machine.library) return 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& header = info->dlpi_phdr[i];
        const bool constant = header.p_type == PT_LOAD && !(header.p_flags & PF_W);
        if (!constant && header.p_type != PT_GNU_RELRO) continue;
        Region region;
        region.begin = info->dlpi_addr + header.p_vaddr;
        region.size = header.p_memsz;
        region.kind = CONSTANT;
        machine.regions.add(region);
    }
    return 1;
}

Cell* take_cells(size_t bytes, int shift) {
    return reinterpret_cast<Cell*>(
        machine.shadow.take(((bytes >> shift) + 1) * sizeof(Cell)));
}

}  // namespace
}  // namespace yaie

using namespace yaie;

// bytes: of all tensors with the space between them; cells: of their shadow. how: 1 is dry, launches
// are checked and recorded, and no kernel runs; 2 is failing. 0 if there is memory for it.
YAIE_HOOK int yaie_begin(uint64_t library, uint64_t bytes, uint64_t cells, uint64_t seed,
                         uint64_t step_limit, int recording, int how) {
    machine.regions.clear();
    machine.launches.clear();
    machine.fault = machine.unwritten = Fault{};
    machine.library = library;
    machine.seed = seed;
    machine.random = seed;
    machine.step_limit = step_limit;
    machine.recording = recording;
    machine.dry = how & 1;
    machine.failing = how & 2;
    if (!yaie_dynamic_shared()) return 1;
    cells += MOST_SHARED / 2 + 64;
    if (!machine.data.reserve(bytes) || !machine.shadow.reserve(cells * sizeof(Cell))) return 1;
    Region region;
    region.begin = uintptr_t(machine.dynamic_shared);
    region.size = MOST_SHARED;
    region.kind = SHARED_DYNAMIC;
    region.granule_shift = 1;
    region.cells = take_cells(MOST_SHARED, 1);
    machine.regions.add(region);
    dl_iterate_phdr(add_constants, nullptr);
    return 0;
}

// A tensor's memory, `gap` bytes away from the one before; its address is `remainder` modulo 512,
// as on a GPU. valid: a byte for each granule, or null. Returns the address, 0 if there is no
// memory for it.
YAIE_HOOK uint64_t yaie_add_tensor(int id, uint64_t size, uint64_t remainder, uint64_t gap,
                                   int granule_shift, const uint8_t* valid) {
    machine.data.skip(gap);
    Region region;
    region.begin = uintptr_t(machine.data.take(size, 512, remainder));
    region.size = size;
    region.kind = TENSOR;
    region.granule_shift = granule_shift;
    region.valid = valid;
    region.id = id;
    region.cells = take_cells(size, granule_shift);
    if (!region.begin || !region.cells) return 0;
    machine.regions.add(region);
    return region.begin;
}

// A variable of the learner's library, of the kind given.
YAIE_HOOK int yaie_add_variable(int id, int kind, uint64_t address, uint64_t size) {
    Region region;
    region.begin = address;
    region.size = size;
    region.kind = kind;
    region.granule_shift = 1;
    region.id = id;
    region.cells = take_cells(size, 1);
    machine.regions.add(region);
    return region.cells ? 0 : 1;
}

YAIE_HOOK int64_t yaie_invoke(void* function, const int64_t* integers, int integer_count,
                              const float* floats, int float_count) {
    if (!machine.host_stack) machine.host_stack.reset(new char[HOST_STACK]);
    call = Call{};
    call.function = function;
    std::copy(integers, integers + integer_count, call.integers);
    std::copy(floats, floats + float_count, call.floats);
    call.thread = pthread_self();
    machine.stream = integers[integer_count - 1];
    machine.in_call = true;
    machine.current = nullptr;
    machine.result = 0;
    machine.kernel = 0;
    machine.grid = machine.block = {};
    machine.block_index = 0;
    machine.body_size = 0;
    Guard guard;
    prepare(machine.host, machine.host_stack.get(), HOST_STACK, host_main);
    switch_context(machine.caller, machine.host);
    return machine.result;
}

YAIE_HOOK uint64_t yaie_shared_base() { return uint64_t(machine.dynamic_shared); }

YAIE_HOOK const Fault* yaie_fault() { return &machine.fault; }

// Whether a tensor's copy differs from the tensor. Only then is it copied back: a tensor that
// nobody wrote may lie in memory that cannot be written, like weights mapped from a file.
YAIE_HOOK int yaie_differs(uint64_t copy, uint64_t original, uint64_t size) {
    return memcmp(reinterpret_cast<void*>(copy), reinterpret_cast<void*>(original), size) != 0;
}

YAIE_HOOK int yaie_launch_count() { return int(machine.launches.size()); }
YAIE_HOOK const void* yaie_launch_record(int i, const SiteTraffic** sites, int* site_count) {
    const LaunchRecord& record = machine.launches[size_t(i)];
    *sites = record.sites.data();
    *site_count = int(record.sites.size());
    return &record;
}
