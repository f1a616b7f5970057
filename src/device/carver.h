// Hands out pieces of one block of memory. Run without memory it measures, so that the size of a
// block and the layout in it cannot disagree: the same code does both.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device/device.h"
#include "device/tensor.h"

namespace strata::device {

// More than any machine has; used() stops here instead of wrapping.
inline constexpr std::size_t kCarvedMax = std::size_t{1} << 62;

class Carver {
  public:
    // Null: measures alone, and every piece is null.
    explicit Carver(std::byte* memory = nullptr) : memory_(memory) {}

    // `count` elements of `size` bytes, aligned to kBufferAlignment.
    std::byte* take_bytes(std::int64_t count, std::size_t size) {
        std::byte* piece = memory_ == nullptr ? nullptr : memory_ + used_;
        std::size_t bytes = 0;
        if (__builtin_mul_overflow(static_cast<std::size_t>(count), size, &bytes)) {
            bytes = kCarvedMax;
        }
        constexpr std::size_t kMask = kBufferAlignment - 1;
        used_ = std::min(kCarvedMax, used_ + ((std::min(bytes, kCarvedMax) + kMask) & ~kMask));
        return piece;
    }
    template <typename T>
    T* take(std::int64_t count) {
        return reinterpret_cast<T*>(take_bytes(count, sizeof(T)));
    }
    template <typename T>
    MatrixView<T> matrix(std::int64_t rows, std::int64_t cols) {
        return {take<T>(rows * cols), rows, cols};
    }
    template <typename T>
    VectorView<T> vector(std::int64_t size) {
        return {take<T>(size), size};
    }

    // Bytes of all pieces so far.
    std::size_t used() const { return used_; }

  private:
    std::byte* memory_;
    std::size_t used_ = 0;
};

}  // namespace strata::device
