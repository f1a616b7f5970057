// How the tables of this folder are written down: a vector is an integer that holds the numbers of
// its values' levels, kBits each, the first value lowest.
#pragma once

#include "quant/codebooks.h"

namespace strata::quant {

template <std::size_t kWidth, int kBits, std::size_t kCount, std::size_t kLevels>
constexpr Grid<kWidth, kCount> expand_grid(const std::array<std::uint16_t, kCount>& packed,
                                           const std::array<std::int8_t, kLevels>& levels) {
    Grid<kWidth, kCount> grid{};
    for (std::size_t i = 0; i < kCount; ++i) {
        unsigned code = packed[i];
        for (std::int8_t& value : grid[i].values) {
            value = levels[code & ((1u << kBits) - 1)];
            code >>= kBits;
        }
    }
    return grid;
}

}  // namespace strata::quant
