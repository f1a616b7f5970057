// The eight scales and eight minima of six bits that Q4_K and Q5_K keep in 12 bytes.
#pragma once

#include <array>
#include <cstdint>

namespace strata::quant {

struct KParts {
    std::array<std::uint8_t, 8> scales;
    std::array<std::uint8_t, 8> minima;
};

// Four bytes of scales, four of minima, and four that hold the low halves of the next four of both;
// the upper two bits of those lie above the six of the first.
constexpr KParts unpack_parts(const std::array<std::uint8_t, 12>& bytes) {
    KParts parts{};
    for (int i = 0; i < 4; ++i) {
        parts.scales[i] = bytes[i] & 63;
        parts.minima[i] = bytes[i + 4] & 63;
        parts.scales[i + 4] = static_cast<std::uint8_t>((bytes[i + 8] & 15) | bytes[i] >> 6 << 4);
        parts.minima[i + 4] = static_cast<std::uint8_t>(bytes[i + 8] >> 4 | bytes[i + 4] >> 6 << 4);
    }
    return parts;
}

}  // namespace strata::quant
