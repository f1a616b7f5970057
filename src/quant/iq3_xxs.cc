// IQ3_XXS: 256 values; four of them are a vector of kIq3XxsGrid (8 bits), eight have an even number
// of negative values (7 bits); each 32 share a scale of four bits, which an f16 of the block
// multiplies:
// value = scale * (part + 1/2) / 2 * vector.
#include <array>

#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/formats.h"
#include "quant/half.h"

namespace strata::quant {
namespace {

struct Block {
    std::uint16_t scale;  // f16
    std::array<std::uint8_t, 64> numbers;
    std::array<std::uint8_t, 32> parts;  // a part: four times signs, scale
};
static_assert(sizeof(Block) == 98);

void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    for (int part = 0; part < 8; ++part) {
        const std::uint8_t* numbers = block.numbers.data() + 8 * part;
        const std::uint32_t rest = load_u32(block.parts.data() + 4 * part);
        const float step = scale * (0.5f + static_cast<float>(rest >> 28)) * 0.5f;
        for (int i = 0; i < 8; ++i, out += 4) {
            const std::uint32_t signs = even_signs(rest >> i / 2 * 7 & 127) >> i % 2 * 4;
            decode_vector(kIq3XxsGrid[numbers[i]], step, signs, out);
        }
    }
}

}  // namespace

constinit const TypeInfo kIQ3_XXS = {Type::iq3_xxs,
                                     "IQ3_XXS",
                                     kSuperBlock,
                                     sizeof(Block),
                                     decode_blocks<Block, kSuperBlock, decode_block>,
                                     nullptr};

}  // namespace strata::quant
