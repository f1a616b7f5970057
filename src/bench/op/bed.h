// Memory of one benchmark on a device, filled from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace strata::bench {

struct OpOptions {
    bool smoke = false;          // tiny sizes, so that benchmarks cannot rot
    int threads = 0;             // 0: all cores
    Backend* backend = nullptr;  // null: a CPU backend of its own, with these threads
};

// Lives as long as what it handed out is used.
class Bed {
  public:
    Bed(const OpOptions& options, std::string_view seed);

    const op::Table& ops() const { return backend_.ops; }
    device::Queue& queue() { return *queue_; }

    float* floats(std::int64_t n, double low = -1, double high = 1);
    std::uint16_t* halves(std::int64_t n);  // F16
    float* zeros(std::int64_t n);
    MatrixView<float> matrix(std::int64_t rows, std::int64_t cols) {
        return {floats(rows * cols), rows, cols};
    }
    // Some random rows, again and again: what is read counts, not what it says. As the device's
    // kernels expect a matrix to lie, or as a table is stored.
    op::Weight weight(quant::Type type, std::int64_t rows, std::int64_t cols);
    op::Weight table(quant::Type type, std::int64_t rows, std::int64_t cols);

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
    std::vector<float> random(std::int64_t n, double low, double high);

    std::vector<std::byte> stored_rows(quant::Type type, std::int64_t rows, std::int64_t cols);

    Backend own_;
    const Backend& backend_;
    std::vector<std::vector<std::byte>> stored_;  // weights that the device reads in host memory
    std::unique_ptr<device::Queue> queue_;
    std::vector<device::Buffer> buffers_;
    std::uint64_t state_;
};

// Bytes that all rows of weights take.
double bytes_of(std::initializer_list<op::Weight> weights);

}  // namespace strata::bench
