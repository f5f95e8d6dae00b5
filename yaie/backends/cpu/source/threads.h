// Work on several threads: PyTorch's own where its OpenMP can be called, since two pools of threads would
// wait for each other on the same cores; threads that are started here otherwise.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

// GOMP_parallel(work, argument, threads, flags): calls work(argument) on each thread of a team.
using Team = void (*)(void (*)(void*), void*, unsigned, unsigned);

class Helpers {
   public:
    void run(void (*work)(void*), void* argument, unsigned threads) {
        {
            std::unique_lock lock(guard_);
            while (helpers_.size() + 1 < threads) {
                const unsigned index = helpers_.size();
                helpers_.emplace_back([this, index] { help(index); });
                helpers_.back().detach();  // they end with the process
            }
            work_ = work, argument_ = argument;
            wanted_ = busy_ = threads - 1;
            turn_++;
        }
        begin_.notify_all();
        work(argument);
        std::unique_lock lock(guard_);
        done_.wait(lock, [this] { return busy_ == 0; });
    }

   private:
    void help(unsigned index) {
        std::unique_lock lock(guard_);
        for (uint64_t seen = 0;;) {
            begin_.wait(lock, [&] { return turn_ != seen; });
            seen = turn_;
            if (index >= wanted_) continue;
            lock.unlock();
            work_(argument_);
            lock.lock();
            if (--busy_ == 0) done_.notify_one();
        }
    }

    std::mutex guard_;
    std::condition_variable begin_, done_;
    std::vector<std::thread> helpers_;
    void (*work_)(void*) = nullptr;
    void* argument_ = nullptr;
    unsigned wanted_ = 0, busy_ = 0;
    uint64_t turn_ = 0;
};

inline void on_helpers(void (*work)(void*), void* argument, unsigned threads) {
    static Helpers* helpers = new Helpers;  // never destroyed: they may be asleep in it
    static std::mutex one_at_a_time;
    std::lock_guard lock(one_at_a_time);
    helpers->run(work, argument, threads);
}

inline Team& team() {
    static Team given = nullptr;
    return given;
}

// How many to start of which `wanted` have enough to do.
inline int at_most(int threads, int64_t wanted) {
    return int(std::max<int64_t>(1, std::min<int64_t>(threads, wanted)));
}

// Calls work(shared) on `threads` threads.
template <typename Shared>
void on_threads(int threads, void (*work)(void*), Shared& shared) {
    if (team() != nullptr)
        team()(work, &shared, unsigned(threads), 0);
    else
        on_helpers(work, &shared, unsigned(threads));
}

// Calls one(i) for every i below count, on up to `threads` threads that each take the next one.
template <typename One>
void for_each(int count, int threads, const One& one) {
    if (threads > count) threads = count;
    if (threads <= 1) {
        for (int i = 0; i < count; i++) one(i);
        return;
    }
    struct Shared {
        const One& one;
        int count;
        std::atomic<int> next{0};
    } shared{one, count};
    const auto work = [](void* argument) {
        auto& mine = *static_cast<Shared*>(argument);
        for (int i; (i = mine.next.fetch_add(1, std::memory_order_relaxed)) < mine.count;) mine.one(i);
    };
    on_threads(threads, work, shared);
}

constexpr int MOST_RUNS = 64;

// The same for small pieces that lie one behind the other: each thread has a run of them, so that it reads
// memory in one direction, and takes from other runs when its own is done.
template <typename One>
void for_each_in_runs(int count, int threads, const One& one) {
    threads = std::min({threads, count, MOST_RUNS});
    if (threads <= 1) {
        for (int i = 0; i < count; i++) one(i);
        return;
    }
    struct Run {
        alignas(64) std::atomic<int> next;
        int end;
    };
    struct Shared {
        const One& one;
        int threads;
        std::atomic<int> arrived{0};
        Run runs[MOST_RUNS];
    } shared{one, threads, {0}, {}};
    for (int run = 0; run < threads; run++) {
        shared.runs[run].next = int(int64_t(count) * run / threads);
        shared.runs[run].end = int(int64_t(count) * (run + 1) / threads);
    }
    const auto work = [](void* argument) {
        auto& mine = *static_cast<Shared*>(argument);
        const int own = mine.arrived.fetch_add(1, std::memory_order_relaxed);
        for (int n = 0; n < mine.threads; n++) {
            Run& run = mine.runs[(own + n) % mine.threads];
            for (int i; (i = run.next.fetch_add(1, std::memory_order_relaxed)) < run.end;) mine.one(i);
        }
    };
    on_threads(threads, work, shared);
}
