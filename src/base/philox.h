// Random numbers that are a function of a key and a counter: Philox4x32-10 of Salmon, Moraes, Dror
// and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace strata {

inline constexpr std::array<std::uint32_t, 4> philox(std::uint64_t key,
                                                     std::array<std::uint32_t, 4> counter) {
    constexpr std::uint32_t kMultiplier0 = 0xD2511F53u;
    constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57u;
    constexpr std::uint32_t kWeyl0 = 0x9E3779B9u;
    constexpr std::uint32_t kWeyl1 = 0xBB67AE85u;
    constexpr int kRounds = 10;
    auto key0 = static_cast<std::uint32_t>(key);
    auto key1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t a = std::uint64_t{kMultiplier0} * counter[0];
        const std::uint64_t b = std::uint64_t{kMultiplier1} * counter[2];
        counter = {
            static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(b),
            static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(a)};
        key0 += kWeyl0;
        key1 += kWeyl1;
    }
    return counter;
}

// Uniform in (0, 1) for a seed, a position in a sequence and a token.
inline constexpr double uniform(std::uint64_t seed, std::uint64_t position, std::uint32_t token) {
    const auto bits = philox(seed, {static_cast<std::uint32_t>(position),
                                    static_cast<std::uint32_t>(position >> 32), token, 0});
    constexpr double kScale = 1.0 / 9007199254740992.0;  // 2^-53
    const std::uint64_t mantissa = (std::uint64_t{bits[0]} << 21) ^ (bits[1] >> 11);
    // The sum is rounded, for the last of them to 1.
    const double value = (static_cast<double>(mantissa) + 0.5) * kScale;
    return value < 1.0 ? value : 1.0 - kScale;
}

// Noise of the Gumbel distribution, of a number in (0, 1); of those that uniform() gives it is from
// -3.7 to 36.8.
inline double gumbel(double u) { return -std::log(-std::log(u)); }
inline double gumbel(std::uint64_t seed, std::uint64_t position, std::uint32_t token) {
    return gumbel(uniform(seed, position, token));
}

}  // namespace strata
