#include "bench/op/bed.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "bench/mixed.h"
#include "quant/half.h"

namespace strata::bench {
namespace {

Backend make_backend(const OpOptions& options) {
    if (options.backend != nullptr) return {};
    auto backend = make_cpu_backend({.threads = options.threads});
    STRATA_CHECK(backend.ok());
    return std::move(backend).value();
}

std::uint64_t state_of(std::string_view seed) {
    std::uint64_t state = 0;
    for (const char c : seed) state = mixed(state, static_cast<unsigned char>(c));
    return state;
}

}  // namespace

Bed::Bed(const OpOptions& options, std::string_view seed)
    : own_(make_backend(options)),
      backend_(options.backend == nullptr ? own_ : *options.backend),
      queue_(backend_.device->make_queue()),
      state_(state_of(seed)) {}

std::byte* Bed::allocate(std::size_t bytes) {
    auto buffer = backend_.device->allocate(bytes);
    STRATA_CHECK(buffer.ok());
    buffers_.push_back(std::move(buffer).value());
    return buffers_.back().data();
}

std::vector<float> Bed::random(std::int64_t n, double low, double high) {
    std::vector<float> values;
    state_ = mixed(state_, 0);
    for (std::int64_t i = 0; i < n; ++i) {
        const auto bits = mixed(state_, static_cast<std::uint64_t>(i)) >> 40;
        values.push_back(static_cast<float>(low + (high - low) * static_cast<double>(bits) /
                                                      static_cast<double>(1 << 24)));
    }
    return values;
}

float* Bed::floats(std::int64_t n, double low, double high) {
    return const_cast<float*>(upload(random(n, low, high)));
}

std::uint16_t* Bed::halves(std::int64_t n) {
    std::vector<std::uint16_t> values;
    for (const float value : random(n, -1, 1)) values.push_back(quant::f32_to_f16(value));
    return const_cast<std::uint16_t*>(upload(values));
}

float* Bed::zeros(std::int64_t n) {
    return reinterpret_cast<float*>(allocate(static_cast<std::size_t>(n) * sizeof(float)));
}

std::vector<std::byte> Bed::stored_rows(quant::Type type, std::int64_t rows, std::int64_t cols) {
    constexpr std::int64_t kRandomRows = 16;
    // So that a product keeps the size of its input.
    const double most = 1 / std::sqrt(static_cast<double>(cols));
    const std::int64_t some = std::min(rows, kRandomRows);
    const std::vector<float> values = random(some * cols, -most, most);
    const auto row_bytes =
        static_cast<std::int64_t>(quant::row_bytes(type, static_cast<std::uint64_t>(cols)).value());
    std::vector<std::byte> piece(static_cast<std::size_t>(some * row_bytes));
    quant::info(type).encode(values.data(), piece.data(), some * cols);
    std::vector<std::byte> all(static_cast<std::size_t>(rows * row_bytes));
    for (std::size_t at = 0; at < all.size(); at += piece.size()) {
        std::memcpy(all.data() + at, piece.data(), std::min(piece.size(), all.size() - at));
    }
    return all;
}

op::Weight Bed::table(quant::Type type, std::int64_t rows, std::int64_t cols) {
    const std::vector<std::byte> all = stored_rows(type, rows, cols);
    return {upload(all), type, rows, cols, std::ssize(all) / rows};
}

op::Weight Bed::weight(quant::Type type, std::int64_t rows, std::int64_t cols) {
    stored_.push_back(stored_rows(type, rows, cols));
    const std::vector<std::byte>& all = stored_.back();
    auto data = backend_.device->resident_matrix(*queue_, all, type, cols);
    STRATA_CHECK(data.ok());
    return {*data, type, rows, cols, std::ssize(all) / rows};
}

double bytes_of(std::initializer_list<op::Weight> weights) {
    double bytes = 0;
    for (const op::Weight& weight : weights) {
        bytes += static_cast<double>(weight.rows) * static_cast<double>(weight.row_bytes);
    }
    return bytes;
}

}  // namespace strata::bench
