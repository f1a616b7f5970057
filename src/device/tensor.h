// Plain views of memory that a device owns. Views do not own, and are passed by value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata {

// `rows` rows of `cols` values; row r starts at data + r * cols.
template <typename T>
struct MatrixView {
    T* data = nullptr;
    std::int64_t rows = 0;
    std::int64_t cols = 0;

    constexpr T* row(std::int64_t r) const { return data + r * cols; }
    constexpr std::int64_t size() const { return rows * cols; }
    constexpr bool empty() const { return data == nullptr; }
    constexpr MatrixView first_rows(std::int64_t n) const { return {data, n, cols}; }
    constexpr MatrixView rows_from(std::int64_t first, std::int64_t n) const {
        return {data + first * cols, n, cols};
    }
    constexpr operator MatrixView<const T>() const { return {data, rows, cols}; }
};

// A contiguous list.
template <typename T>
struct VectorView {
    T* data = nullptr;
    std::int64_t size = 0;

    constexpr T& operator[](std::int64_t i) const { return data[i]; }
    constexpr bool empty() const { return data == nullptr; }
    constexpr operator VectorView<const T>() const { return {data, size}; }
};

}  // namespace strata
