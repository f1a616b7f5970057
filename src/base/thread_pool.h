// A fixed set of threads that run one loop together.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace strata {

inline constexpr int kThreadsMax = 256;

// parallel_for splits a range into one contiguous part a thread, so which thread computes an
// element never changes how it is computed. The caller's thread takes part: after its own part it
// runs those of the threads that have not come yet, as where other processes hold the cores, so
// that it waits only for parts that have begun. A thread that waits
// looks without sleeping for a moment, so that loops that follow each other start within a
// microsecond, and then sleeps: an idle pool takes no time. The moment shrinks after waits that
// were far longer, as where other processes hold the cores, and there is none where there are more
// threads than cores.
// One parallel_for at a time; calls from inside a body are not allowed.
class ThreadPool {
  public:
    // `threads` in [1, kThreadsMax], the calling thread counted in; fewer where the system starts
    // no more of them.
    explicit ThreadPool(int threads);
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;
    ~ThreadPool();

    int size() const { return static_cast<int>(workers_.size()) + 1; }

    // Runs body(begin, end, thread) over disjoint parts that cover [0, count), each with another
    // thread in [0, size()); returns when all are done. Parts may run one after the other, so none
    // may wait for another. Empty parts are not run. Allocates nothing. What a body throws, where
    // it finds no memory, comes out of here; of several, one.
    using Body = FunctionRef<void(std::int64_t begin, std::int64_t end, int thread)>;
    void parallel_for(std::int64_t count, Body body);

  private:
    // A number that one side changes and the other waits for.
    struct alignas(64) Signal {
        std::atomic<std::uint32_t> value = 0;
        std::atomic<int> sleepers = 0;

        // Returns once value is no longer `old`. `patience` is how long it looks before it sleeps;
        // it learns from how long the wait was.
        void wait(std::uint32_t old, std::chrono::nanoseconds& patience);
        // After a change: wakes who sleeps.
        void wake();

      private:
        bool look(std::uint32_t old, std::chrono::steady_clock::time_point end) const;
        void sleep(std::uint32_t old);
    };

    struct alignas(64) Turn {
        std::atomic<std::uint32_t> taken = 0;  // the last loop of which the part has been taken
    };

    void work(int thread);
    bool take_part(int thread, std::uint32_t round);
    void run_part(int thread);

    std::vector<std::thread> workers_;
    std::vector<Turn> turns_;                        // of each part
    const std::chrono::nanoseconds first_patience_;  // 0: none, ever
    std::chrono::nanoseconds patience_;              // the caller's
    // Read by a worker only while it runs a part it has taken; written when none does.
    const Body* body_ = nullptr;
    std::int64_t count_ = 0;
    int threads_ = 1;
    std::uint32_t begun_ = 0;  // parts that workers have taken, of all loops so far
    std::atomic<bool> stopping_ = false;
    Signal round_;  // value: loops started
    Signal done_;   // value: parts that workers have finished, of all loops so far
    std::atomic<bool> threw_ = false;
    std::exception_ptr thrown_;  // of the part that was the first to set threw_
};

// Cores that this process may run on (its affinity, and the quota of its control group), at least 1
// and at most kThreadsMax.
int available_threads();

}  // namespace strata
