// IQ2_XXS: 256 values; eight of them are a vector of kIq2XxsGrid (8 bits) with an even number of
// negative values (7 bits); each 32 share a scale of four bits, which an f16 of the block
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
    std::uint16_t scale;                 // f16
    std::array<std::uint8_t, 64> parts;  // a part: four numbers, four times signs, scale
};
static_assert(sizeof(Block) == 66);

void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    for (int part = 0; part < 8; ++part) {
        const std::uint8_t* numbers = block.parts.data() + 8 * part;
        const std::uint32_t rest = load_u32(numbers + 4);
        const float step = scale * (0.5f + static_cast<float>(rest >> 28)) * 0.25f;
        for (int i = 0; i < 4; ++i, out += 8) {
            decode_vector(kIq2XxsGrid[numbers[i]], step, even_signs(rest >> 7 * i & 127), out);
        }
    }
}

}  // namespace

constinit const TypeInfo kIQ2_XXS = {Type::iq2_xxs,
                                     "IQ2_XXS",
                                     kSuperBlock,
                                     sizeof(Block),
                                     decode_blocks<Block, kSuperBlock, decode_block>,
                                     nullptr};

}  // namespace strata::quant
