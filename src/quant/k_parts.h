// What Q4_K and Q5_K share: eight parts of 32 values, each with a scale and a minimum of six bits
// that two f16 of the block multiply; value = scale * code - minimum.
#pragma once

#include <array>
#include <cstdint>

#include "quant/blocks.h"
#include "quant/fit.h"

namespace strata::quant {

inline constexpr int kKParts = 8;

struct KParts {
    std::array<std::uint8_t, kKParts> scales;
    std::array<std::uint8_t, kKParts> minima;
};

// The 12 bytes: four of scales, four of minima, and four that hold the low halves of the next four
// of both; the upper two bits of those lie above the six of the first.
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

constexpr std::array<std::uint8_t, 12> pack_parts(const KParts& parts) {
    std::array<std::uint8_t, 12> bytes{};
    for (int i = 0; i < 4; ++i) {
        const int scale = parts.scales[i + 4];
        const int minimum = parts.minima[i + 4];
        bytes[i] = static_cast<std::uint8_t>(parts.scales[i] | scale >> 4 << 6);
        bytes[i + 4] = static_cast<std::uint8_t>(parts.minima[i] | minimum >> 4 << 6);
        bytes[i + 8] = static_cast<std::uint8_t>((scale & 15) | (minimum & 15) << 4);
    }
    return bytes;
}

struct KFit {
    std::uint16_t scale;    // f16
    std::uint16_t minimum;  // f16
    KParts parts;
    std::array<std::uint8_t, kSuperBlock> codes;
};

// Codes from 0 to `levels`.
KFit fit_parts(const Prepared<kSuperBlock>& values, int levels);

}  // namespace strata::quant
