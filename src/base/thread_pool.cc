#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <system_error>

#include "base/check.h"

namespace strata {

ThreadPool::ThreadPool(int threads) {
    STRATA_CHECK(threads >= 1 && threads <= kThreadsMax);
    workers_.reserve(static_cast<std::size_t>(threads) - 1);
    for (int thread = 1; thread < threads; ++thread) {
        try {
            workers_.emplace_back([this, thread] { work(thread); });
        } catch (const std::system_error&) {
            break;  // what a thread computes does not depend on how many there are
        }
    }
}

ThreadPool::~ThreadPool() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    start_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(std::int64_t count, const Body& body) {
    if (count <= 0) return;
    if (workers_.empty() || count == 1) {
        body(0, count, 0);
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        STRATA_CHECK(running_ == 0);
        body_ = &body;
        count_ = count;
        running_ = static_cast<int>(workers_.size());
        ++round_;
    }
    start_.notify_all();
    run_part(0);
    std::unique_lock lock(mutex_);
    finish_.wait(lock, [this] { return running_ == 0; });
    body_ = nullptr;
}

void ThreadPool::run_part(int thread) {
    const std::int64_t begin = count_ * thread / size();
    const std::int64_t end = count_ * (thread + 1) / size();
    if (begin < end) (*body_)(begin, end, thread);
}

void ThreadPool::work(int thread) {
    std::uint64_t seen = 0;
    while (true) {
        {
            std::unique_lock lock(mutex_);
            start_.wait(lock, [&] { return stopping_ || round_ != seen; });
            if (stopping_) return;
            seen = round_;
        }
        run_part(thread);
        {
            const std::lock_guard lock(mutex_);
            --running_;
        }
        finish_.notify_one();
    }
}

int available_threads() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
    return std::clamp(CPU_COUNT(&set), 1, kThreadsMax);
}

}  // namespace strata
