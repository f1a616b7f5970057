// Formats of blocks as integers, for products in integer arithmetic:
//
//   value = scale * part * code - minimum * part_minimum
//
// Each `group` neighbours share a scale and a minimum, each `part` of them an integer that
// multiplies the scale and one that multiplies the minimum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/blocks.h"

namespace strata::quant {

// One block; what a format's block is too small for is left unset.
struct Integers {
    std::array<std::int8_t, kSuperBlock> codes;
    std::array<std::int8_t, kSuperBlock / 16> parts;
    std::array<std::int8_t, kSuperBlock / 16> minima;
    std::array<float, 4> scales;  // one a group
    float minimum;
};

struct IntegerForm {
    int group;    // 16, 32, 64 or 256
    int part;     // 16 or 32; `group` where all parts are 1
    int offset;   // 0 <= code + offset <= 255; 0 where there are minima
    bool minima;  // false: all are 0
    void (*unpack)(const std::byte* block, Integers& to);

    bool has_parts() const { return part != group; }
};

// An IntegerForm's unpack from a function that takes one block.
template <typename Block, void (*kUnpackBlock)(const Block& block, Integers& to)>
void unpack_integers(const std::byte* bytes, Integers& to) {
    Block block;
    std::memcpy(&block, bytes, sizeof(Block));
    kUnpackBlock(block, to);
}

}  // namespace strata::quant
