// What the headers of on_cpu/include call: the device functions that a compiler for CPUs does not
// know. They are declared there, once for both sides.
#pragma once

#include "../include/yaie/runtime.h"
#include "scheduler.h"
#include "undefined.h"

YAIE_HOOK YaieIndex yaie_thread_index() {
    const yaie::Thread* me = yaie::machine.current;
    return me ? YaieIndex{me->position.x, me->position.y, me->position.z} : YaieIndex{0, 0, 0};
}
YAIE_HOOK YaieIndex yaie_block_index() {
    const yaie::Index& at = yaie::machine.block_position;
    return {at.x, at.y, at.z};
}
YAIE_HOOK YaieIndex yaie_block_size() {
    const yaie::Index& size = yaie::machine.block;
    return {size.x, size.y, size.z};
}
YAIE_HOOK YaieIndex yaie_grid_size() {
    const yaie::Index& size = yaie::machine.grid;
    return {size.x, size.y, size.z};
}

// kind: what the result is. 0: how many threads gave a predicate, 1: whether any did, 2: whether all.
YAIE_HOOK int yaie_barrier(int kind, int predicate, const char* what, const char* file, int line) {
    yaie::Thread* me = yaie::machine.current;
    if (!me) return 0;
    me->barrier_kind = kind;
    me->value = uint64_t(predicate != 0);
    me->site = {what, file, line};
    me->state = yaie::AT_BARRIER;
    yaie::switch_context(me->context, yaie::machine.scheduler);
    return int(me->result);
}

YAIE_HOOK uint64_t yaie_collective(int kind, uint32_t mask, uint64_t value, int source,
                                   const char* what, const char* file, int line) {
    return yaie::collective(yaie::CollectiveKind(kind), mask, value, source, {what, file, line});
}

YAIE_HOOK uint32_t yaie_active_mask(const char* file, int line) {
    yaie::Thread* me = yaie::machine.current;
    if (!me) return 0;
    me->site = {"__activemask()", file, line};
    me->collective = yaie::ACTIVE;
    me->state = yaie::IN_COLLECTIVE;
    yaie::switch_context(me->context, yaie::machine.scheduler);
    return uint32_t(me->result);
}

YAIE_HOOK void yaie_fence() {
    if (yaie::machine.current) yaie::machine.current->fenced = true;
}

// Before an atomic; the operation itself follows in the caller, which nothing can interrupt.
YAIE_HOOK void yaie_atomic(void* p, size_t size, const void* pc) {
    yaie::watch(p, size, yaie::ATOMIC, true, pc);
}

// The same memory for every block and kernel, so that a pointer of file scope may hold it too.
YAIE_HOOK void* yaie_dynamic_shared() {
    char*& memory = yaie::machine.dynamic_shared;
    if (!memory) {
        void* mapped = mmap(nullptr, yaie::MOST_SHARED, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memory = mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
    }
    return memory;
}

YAIE_HOOK __attribute__((noreturn)) void yaie_stop(int kind, const char* text, const char* file,
                                                   int line) {
    yaie::Fault fault = yaie::fault_here(yaie::FaultKind(kind));
    fault.first.file = uint64_t(file);
    fault.first.line = line;
    snprintf(fault.text, sizeof fault.text, "%s", text);
    yaie::stop(fault);
}

YAIE_HOOK int yaie_launch(const void* kernel, YaieIndex grid, YaieIndex block, size_t shared_bytes,
                          void* stream, void (*run)(const void*), const void* body,
                          size_t body_size) {
    yaie::Machine& m = yaie::machine;
    if (m.failing) return yaie::FAILED;
    m.kernel = uint64_t(kernel);
    m.grid = {grid.x, grid.y, grid.z};
    m.block = {block.x, block.y, block.z};
    m.shared_bytes = shared_bytes;
    m.launched_on = int64_t(stream);
    m.run = run;
    m.body = body;
    m.body_size = body_size;
    yaie::check_launch();
    for (yaie::Region& region : m.regions.all())
        if (region.kind == yaie::SHARED_DYNAMIC) region.size = shared_bytes;
    yaie::run_launch();
    m.kernel = 0;
    m.body_size = 0;
    m.grid = m.block = {};
    return 0;
}
