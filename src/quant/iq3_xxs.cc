// IQ3_XXS: 256 values; four of them are a vector of kIq3XxsGrid (8 bits), eight have an even number
// of negative values (7 bits); each 32 share a scale of four bits, which an f16 of the block
// multiplies:
// value = scale * (part + 1/2) / 2 * vector.
#include <array>

#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/fit.h"
#include "quant/formats.h"
#include "quant/grid_fit.h"
#include "quant/half.h"
#include "quant/integer_form.h"

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

constexpr GridFormat kFormat = {32, 0.25f, true, 44.0f, 80.0f};

Block encode_block(const float* in, const float* importance) {
    static const GridIndex<4, 256> index(kIq3XxsGrid);
    const GridCodes codes = fit_grid(index, kFormat, in, importance);
    Block block{};
    block.scale = codes.scale;
    for (int i = 0; i < 64; ++i) block.numbers[i] = static_cast<std::uint8_t>(codes.numbers[i]);
    for (int p = 0; p < 8; ++p) {
        std::uint32_t rest = static_cast<std::uint32_t>(codes.parts[p]) << 28;
        for (int i = 0; i < 4; ++i) rest |= (codes.signs[4 * p + i] & 127u) << 7 * i;
        std::memcpy(block.parts.data() + 4 * p, &rest, sizeof(rest));
    }
    return block;
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale) * 0.25f;
    for (int part = 0; part < 8; ++part) {
        const std::uint32_t rest = load_u32(block.parts.data() + 4 * part);
        to.parts[part] = static_cast<std::int8_t>(2 * (rest >> 28) + 1);
        for (int i = 0; i < 8; ++i) {
            const std::uint32_t signs = even_signs(rest >> i / 2 * 7 & 127) >> i % 2 * 4;
            signed_codes(kIq3XxsGrid[block.numbers[8 * part + i]], signs,
                         to.codes.data() + 32 * part + 4 * i);
        }
    }
}

constexpr IntegerForm kIntegers = {256, 32, 62, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kIQ3_XXS = {Type::iq3_xxs,
                                     "IQ3_XXS",
                                     kSuperBlock,
                                     sizeof(Block),
                                     decode_blocks<Block, kSuperBlock, decode_block>,
                                     encode_blocks<Block, kSuperBlock, encode_block>,
                                     encode_blocks_weighted<Block, kSuperBlock, encode_block>,
                                     &kIntegers};

}  // namespace strata::quant
