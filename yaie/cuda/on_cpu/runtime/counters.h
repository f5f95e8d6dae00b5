// Counts of a launch: what the memory system of a GPU would have to do for these accesses.
//
// A GPU executes a load for the 32 lanes of a warp at once. Here the lanes run one after another,
// so the k-th time that each lane comes to the same instruction between two barriers is taken to
// be one request.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

namespace yaie {

struct Traffic {  // order repeated in launches.py
    uint64_t count = 0;          // accesses by single threads
    uint64_t bytes = 0;          // that they asked for
    uint64_t requests = 0;       // by warps
    uint64_t sectors = 0;        // 32-byte pieces that they touched, summed over requests
    uint64_t ideal_sectors = 0;  // had the same bytes lain side by side
    uint64_t extra_passes = 0;   // bank conflicts: passes beyond those that the width needs
};

enum TrafficClass { GLOBAL_LOAD, GLOBAL_STORE, SHARED_LOAD, SHARED_STORE, TRAFFIC_CLASSES };

// One request of a warp: what each lane asked for.
struct Request {  // order repeated in binding.py
    uint32_t mask = 0, size = 0;
    uint64_t address[32];
};

struct SiteTraffic {
    static constexpr int SAMPLES = 8;
    uint64_t pc = 0;
    int32_t traffic_class = 0;
    int32_t samples = 0;  // the first requests of a launch, to be drawn
    Traffic traffic;
    Request sample[SAMPLES];
};

struct LaunchRecord {
    uint64_t kernel = 0;
    uint32_t grid[3] = {}, block[3] = {};
    uint64_t shared_bytes = 0;
    uint64_t barriers = 0;  // once for a block
    uint64_t collectives = 0;  // once for a warp: shuffles, votes, __syncwarp
    uint64_t atomics = 0;  // by threads
    Traffic traffic[TRAFFIC_CLASSES];
    std::vector<SiteTraffic> sites;
};

class Counters {
  public:
    LaunchRecord record;

    void start(const LaunchRecord& launch) {
        record = launch;
        sites_.clear();
    }

    void use_warps(uint32_t warps) {
        used_ = warps;
        warps_.resize(std::max<size_t>(warps_.size(), warps));
    }

    void access(TrafficClass kind, uint32_t warp, uint32_t lane, uint64_t address, uint32_t size,
                uint64_t pc) {
        Traffic& total = record.traffic[kind];
        total.count += 1;
        total.bytes += size;
        Slot& slot = warps_[warp][pc * TRAFFIC_CLASSES + kind];
        if (slot.requests.empty()) std::fill(slot.times, slot.times + 32, 0);
        uint32_t time = slot.times[lane]++;
        if (time >= slot.requests.size()) slot.requests.emplace_back();
        Request& request = slot.requests[time];
        request.mask |= 1u << lane;
        request.size = size;
        request.address[lane] = address;
    }

    // All threads of the block are at a barrier, or have returned.
    void end_phase() {
        for (size_t warp = 0; warp < used_; ++warp)
            for (auto& [key, slot] : warps_[warp]) {
                if (slot.requests.empty()) continue;
                Traffic sum;
                auto kind = TrafficClass(key % TRAFFIC_CLASSES);
                for (const Request& request : slot.requests) add(sum, kind, request);
                SiteTraffic& site = sites_[key];
                site.pc = key / TRAFFIC_CLASSES;
                site.traffic_class = kind;
                for (const Request& request : slot.requests)
                    if (site.samples < SiteTraffic::SAMPLES) site.sample[site.samples++] = request;
                merge(site.traffic, sum);
                sum.count = sum.bytes = 0;  // already in the total
                merge(record.traffic[kind], sum);
                slot.requests.clear();
            }
    }

    LaunchRecord finish() {
        for (auto& [key, site] : sites_) record.sites.push_back(site);
        for (auto& warp : warps_) warp.clear();
        return std::move(record);
    }
    void drop() {
        for (auto& warp : warps_) warp.clear();
    }

  private:
    struct Slot {
        uint32_t times[32] = {};
        std::vector<Request> requests;
    };

    static void merge(Traffic& into, const Traffic& from) {
        into.count += from.count;
        into.bytes += from.bytes;
        into.requests += from.requests;
        into.sectors += from.sectors;
        into.ideal_sectors += from.ideal_sectors;
        into.extra_passes += from.extra_passes;
    }

    static size_t distinct(uint64_t* values, size_t n) {
        std::sort(values, values + n);
        return size_t(std::unique(values, values + n) - values);
    }

    static void add(Traffic& sum, TrafficClass kind, const Request& request) {
        uint64_t starts[32];
        size_t lanes = 0;
        for (uint32_t lane = 0; lane < 32; ++lane)
            if (request.mask >> lane & 1) starts[lanes++] = request.address[lane];
        sum.count += lanes;
        sum.bytes += lanes * request.size;
        sum.requests += 1;
        if (kind == GLOBAL_LOAD || kind == GLOBAL_STORE) {
            uint64_t sectors[32 * 3];
            size_t n = 0;
            for (size_t i = 0; i < lanes; ++i) {
                uint64_t last = (starts[i] + std::min(request.size, 64u) - 1) / 32;
                for (uint64_t s = starts[i] / 32; s <= last; ++s) sectors[n++] = s;
            }
            sum.sectors += distinct(sectors, n);
            sum.ideal_sectors += (distinct(starts, lanes) * request.size + 31) / 32;
        } else {
            sum.extra_passes += conflicts(request);
        }
    }

    // 32 banks of 4 bytes. An access of 8 or 16 bytes is served for a half or a quarter of the warp
    // at a time. Lanes that read the same word share it.
    static uint64_t conflicts(const Request& request) {
        uint32_t words = std::max(1u, request.size / 4);
        uint32_t group = std::max(1u, 32 / words);
        uint64_t extra = 0;
        for (uint32_t first = 0; first < 32; first += group) {
            uint64_t touched[64];
            size_t n = 0;
            for (uint32_t lane = first; lane < first + group; ++lane)
                if (request.mask >> lane & 1)
                    for (uint32_t w = 0; w < std::min(words, 64u / group); ++w)
                        touched[n++] = request.address[lane] / 4 + w;
            n = distinct(touched, n);
            uint32_t passes[32] = {}, most = 0;
            for (size_t i = 0; i < n; ++i) most = std::max(most, ++passes[touched[i] % 32]);
            extra += most > 1 ? most - 1 : 0;
        }
        return extra;
    }

    size_t used_ = 0;
    std::vector<std::unordered_map<uint64_t, Slot>> warps_;
    std::unordered_map<uint64_t, SiteTraffic> sites_;
};

}  // namespace yaie
