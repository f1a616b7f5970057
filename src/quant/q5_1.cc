// Q5_1: 32 values share a scale and an offset, five bits a value; value = code * scale + offset.
// The codes lie as in Q5_0.
#include <array>

#include "quant/blocks.h"
#include "quant/formats.h"
#include "quant/half.h"

namespace strata::quant {
namespace {

constexpr int kBlock = 32;
constexpr int kHalf = kBlock / 2;

struct Block {
    std::uint16_t scale;   // f16
    std::uint16_t offset;  // f16
    std::array<std::uint8_t, 4> high;
    std::array<std::uint8_t, kHalf> low;
};
static_assert(sizeof(Block) == 24);

void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    const float offset = f16_to_f32(block.offset);
    for (int j = 0; j < kHalf; ++j) {
        const int first = (block.low[j] & 15) | packed_field<1>(block.high, j) << 4;
        const int second = block.low[j] >> 4 | packed_field<1>(block.high, j + kHalf) << 4;
        out[j] = scale * static_cast<float>(first) + offset;
        out[j + kHalf] = scale * static_cast<float>(second) + offset;
    }
}

}  // namespace

constinit const TypeInfo kQ5_1 = {
    Type::q5_1, "Q5_1", kBlock, sizeof(Block), decode_blocks<Block, kBlock, decode_block>, nullptr};

}  // namespace strata::quant
