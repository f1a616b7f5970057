// IQ2_S: 256 values; eight of them are a vector of kIq2SGrid (10 bits) with any signs (8 bits);
// each 16 share a scale of four bits, which an f16 of the block multiplies:
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

constexpr GridFormat kFormat = {16, 0.125f, false, 30.0f, 56.0f};

Block encode_block(const float* in, const float* importance) {
    static const GridIndex<8, 1024> index(kIq2SGrid);
    const GridCodes codes = fit_grid(index, kFormat, in, importance);
    Block block{};
    block.scale = codes.scale;
    block.signs = codes.signs;
    for (int i = 0; i < kGroups; ++i) {
        block.low[i] = static_cast<std::uint8_t>(codes.numbers[i] & 255);
        block.high[i / 4] |= static_cast<std::uint8_t>(codes.numbers[i] >> 8 << i % 4 * 2);
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
        const int number = block.low[i] | packed_field<2>(block.high, i) << 8;
        signed_codes(kIq2SGrid[number], block.signs[i], to.codes.data() + 8 * i);
    }
}

constexpr IntegerForm kIntegers = {256, 16, 43, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kIQ2_S = {Type::iq2_s,
                                   "IQ2_S",
                                   kSuperBlock,
                                   sizeof(Block),
                                   decode_blocks<Block, kSuperBlock, decode_block>,
                                   encode_blocks<Block, kSuperBlock, encode_block>,
                                   encode_blocks_weighted<Block, kSuperBlock, encode_block>,
                                   &kIntegers};

}  // namespace strata::quant
