// Inputs of a benchmark on a device, and its report: the time beside the time that its bytes alone
// would take, and a checksum that shows what was computed.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "tests/support/random.h"

namespace strata::bench {

struct Options {
    bool smoke = false;  // tiny sizes, so that benchmarks cannot rot
    int threads = 0;     // 0: all cores
};

// Memory on one backend's device, filled from a seed; lives as long as the Bed.
class Bed {
  public:
    Bed(const Options& options, const char* seed);

    const op::Table& ops() const { return backend_.ops; }
    device::Queue& queue() { return *queue_; }

    float* floats(std::int64_t n, double low = -1, double high = 1);
    std::uint16_t* halves(std::int64_t n);  // F16
    float* zeros(std::int64_t n);
    MatrixView<float> matrix(std::int64_t rows, std::int64_t cols) {
        return {floats(rows * cols), rows, cols};
    }
    // Some random rows, again and again: what is read counts, not what it says.
    op::Weight weight(quant::Type type, std::int64_t rows, std::int64_t cols);

    template <typename T>
    const T* upload(const std::vector<T>& values) {
        std::byte* to = allocate(values.size() * sizeof(T));
        backend_.device->upload(*queue_, to, std::as_bytes(std::span(values)));
        return reinterpret_cast<const T*>(to);
    }
    template <typename T>
    std::vector<T> download(const T* from, std::int64_t n) {
        std::vector<T> values(static_cast<std::size_t>(n));
        backend_.device->download(*queue_, std::as_writable_bytes(std::span(values)),
                                  reinterpret_cast<const std::byte*>(from));
        queue_->wait();
        return values;
    }

  private:
    std::byte* allocate(std::size_t bytes);

    Backend backend_;
    std::unique_ptr<device::Queue> queue_;
    std::vector<device::Buffer> buffers_;
    test::Random random_;
};

// Bytes that all rows of weights take.
double bytes_of(std::initializer_list<op::Weight> weights);

// Bytes a second that copying on `threads` threads reads and writes; measured once.
double copy_bandwidth(const Options& options);

// Runs `call` once for the checksum over `out`, then for as long as the benchmark asks, and sets
// the label: bytes (as `bytes` counts them after the first run), floor, share of it reached,
// checksum.
void measure(benchmark::State& state, const Options& options, Bed& bed,
             const std::function<void()>& call, MatrixView<const float> out,
             const std::function<double()>& bytes);

}  // namespace strata::bench
