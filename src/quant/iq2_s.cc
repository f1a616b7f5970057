// IQ2_S: 256 values; eight of them are a vector of kIq2SGrid (10 bits) with any signs (8 bits);
// each 16 share a scale of four bits, which an f16 of the block multiplies:
// value = scale * (part + 1/2) / 4 * vector.
#include <array>

#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/formats.h"
#include "quant/half.h"

namespace strata::quant {
namespace {

struct Block {
    std::uint16_t scale;  // f16
    std::array<std::uint8_t, 32> low;
    std::array<std::uint8_t, 32> signs;
    std::array<std::uint8_t, 8> high;  // two bits a vector
    std::array<std::uint8_t, 8> parts;
};
static_assert(sizeof(Block) == 82);

void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    for (int i = 0; i < 32; ++i, out += 8) {
        const auto part = static_cast<float>(packed_field<4>(block.parts, i / 2));
        const float step = scale * (0.5f + part) * 0.25f;
        const int number = block.low[i] | packed_field<2>(block.high, i) << 8;
        decode_vector(kIq2SGrid[number], step, block.signs[i], out);
    }
}

}  // namespace

constinit const TypeInfo kIQ2_S = {Type::iq2_s,
                                   "IQ2_S",
                                   kSuperBlock,
                                   sizeof(Block),
                                   decode_blocks<Block, kSuperBlock, decode_block>,
                                   nullptr};

}  // namespace strata::quant
