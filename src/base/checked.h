// 64-bit arithmetic on sizes that come from files: a wrap is a missing value, never a small number.
#pragma once

#include <cstdint>
#include <optional>

namespace strata {

inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
    std::uint64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
    return sum;
}

inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
    std::uint64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
    return product;
}

// The smallest multiple of `alignment` (not 0) that is at least `n`.
inline std::optional<std::uint64_t> checked_align(std::uint64_t n, std::uint64_t alignment) {
    const auto raised = checked_add(n, alignment - 1);
    if (!raised) return std::nullopt;
    return *raised / alignment * alignment;
}

// Sums and products for plans of memory: more than there can be stays the largest number, and does
// not fit anywhere.
inline std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
    return checked_add(a, b).value_or(UINT64_MAX);
}
inline std::uint64_t saturating_mul(std::uint64_t a, std::uint64_t b) {
    return checked_mul(a, b).value_or(UINT64_MAX);
}

}  // namespace strata
