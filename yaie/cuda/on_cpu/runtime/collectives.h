// What the lanes of a warp do together: __syncwarp, shuffles, votes, matches, reductions.
#pragma once

#include "threads.h"

namespace yaie {

inline const char* MASK_WITHOUT_CALLER = "the mask does not name the lane that calls";

[[noreturn]] inline void stop_collective(const Thread& thread, const char* text) {
    Fault fault = fault_here(UNDEFINED);
    fault.first = party_of(thread);
    snprintf(fault.text, sizeof fault.text, "%s", text);
    stop(fault);
}

// The value of `mine` among those of the lanes in `mask`.
inline uint64_t combine(const Thread& mine, const Thread* lanes, uint32_t mask) {
    uint64_t result = 0;
    bool first = true;
    for (uint32_t lane = 0; lane < WARP; ++lane) {
        if (!(mask >> lane & 1)) continue;
        const uint64_t value = lanes[lane].value;
        const uint32_t bits = uint32_t(value), so_far = uint32_t(result);
        switch (mine.collective) {
            case SYNC: case SHUFFLE: case ACTIVE: break;
            case BALLOT: result |= uint64_t(value != 0) << lane; break;
            case MATCH_ANY: result |= uint64_t(value == mine.value) << lane; break;
            case MATCH_ALL: result = first ? mask : result;
                            if (value != mine.value) return 0;
                            break;
            case ADD_SIGNED: result = uint32_t(so_far + bits); break;
            case MIN_SIGNED: result = first || int32_t(bits) < int32_t(so_far) ? bits : so_far; break;
            case MAX_SIGNED: result = first || int32_t(bits) > int32_t(so_far) ? bits : so_far; break;
            case MIN_UNSIGNED: result = first || bits < so_far ? bits : so_far; break;
            case MAX_UNSIGNED: result = first || bits > so_far ? bits : so_far; break;
            case AND: result = first ? bits : so_far & bits; break;
            case OR: result = so_far | bits; break;
            case XOR: result = so_far ^ bits; break;
        }
        first = false;
    }
    return result;
}

// All lanes of the mask have come: give each its result and let it run on.
inline void complete(Thread* lanes, Warp& warp, uint32_t mask, Thread& last) {
    if (last.collective == SYNC) {  // the others do not order memory (CUDA's programming guide)
        uint32_t known[WARP] = {};
        for (uint32_t lane = 0; lane < WARP; ++lane)
            if (mask >> lane & 1)
                for (uint32_t i = 0; i < WARP; ++i)
                    known[i] = std::max(known[i], warp.seen[lane][i]);
        for (uint32_t lane = 0; lane < WARP; ++lane)
            if (mask >> lane & 1) {
                std::copy(known, known + WARP, warp.seen[lane]);
                warp.seen[lane][lane] += 1;
            }
    }
    for (uint32_t lane = 0; lane < WARP; ++lane) {
        if (!(mask >> lane & 1)) continue;
        Thread& thread = lanes[lane];
        if (thread.collective == SHUFFLE) {
            if (!(mask >> thread.source & 1)) {
                Fault fault = fault_here(UNDEFINED);
                fault.first = party_of(thread);
                snprintf(fault.text, sizeof fault.text,
                         "lane %u takes a value from lane %d, which %s", thread.lane, thread.source,
                         warp.exists >> thread.source & 1 ? "its mask does not name"
                                                          : "does not exist in this block");
                stop(fault);
            }
            thread.result = lanes[thread.source].value;
        } else {
            thread.result = combine(thread, lanes, mask);
        }
        thread.state = READY;
        if (&thread != &last) machine.ready.push_back(thread.index);
    }
    if (machine.recording) machine.counters.record.collectives += 1;
}

inline uint64_t collective(CollectiveKind kind, uint32_t mask, uint64_t value, int32_t source,
                           Site site) {
    Thread* me = machine.current;
    if (!me) return 0;
    Warp& warp = machine.warps[me->warp];
    Thread* lanes = &machine.threads[me->warp * WARP];
    mask &= warp.exists;
    me->site = site;
    me->collective = kind;
    me->mask = mask;
    me->value = value;
    me->source = source;
    if (!(mask >> me->lane & 1)) stop_collective(*me, MASK_WITHOUT_CALLER);
    me->state = IN_COLLECTIVE;
    for (uint32_t lane = 0; lane < WARP; ++lane) {
        if (!(mask >> lane & 1)) continue;
        const Thread& other = lanes[lane];
        if (other.state != IN_COLLECTIVE || other.mask != mask || other.collective != kind) {
            switch_context(me->context, machine.scheduler);
            return me->result;
        }
    }
    complete(lanes, warp, mask, *me);
    return me->result;
}

// __activemask: which lanes run this together. Here none do, so it waits until no lane can run on, and
// then those that came to the same line are told of each other. False: nobody waits so.
inline bool tell_active_masks() {
    bool told = false;
    for (Thread& thread : machine.threads) {
        if (thread.state != IN_COLLECTIVE || thread.collective != ACTIVE) continue;
        Thread* lanes = &machine.threads[thread.warp * WARP];
        uint32_t mask = 0;
        for (uint32_t lane = 0; lane < WARP; ++lane)
            if (machine.warps[thread.warp].exists >> lane & 1 &&
                lanes[lane].state == IN_COLLECTIVE && lanes[lane].collective == ACTIVE &&
                lanes[lane].site.line == thread.site.line)
                mask |= 1u << lane;
        for (uint32_t lane = 0; lane < WARP; ++lane) {
            if (!(mask >> lane & 1)) continue;
            lanes[lane].result = mask;
            lanes[lane].state = READY;
            machine.ready.push_back(lanes[lane].index);
        }
        told = true;
    }
    return told;
}

}  // namespace yaie
