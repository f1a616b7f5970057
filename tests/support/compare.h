// Comparisons that report the worst element: its index, both values, and how far outside it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/tolerance.h"

namespace strata::test {

// A float64 matrix as a formula reads it.
using Row = std::vector<double>;
using Rows = std::vector<Row>;

Rows rows_of(const std::vector<float>& flat, std::int64_t cols);
std::vector<float> flat(const Rows& rows);

// The part of `values` that is rows first .. first+n-1 of `cols` values.
template <typename T>
std::vector<T> slice(const std::vector<T>& values, std::int64_t first, std::int64_t n,
                     std::int64_t cols) {
    return {values.begin() + first * cols, values.begin() + (first + n) * cols};
}

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
    to.insert(to.end(), from.begin(), from.end());
}

void expect_close(const std::string& what, const std::vector<float>& got, const Rows& want,
                  Tolerance tolerance);
// The same, where `got` and `want` are both a kernel's.
void expect_close(const std::string& what, const std::vector<float>& got,
                  const std::vector<float>& want, std::int64_t cols, Tolerance tolerance);
// Somewhere outside the tolerance by a factor of 10 and more.
void expect_far(const std::string& what, const std::vector<float>& got, const Rows& want,
                Tolerance tolerance);

void expect_same_bits(const std::string& what, const std::vector<float>& got,
                      const std::vector<float>& want);
void expect_equal(const std::string& what, const std::vector<std::int32_t>& got,
                  const std::vector<std::int32_t>& want);

}  // namespace strata::test
