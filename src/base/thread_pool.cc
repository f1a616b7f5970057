#include "base/thread_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace strata {
namespace {

// The most is longer than what a caller does between two loops of a step, and than what it takes to
// wake a thread. A wait that was much longer says that other processes hold the cores, or that
// nothing is to be done: then looking keeps a core from whoever needs it.
constexpr std::chrono::nanoseconds kPatienceMost{300'000};
constexpr std::chrono::nanoseconds kPatienceLeast{1'000};
constexpr std::chrono::nanoseconds kPatienceStep{2'000};
constexpr std::chrono::nanoseconds kLongWait{1'000'000};
constexpr int kPatienceFall = 8;

// Looks between two glances at the clock.
constexpr int kLooks = 8;

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// std::atomic's own wait yields for a while before it sleeps, which costs more than both.
void futex(std::atomic<std::uint32_t>& value, int operation, std::uint32_t argument) {
    static_assert(sizeof(value) == sizeof(std::uint32_t));
    ::syscall(SYS_futex, &value, operation, argument, nullptr, nullptr, 0);
}

// Cores' worth of time that the control group grants; kThreadsMax where there is no limit.
int quota_threads() {
    std::ifstream groups("/proc/self/cgroup");
    std::string line;
    while (std::getline(groups, line)) {
        if (!line.starts_with("0::")) continue;
        std::ifstream file("/sys/fs/cgroup" + line.substr(3) + "/cpu.max");
        double quota = 0;
        double period = 0;
        if (!(file >> quota >> period) || quota <= 0 || period <= 0) break;  // "max": no number
        return static_cast<int>(std::min<double>(std::ceil(quota / period), kThreadsMax));
    }
    return kThreadsMax;
}

}  // namespace

bool ThreadPool::Signal::look(std::uint32_t old, std::chrono::steady_clock::time_point end) const {
    do {
        for (int i = 0; i < kLooks; ++i) {
            if (value.load(std::memory_order_acquire) != old) return true;
            relax();
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

void ThreadPool::Signal::sleep(std::uint32_t old) {
    // Announced before the last look at the value, which wake() may have changed just before it
    // looked for sleepers: one of the two sees the other.
    sleepers.fetch_add(1);
    while (value.load() == old) futex(value, FUTEX_WAIT_PRIVATE, old);
    sleepers.fetch_sub(1);
}

void ThreadPool::Signal::wait(std::uint32_t old, std::chrono::nanoseconds& patience) {
    if (patience.count() == 0) return sleep(old);
    const auto start = std::chrono::steady_clock::now();
    bool brief = look(old, start + patience);
    if (!brief) {
        sleep(old);
        brief = std::chrono::steady_clock::now() - start < kLongWait;
    }
    patience = brief ? std::min(patience + kPatienceStep, kPatienceMost)
                     : std::max(patience / kPatienceFall, kPatienceLeast);
}

void ThreadPool::Signal::wake() {
    if (sleepers.load() > 0) futex(value, FUTEX_WAKE_PRIVATE, kThreadsMax);
}

ThreadPool::ThreadPool(int threads)
    : first_patience_(threads > available_threads() ? std::chrono::nanoseconds{0} : kPatienceLeast),
      patience_(first_patience_) {
    STRATA_CHECK(threads >= 1 && threads <= kThreadsMax);
    turns_ = std::vector<Turn>(static_cast<std::size_t>(threads));
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
    stopping_ = true;
    round_.value.fetch_add(1);
    round_.wake();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(std::int64_t count, Body body) {
    if (count <= 0) return;
    if (workers_.empty() || count == 1) {
        body(0, count, 0);
        return;
    }
    STRATA_CHECK(body_ == nullptr);
    body_ = &body;
    count_ = count;
    threads_ = size();
    const std::uint32_t round = round_.value.fetch_add(1) + 1;
    round_.wake();
    run_part(0);
    for (int thread = 1; thread < threads_; ++thread) {
        if (take_part(thread, round))
            run_part(thread);
        else
            ++begun_;
    }
    std::uint32_t done = done_.value.load(std::memory_order_acquire);
    while (done != begun_) {
        done_.wait(done, patience_);
        done = done_.value.load(std::memory_order_acquire);
    }
    body_ = nullptr;
    if (threw_.exchange(false)) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

// Whoever turns the number of the loop before into this loop's runs the part. A worker that comes
// late, to a loop that is over, finds another number.
bool ThreadPool::take_part(int thread, std::uint32_t round) {
    std::uint32_t before = round - 1;
    return turns_[static_cast<std::size_t>(thread)].taken.compare_exchange_strong(
        before, round, std::memory_order_acq_rel);
}

void ThreadPool::run_part(int thread) {
    const std::int64_t begin = count_ * thread / threads_;
    const std::int64_t end = count_ * (thread + 1) / threads_;
    if (begin >= end) return;
    try {
        (*body_)(begin, end, thread);
    } catch (...) {
        if (!threw_.exchange(true)) thrown_ = std::current_exception();
    }
}

void ThreadPool::work(int thread) {
    std::chrono::nanoseconds patience = first_patience_;
    for (std::uint32_t seen = 0;;) {
        round_.wait(seen, patience);
        seen = round_.value.load(std::memory_order_acquire);
        if (stopping_) return;
        if (!take_part(thread, seen)) continue;
        run_part(thread);
        done_.value.fetch_add(1);
        done_.wake();
    }
}

int available_threads() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
    return std::clamp(std::min(CPU_COUNT(&set), quota_threads()), 1, kThreadsMax);
}

}  // namespace strata
