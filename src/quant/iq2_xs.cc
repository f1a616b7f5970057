// IQ2_XS: 256 values; eight of them are a vector of kIq2XsGrid (9 bits) with an even number of
// negative values (7 bits); each 16 share a scale of four bits, which an f16 of the block
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

constexpr GridFormat kFormat = {16, 0.125f, true, 30.0f, 56.0f};

Block encode_block(const float* in, const float* importance) {
    static const GridIndex<8, 512> index(kIq2XsGrid);
    const GridCodes codes = fit_grid(index, kFormat, in, importance);
    Block block{};
    block.scale = codes.scale;
    for (int i = 0; i < kGroups; ++i) {
        block.vectors[i] =
            static_cast<std::uint16_t>(codes.numbers[i] | (codes.signs[i] & 127) << 9);
    }
    for (int p = 0; p < 16; ++p) {
        block.parts[p / 2] |= static_cast<std::uint8_t>(codes.parts[p] << p % 2 * 4);
    }
    return block;
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale) * 0.125f;
    for (int i = 0; i < 32; ++i) {
        to.parts[i / 2] = static_cast<std::int8_t>(2 * packed_field<4>(block.parts, i / 2) + 1);
        const std::uint32_t vector = block.vectors[i];
        signed_codes(kIq2XsGrid[vector & 511], even_signs(vector >> 9), to.codes.data() + 8 * i);
    }
}

constexpr IntegerForm kIntegers = {256, 16, 43, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kIQ2_XS = {Type::iq2_xs,
                                    "IQ2_XS",
                                    kSuperBlock,
                                    sizeof(Block),
                                    decode_blocks<Block, kSuperBlock, decode_block>,
                                    encode_blocks<Block, kSuperBlock, encode_block>,
                                    encode_blocks_weighted<Block, kSuperBlock, encode_block>,
                                    &kIntegers};

}  // namespace strata::quant
