// A fixed set of threads that run one loop together.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace strata {

inline constexpr int kThreadsMax = 256;

// parallel_for splits a range into one contiguous part a thread, so which thread computes an
// element never changes how it is computed. The caller's thread takes part; waiting threads sleep.
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

    // Runs body(begin, end, thread) over disjoint parts that cover [0, count), thread in
    // [0, size()); returns when all are done. Empty parts are not run.
    using Body = std::function<void(std::int64_t begin, std::int64_t end, int thread)>;
    void parallel_for(std::int64_t count, const Body& body);

  private:
    void work(int thread);
    void run_part(int thread);

    std::vector<std::thread> workers_;
    std::mutex mutex_;
    std::condition_variable start_;
    std::condition_variable finish_;
    const Body* body_ = nullptr;
    std::int64_t count_ = 0;
    std::uint64_t round_ = 0;
    int running_ = 0;
    bool stopping_ = false;
};

// Cores that this process may run on, at least 1 and at most kThreadsMax.
int available_threads();

}  // namespace strata
