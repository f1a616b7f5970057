#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

namespace strata {
namespace {

constexpr int kSizes[] = {1, 2, 3, 7, 16};

TEST(ThreadPool, every_element_is_visited_once_by_a_thread_of_the_pool) {
    for (const int size : kSizes) {
        ThreadPool pool(size);
        EXPECT_EQ(pool.size(), size);
        for (const std::int64_t count : {1, 2, 3, 5, 16, 17, 1000}) {
            std::vector<int> visits(static_cast<std::size_t>(count));
            std::atomic<int> parts = 0;
            std::atomic<bool> in_range = true;
            pool.parallel_for(count, [&](std::int64_t begin, std::int64_t end, int thread) {
                if (begin < 0 || begin >= end || end > count || thread < 0 || thread >= size) {
                    in_range = false;
                    return;
                }
                for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
                ++parts;
            });
            EXPECT_TRUE(in_range);
            EXPECT_LE(parts, std::min<std::int64_t>(size, count));
            EXPECT_EQ(std::count(visits.begin(), visits.end(), 1), count) << size;
        }
    }
}

TEST(ThreadPool, no_elements_run_nothing) {
    ThreadPool pool(3);
    bool ran = false;
    pool.parallel_for(0, [&](std::int64_t, std::int64_t, int) { ran = true; });
    pool.parallel_for(-1, [&](std::int64_t, std::int64_t, int) { ran = true; });
    EXPECT_FALSE(ran);
}

TEST(ThreadPool, a_thread_never_runs_two_parts_of_one_loop) {
    ThreadPool pool(5);
    for (int round = 0; round < 100; ++round) {
        std::vector<int> parts(5);
        pool.parallel_for(40, [&](std::int64_t, std::int64_t, int thread) {
            ++parts[static_cast<std::size_t>(thread)];
        });
        EXPECT_EQ(parts, std::vector<int>(5, 1));
    }
}

// Plain variables on both sides: a missing fence is a race that ThreadSanitizer reports.
TEST(ThreadPool, the_caller_sees_what_the_threads_wrote_and_they_what_it_wrote) {
    ThreadPool pool(4);
    std::vector<std::int64_t> values(64);
    std::int64_t wanted = 0;
    for (std::int64_t round = 1; round <= 2000; ++round) {
        const std::int64_t addend = round;
        pool.parallel_for(64, [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t i = begin; i < end; ++i)
                values[static_cast<std::size_t>(i)] += addend;
        });
        wanted += round;
        ASSERT_EQ(std::accumulate(values.begin(), values.end(), std::int64_t{0}), 64 * wanted);
    }
}

TEST(ThreadPool, pools_start_and_stop_whether_or_not_they_worked) {
    for (int round = 0; round < 50; ++round) {
        ThreadPool idle(4);
        ThreadPool busy(4);
        std::atomic<int> sum = 0;
        busy.parallel_for(
            4, [&](std::int64_t begin, std::int64_t, int) { sum += static_cast<int>(begin); });
        EXPECT_EQ(sum, 6);
    }
}

// Runs body in a process of one core, which ends after 20 seconds at the latest; its status is what
// body returns.
template <typename Body>
int on_one_core(const Body& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(20);
        cpu_set_t all;
        cpu_set_t one;
        CPU_ZERO(&one);
        if (::sched_getaffinity(0, sizeof(all), &all) != 0) ::_exit(9);
        int core = 0;
        while (!CPU_ISSET(core, &all)) ++core;
        CPU_SET(core, &one);
        if (::sched_setaffinity(0, sizeof(one), &one) != 0) ::_exit(9);
        ::_exit(available_threads() == 1 ? body() : 9);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A wait that never gave its core away would take the scheduler's whole turn, some milliseconds, a
// loop; the alarm ends the child long before 4000 of those.
TEST(ThreadPool, more_threads_than_cores_finish_their_loops) {
    EXPECT_EQ(on_one_core([] {
                  ThreadPool pool(8);
                  std::atomic<std::int64_t> done = 0;
                  for (int round = 0; round < 4000; ++round) {
                      pool.parallel_for(8, [&](std::int64_t begin, std::int64_t end, int) {
                          done += end - begin;
                      });
                  }
                  return done == 8 * 4000 ? 0 : 1;
              }),
              0);
}

// The only core is the caller's until it sleeps, so the others come late to most loops.
TEST(ThreadPool, the_caller_runs_the_parts_of_threads_that_have_not_come) {
    EXPECT_EQ(on_one_core([] {
                  ThreadPool pool(4);
                  int alone = 0;
                  for (int round = 0; round < 1000; ++round) {
                      std::atomic<int> own = 0;
                      const std::thread::id caller = std::this_thread::get_id();
                      pool.parallel_for(4, [&](std::int64_t, std::int64_t, int) {
                          if (std::this_thread::get_id() == caller) ++own;
                      });
                      if (own == 4) ++alone;
                  }
                  return alone > 0 ? 0 : 1;
              }),
              0);
}

// Loops that late threads find over, or find the next of: each part is run once all the same.
TEST(ThreadPool, late_threads_change_nothing) {
    ThreadPool pool(7);
    for (int round = 0; round < 20000; ++round) {
        std::vector<int> parts(7);
        pool.parallel_for(7, [&](std::int64_t begin, std::int64_t end, int thread) {
            parts[static_cast<std::size_t>(thread)] += static_cast<int>(end - begin);
        });
        ASSERT_EQ(parts, std::vector<int>(7, 1));
    }
}

TEST(ThreadPool, memory_that_a_body_does_not_get_is_the_callers_error_and_the_pool_goes_on) {
    for (const int size : kSizes) {
        ThreadPool pool(size);
        for (int failing = 0; failing < size; ++failing) {
            std::atomic<std::int64_t> done = 0;
            const auto body = [&](std::int64_t begin, std::int64_t end, int thread) {
                if (thread == failing) throw std::bad_alloc();
                done += end - begin;
            };
            const std::int64_t count = 4 * size;
            EXPECT_THROW(pool.parallel_for(count, body), std::bad_alloc);
            EXPECT_EQ(done, count - 4);  // the others', whole
            pool.parallel_for(
                count, [&](std::int64_t begin, std::int64_t end, int) { done += end - begin; });
            EXPECT_EQ(done, 2 * count - 4);
        }
        const auto none = [](std::int64_t, std::int64_t, int) { throw std::bad_alloc(); };
        EXPECT_THROW(pool.parallel_for(size, none), std::bad_alloc);
    }
}

TEST(ThreadPool, threads_that_wait_for_long_take_no_time) {
    ThreadPool pool(3);
    pool.parallel_for(3, [](std::int64_t, std::int64_t, int) {});
    const std::clock_t before = std::clock();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto spent = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
    EXPECT_LT(spent, 0.05);
}

// Sanitizers map more address space than a limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ThreadPool, a_system_that_starts_no_more_threads_gives_a_smaller_pool) {
    const pid_t child = ::fork();
    if (child == 0) {
        // Room for the stacks of a few threads of the many that are asked for.
        const rlimit limit = {std::size_t{64} << 20, std::size_t{64} << 20};
        if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(9);
        ThreadPool pool(64);
        std::atomic<int> done = 0;
        pool.parallel_for(64, [&](std::int64_t begin, std::int64_t end, int) {
            done += static_cast<int>(end - begin);
        });
        ::_exit(done == 64 && pool.size() < 64 ? 0 : 1);
    }
    ASSERT_GT(child, 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}
#endif

TEST(ThreadPool, at_least_one_thread_is_available) {
    EXPECT_GE(available_threads(), 1);
    EXPECT_LE(available_threads(), kThreadsMax);
}

}  // namespace
}  // namespace strata
