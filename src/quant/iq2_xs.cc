// IQ2_XS: 256 values; eight of them are a vector of kIq2XsGrid (9 bits) with an even number of
// negative values (7 bits); each 16 share a scale of four bits, which an f16 of the block
// multiplies:
// value = scale * (part + 1/2) / 4 * vector.
#include <array>

#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/formats.h"
#include "quant/half.h"

namespace strata::quant {
namespace {

struct Block {
    std::uint16_t scale;                    // f16
    std::array<std::uint16_t, 32> vectors;  // number, then signs
    std::array<std::uint8_t, 8> parts;
};
static_assert(sizeof(Block) == 74);

void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    for (int i = 0; i < 32; ++i, out += 8) {
        const auto part = static_cast<float>(packed_field<4>(block.parts, i / 2));
        const float step = scale * (0.5f + part) * 0.25f;
        const std::uint32_t vector = block.vectors[i];
        decode_vector(kIq2XsGrid[vector & 511], step, even_signs(vector >> 9), out);
    }
}

}  // namespace

constinit const TypeInfo kIQ2_XS = {Type::iq2_xs,
                                    "IQ2_XS",
                                    kSuperBlock,
                                    sizeof(Block),
                                    decode_blocks<Block, kSuperBlock, decode_block>,
                                    nullptr};

}  // namespace strata::quant
