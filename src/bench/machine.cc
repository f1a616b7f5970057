// What memory and arithmetic reach here.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/text.h"
#include "base/thread_pool.h"
#include "bench/clock.h"
#include "bench/rates.h"
#include "strata/bench.h"

namespace strata {
namespace {

// Four times the largest caches of today.
constexpr std::int64_t kBufferBytes = std::int64_t{1} << 30;
constexpr std::int64_t kSmallBufferBytes = std::int64_t{1} << 22;
constexpr int kPasses = 6;
constexpr double kLoopSeconds = 0.05;
constexpr double kSmallLoopSeconds = 0.001;

class Buffer {
  public:
    explicit Buffer(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
        void* data =
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) return;
        data_ = static_cast<std::byte*>(data);
        // Large pages where there are some: address translation is no part of the bound.
        ::madvise(data, bytes_, MADV_HUGEPAGE);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() {
        if (data_ != nullptr) ::munmap(data_, bytes_);
    }
    std::byte* data() const { return data_; }

  private:
    std::byte* data_ = nullptr;
    std::size_t bytes_;
};

Result<double> read_rate(ThreadPool& pool, bool small) {
    const std::int64_t bytes = small ? kSmallBufferBytes : kBufferBytes;
    const Buffer buffer(bytes);
    if (buffer.data() == nullptr) {
        return STRATA_ERROR(
            "no room for the ", bytes,
            " bytes over which the memory's speed is measured: ", std::strerror(errno));
    }
    const std::int64_t steps = bytes / bench::kReadStep;
    // Different in every line: pages of equal content can be merged.
    pool.parallel_for(steps, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t at = begin * bench::kReadStep; at < end * bench::kReadStep; at += 8) {
            const std::uint64_t value = static_cast<std::uint64_t>(at) * 0x9E3779B97F4A7C15;
            std::memcpy(buffer.data() + at, &value, sizeof value);
        }
    });
    double best = 0;
    std::atomic<std::uint64_t> sum = 0;
    for (int pass = 0; pass < kPasses; ++pass) {
        const int streams = pass % 2 == 0 ? 1 : bench::kReadStreams;
        const bench::Clock clock;
        pool.parallel_for(steps, [&](std::int64_t begin, std::int64_t end, int) {
            sum += bench::read_all(buffer.data() + begin * bench::kReadStep,
                                   (end - begin) * bench::kReadStep, streams);
        });
        best = std::max(best, static_cast<double>(bytes) / clock.seconds());
    }
    return best;
}

double multiply_rate(ThreadPool& pool, const bench::MultiplyLoop& loop, bool small) {
    // As many rounds as one thread does in the time wanted.
    const double seconds = small ? kSmallLoopSeconds : kLoopSeconds;
    std::int64_t rounds = 1024;
    std::atomic<std::int64_t> sum = 0;
    for (double taken = 0; taken < seconds / 2; rounds *= 2) {
        const bench::Clock clock;
        sum += loop.run(rounds);
        taken = clock.seconds();
    }
    double best = 0;
    for (int pass = 0; pass < kPasses; ++pass) {
        const bench::Clock clock;
        pool.parallel_for(pool.size(),
                          [&](std::int64_t, std::int64_t, int) { sum += loop.run(rounds); });
        best = std::max(
            best, static_cast<double>(rounds) * loop.multiply_adds * pool.size() / clock.seconds());
    }
    return best;
}

}  // namespace

Result<MachineRates> measure_machine(int threads, bool small) {
    if (threads < 0 || threads > kThreadsMax) {
        return STRATA_ERROR("the thread count is ", threads, ", wanted 1 to ", kThreadsMax,
                            ", or 0 for all cores");
    }
    ThreadPool pool(threads == 0 ? available_threads() : threads);
    MachineRates rates;
    rates.threads = pool.size();
    STRATA_ASSIGN(rates.read_bytes, read_rate(pool, small));
    rates.i8_multiply_adds = multiply_rate(pool, bench::i8_loop(), small);
    rates.f32_multiply_adds = multiply_rate(pool, bench::f32_loop(), small);
    // BF16 is the upper half of F32, and its own instruction is the slower one on some processors.
    rates.bf16_multiply_adds =
        std::max(rates.f32_multiply_adds, multiply_rate(pool, bench::bf16_loop(), small));
    return rates;
}

}  // namespace strata
