// IQ3_S: 256 values; four of them are a vector of kIq3SGrid (9 bits) with any signs (4 bits); each
// 32 share a scale of four bits, which an f16 of the block multiplies:
// value = scale * (2 * part + 1) * vector.
#include <array>

#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/formats.h"
#include "quant/half.h"

namespace strata::quant {
namespace {

struct Block {
    std::uint16_t scale;  // f16
    std::array<std::uint8_t, 64> low;
    std::array<std::uint8_t, 8> high;  // a bit a vector
    std::array<std::uint8_t, 32> signs;
    std::array<std::uint8_t, 4> parts;
};
static_assert(sizeof(Block) == 110);

void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    for (int i = 0; i < 64; ++i, out += 4) {
        const float step = scale * static_cast<float>(1 + 2 * packed_field<4>(block.parts, i / 8));
        const int number = block.low[i] | packed_field<1>(block.high, i) << 8;
        const auto signs = static_cast<std::uint32_t>(packed_field<4>(block.signs, i));
        decode_vector(kIq3SGrid[number], step, signs, out);
    }
}

}  // namespace

constinit const TypeInfo kIQ3_S = {Type::iq3_s,
                                   "IQ3_S",
                                   kSuperBlock,
                                   sizeof(Block),
                                   decode_blocks<Block, kSuperBlock, decode_block>,
                                   nullptr};

}  // namespace strata::quant
