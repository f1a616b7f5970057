#include "bench/support/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <span>

#include "base/thread_pool.h"
#include "quant/half.h"
#include "tests/support/weights.h"

namespace strata::bench {
namespace {

Backend make_backend(const Options& options) {
    auto backend = make_cpu_backend({.threads = options.threads});
    STRATA_CHECK(backend.ok());
    return std::move(backend).value();
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double measure_copy(const Options& options) {
    // Well beyond any cache, and the best of a few, as a bound should be.
    const std::size_t bytes = options.smoke ? std::size_t{1} << 20 : std::size_t{1} << 28;
    const int threads = options.threads == 0 ? available_threads() : options.threads;
    constexpr int kRuns = 5;
    std::vector<std::byte> from(bytes, std::byte{1});
    std::vector<std::byte> to(bytes);
    ThreadPool pool(threads);
    double best = 0;
    for (int run = 0; run < kRuns; ++run) {
        const auto start = std::chrono::steady_clock::now();
        pool.parallel_for(static_cast<std::int64_t>(bytes),
                          [&](std::int64_t begin, std::int64_t end, int) {
                              std::memcpy(to.data() + begin, from.data() + begin,
                                          static_cast<std::size_t>(end - begin));
                          });
        benchmark::DoNotOptimize(to.data());
        best = std::max(best, 2.0 * static_cast<double>(bytes) / seconds_since(start));
    }
    return best;
}

}  // namespace

Bed::Bed(const Options& options, const char* seed)
    : backend_(make_backend(options)), queue_(backend_.device->make_queue()), random_(seed) {}

std::byte* Bed::allocate(std::size_t bytes) {
    auto buffer = backend_.device->allocate(bytes);
    STRATA_CHECK(buffer.ok());
    buffers_.push_back(std::move(buffer).value());
    return buffers_.back().data();
}

float* Bed::floats(std::int64_t n, double low, double high) {
    return const_cast<float*>(upload(random_.floats(n, low, high)));
}

std::uint16_t* Bed::halves(std::int64_t n) {
    std::vector<std::uint16_t> values;
    for (const float value : random_.floats(n, -1, 1)) values.push_back(quant::f32_to_f16(value));
    return const_cast<std::uint16_t*>(upload(values));
}

float* Bed::zeros(std::int64_t n) {
    return reinterpret_cast<float*>(allocate(static_cast<std::size_t>(n) * sizeof(float)));
}

op::Weight Bed::weight(quant::Type type, std::int64_t rows, std::int64_t cols) {
    constexpr std::int64_t kRandomRows = 16;
    const auto some = test::random_weight(random_, type, std::min(rows, kRandomRows), cols);
    std::vector<std::byte> all(static_cast<std::size_t>(rows * some.row_bytes()));
    for (std::size_t at = 0; at < all.size(); at += some.bytes.size()) {
        std::memcpy(all.data() + at, some.bytes.data(),
                    std::min(some.bytes.size(), all.size() - at));
    }
    return {upload(all), type, rows, cols, some.row_bytes()};
}

double bytes_of(std::initializer_list<op::Weight> weights) {
    double bytes = 0;
    for (const op::Weight& weight : weights) {
        bytes += static_cast<double>(weight.rows) * static_cast<double>(weight.row_bytes);
    }
    return bytes;
}

double copy_bandwidth(const Options& options) {
    static const double bandwidth = measure_copy(options);
    return bandwidth;
}

void measure(benchmark::State& state, const Options& options, Bed& bed,
             const std::function<void()>& call, MatrixView<const float> out,
             const std::function<double()>& bytes) {
    call();
    bed.queue().wait();
    double checksum = 0;
    for (const float value : bed.download(out.data, out.size())) checksum += value;
    const double moved = bytes();
    const auto start = std::chrono::steady_clock::now();
    for ([[maybe_unused]] auto _ : state) {
        call();
        bed.queue().wait();
    }
    const double seconds = seconds_since(start) / static_cast<double>(state.iterations());
    const double floor = moved / copy_bandwidth(options);
    char label[160];
    std::snprintf(label, sizeof label, "%.2f MB, floor %.1f us (%.0f%% reached), checksum %.6g",
                  moved / 1e6, floor * 1e6, 100 * floor / seconds, checksum);
    state.SetLabel(label);
}

}  // namespace strata::bench
