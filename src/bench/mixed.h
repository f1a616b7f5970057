// Numbers that depend on a seed and a place alone, and a sum that shows what was computed.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace strata::bench {

// SplitMix64's output `at` from `seed`.
inline std::uint64_t mixed(std::uint64_t seed, std::uint64_t at) {
    std::uint64_t z = seed + (at + 1) * 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

inline constexpr std::uint64_t kChecksumStart = 0xcbf29ce484222325;
inline constexpr std::uint64_t kChecksumPrime = 0x100000001b3;

// FNV-1a of the values' bits, going on from `checksum`.
inline std::uint64_t add_to_checksum(std::uint64_t checksum, std::span<const float> values) {
    for (const float value : values) {
        checksum = (checksum ^ std::bit_cast<std::uint32_t>(value)) * kChecksumPrime;
    }
    return checksum;
}

inline std::uint64_t add_to_checksum(std::uint64_t checksum, std::span<const std::int32_t> values) {
    for (const std::int32_t value : values) {
        checksum = (checksum ^ static_cast<std::uint32_t>(value)) * kChecksumPrime;
    }
    return checksum;
}

}  // namespace strata::bench
