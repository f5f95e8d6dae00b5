// Which addresses a kernel may touch, and the shadow cells that remember who touched them.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace yaie {

// One access: who, when and where. 16 bytes, three to a cell. `phase` numbers the stretches between
// barriers, over all blocks and launches of the process, so a cell is never cleared: what an earlier
// launch left is recognised by its small phase.
struct Record {
    uint32_t phase = 0;
    uint32_t clock = 0;  // the lane's own time within its warp, see warps.h
    uint32_t pc = 0;     // code address, counted from the library's base
    uint16_t thread = 0;
    uint8_t mask = 0;  // which bytes of the cell
    uint8_t flags = 0;
};
static_assert(sizeof(Record) == 16);

enum RecordFlags : uint8_t {
    ATOMIC_WRITE = 1,
    SEVERAL = 2,       // atomics of several threads: `thread` is only the first of them
    WRITTEN_SHIFT = 4  // from this bit on: bytes that this block has written (shared memory)
};

// The last write, and two reads. Two are enough: the first reader of a phase, and one of another warp.
// Any later writer is unordered with one of them if it is unordered with any reader.
struct Cell {
    Record write;
    Record reads[2];
};

enum RegionKind : int32_t {
    TENSOR = 0,
    SHARED_STATIC = 1,
    SHARED_DYNAMIC = 2,
    CONSTANT = 3,  // may only be read, and nobody watches who does
    VARIABLE = 4,  // __device__ and __constant__ variables
};

struct Region {
    uintptr_t begin = 0;
    size_t size = 0;
    Cell* cells = nullptr;           // one per granule; null: not watched
    const uint8_t* valid = nullptr;  // per granule, null: all of it
    int32_t kind = TENSOR;
    int32_t granule_shift = 0;
    int32_t id = 0;

    bool is_shared() const { return kind == SHARED_STATIC || kind == SHARED_DYNAMIC; }
};

// Memory that is handed out from its start and taken back all at once. Address space is reserved in
// one piece and reused by the next call; pages that are not touched cost nothing.
class Arena {
  public:
    bool reserve(size_t bytes) {
        used_ = 0;
        if (bytes <= size_) return true;
        if (base_) munmap(base_, size_);
        base_ = nullptr;
        size_ = 0;
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return false;
        base_ = static_cast<char*>(memory);
        size_ = bytes;
        return true;
    }
    // Null if the arena is full. `address % modulus` will be `remainder`.
    char* take(size_t bytes, size_t modulus = 64, size_t remainder = 0) {
        size_t start = (used_ + modulus - 1) / modulus * modulus + remainder;
        if (start + bytes > size_) return nullptr;
        used_ = start + bytes;
        return base_ + start;
    }
    void skip(size_t bytes) { used_ += bytes; }

  private:
    char* base_ = nullptr;
    size_t size_ = 0;
    size_t used_ = 0;
};

// All regions, sorted by address. A kernel touches few, so the last two that were hit are tried first.
class Regions {
  public:
    void clear() {
        regions_.clear();
        recent_[0] = recent_[1] = 0;
    }
    void add(const Region& region) {
        auto later = [](const Region& a, const Region& b) { return a.begin < b.begin; };
        regions_.insert(std::upper_bound(regions_.begin(), regions_.end(), region, later), region);
    }
    Region* find(uintptr_t address) {
        for (size_t i : recent_)
            if (i < regions_.size() && address - regions_[i].begin < regions_[i].size)
                return &regions_[i];
        return search(address);
    }
    std::vector<Region>& all() { return regions_; }

  private:
    Region* search(uintptr_t address) {
        size_t low = 0, high = regions_.size();  // the last region that begins at or before address
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (regions_[middle].begin <= address) low = middle + 1;
            else high = middle;
        }
        while (low > 0) {
            Region& region = regions_[--low];
            if (address - region.begin < region.size) {
                recent_[1] = recent_[0];
                recent_[0] = low;
                return &region;
            }
            if (region.size) break;  // empty ones lie anywhere, even within another
        }
        return nullptr;
    }

    std::vector<Region> regions_;
    size_t recent_[2] = {0, 0};
};

}  // namespace yaie
