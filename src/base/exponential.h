// e^x in loops that the compiler vectorizes.
#pragma once

#include <bit>
#include <cstdint>

namespace strata {

// e^x, within kExpError units in the last place of the exact value where that is a normal number,
// within one where it is not. Without branches or calls, so that loops of it become vector code,
// which gives the same bits.
//
// x = n ln 2 + r with |r| <= (ln 2) / 2: e^r is 1 + r + r^2 q(r), q the polynomial of degree 4 that
// is nearest in relative error (3e-9); 2^n comes in two factors, since one would overflow or vanish
// where the result does not.
inline constexpr double kExpError = 1.5;
[[gnu::always_inline]] inline float exponential(float x) {
    constexpr float kLowest = -104.0f;     // below it e^x rounds to 0
    constexpr float kHighest = 89.0f;      // and above it to infinity
    constexpr float kRounder = 0x1.8p23f;  // has no fraction bits left, nor after adding n
    constexpr float kInverseLn2 = 0x1.715476p0f;
    constexpr float kLn2High = 0x1.63p-1f;  // few enough bits for exact products with n
    constexpr float kLn2Low = -0x1.bd0106p-13f;
    x = x < kLowest ? kLowest : x;
    x = x > kHighest ? kHighest : x;
    const float shifted = x * kInverseLn2 + kRounder;
    const float n = shifted - kRounder;
    const float r = (x - n * kLn2High) - n * kLn2Low;
    float q = 0x1.6a2434p-10f;
    q = q * r + 0x1.1239e2p-7f;
    q = q * r + 0x1.5558f2p-5f;
    q = q * r + 0x1.555492p-3f;
    q = q * r + 0x1.fffffcp-2f;
    const float power = r * r * q + r + 1.0f;
    const std::int32_t whole =
        std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRounder);
    const std::int32_t half = whole >> 1;
    // Unsigned: of a NaN any bits may come, and the result is NaN whatever they are.
    const float low = std::bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23);
    const float high = std::bit_cast<float>(static_cast<std::uint32_t>(whole - half + 127) << 23);
    return power * low * high;
}

}  // namespace strata
