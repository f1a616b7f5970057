// IQ2_XXS: 256 values; eight of them are a vector of kIq2XxsGrid (8 bits) with an even number of
// negative values (7 bits); each 32 share a scale of four bits, which an f16 of the block
// multiplies:
// value = scale * (part + 1/2) / 4 * vector.
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

constexpr GridFormat kFormat = {32, 0.125f, true, 30.0f, 56.0f};

Block encode_block(const float* in, const float* importance) {
    static const GridIndex<8, 256> index(kIq2XxsGrid);
    const GridCodes codes = fit_grid(index, kFormat, in, importance);
    Block block{};
    block.scale = codes.scale;
    for (int p = 0; p < 8; ++p) {
        std::uint32_t rest = static_cast<std::uint32_t>(codes.parts[p]) << 28;
        for (int i = 0; i < 4; ++i) {
            block.parts[8 * p + i] = static_cast<std::uint8_t>(codes.numbers[4 * p + i]);
            rest |= (codes.signs[4 * p + i] & 127u) << 7 * i;
        }
        std::memcpy(block.parts.data() + 8 * p + 4, &rest, sizeof(rest));
    }
    return block;
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale) * 0.125f;
    for (int part = 0; part < 8; ++part) {
        const std::uint8_t* numbers = block.parts.data() + 8 * part;
        const std::uint32_t rest = load_u32(numbers + 4);
        to.parts[part] = static_cast<std::int8_t>(2 * (rest >> 28) + 1);
        for (int i = 0; i < 4; ++i) {
            signed_codes(kIq2XxsGrid[numbers[i]], even_signs(rest >> 7 * i & 127),
                         to.codes.data() + 32 * part + 8 * i);
        }
    }
}

constexpr IntegerForm kIntegers = {256, 32, 43, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kIQ2_XXS = {Type::iq2_xxs,
                                     "IQ2_XXS",
                                     kSuperBlock,
                                     sizeof(Block),
                                     decode_blocks<Block, kSuperBlock, decode_block>,
                                     encode_blocks<Block, kSuperBlock, encode_block>,
                                     encode_blocks_weighted<Block, kSuperBlock, encode_block>,
                                     &kIntegers};

}  // namespace strata::quant
