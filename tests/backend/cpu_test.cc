// The CPU's queue where memory ends.
#include <gtest/gtest.h>

#include <array>
#include <new>

#include "backend/cpu/cpu.h"
#include "backend/cpu/queue.h"

namespace strata::cpu {
namespace {

TEST(CpuQueue, an_op_that_gets_no_memory_is_the_queues_error_and_no_op_runs_after_it) {
    for (const int threads : {1, 3}) {
        const auto device = make_device({.threads = threads});
        const auto made = device->make_queue();
        auto& queue = static_cast<Queue&>(*made);
        std::array<float, 3> values = {1, 2, 3};
        std::array<float, 3> read{};
        const auto download = [&] {
            device->download(queue, std::as_writable_bytes(std::span(read)),
                             reinterpret_cast<const std::byte*>(values.data()));
            return read;
        };
        int ran = 0;
        queue.run_op([&] { ++ran; });
        EXPECT_TRUE(queue.status().ok());
        EXPECT_EQ(download(), values);
        // Of the threads that share an op, one.
        queue.run_op([&] {
            queue.split(1 << 20, 1 << 20, [&](std::int64_t, std::int64_t end, int) {
                if (end == 1 << 20) throw std::bad_alloc();
            });
            ++ran;
        });
        const Status status = queue.status();
        ASSERT_FALSE(status.ok());
        EXPECT_TRUE(status.error().message.starts_with("not enough memory: an op ")) << threads;
        queue.run_op([&] { ++ran; });
        EXPECT_EQ(ran, 1);
        EXPECT_EQ(download(), (std::array<float, 3>{}));
        EXPECT_FALSE(queue.status().ok());
        EXPECT_TRUE(device->make_queue()->status().ok());
    }
}

}  // namespace
}  // namespace strata::cpu
