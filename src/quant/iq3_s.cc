// IQ3_S: 256 values; four of them are a vector of kIq3SGrid (9 bits) with any signs (4 bits); each
// 32 share a scale of four bits, which an f16 of the block multiplies:
// value = scale * (2 * part + 1) * vector.
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

constexpr GridFormat kFormat = {32, 1.0f, false, 11.0f, 19.0f};

Block encode_block(const float* in, const float* importance) {
    static const GridIndex<4, 512> index(kIq3SGrid);
    const GridCodes codes = fit_grid(index, kFormat, in, importance);
    Block block{};
    block.scale = codes.scale;
    block.signs = codes.signs;
    for (int i = 0; i < 64; ++i) {
        block.low[i] = static_cast<std::uint8_t>(codes.numbers[i] & 255);
        block.high[i / 8] |= static_cast<std::uint8_t>(codes.numbers[i] >> 8 << i % 8);
    }
    for (int p = 0; p < 8; ++p) {
        block.parts[p / 2] |= static_cast<std::uint8_t>(codes.parts[p] << p % 2 * 4);
    }
    return block;
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale);
    for (int i = 0; i < 64; ++i) {
        to.parts[i / 8] = static_cast<std::int8_t>(1 + 2 * packed_field<4>(block.parts, i / 8));
        const int number = block.low[i] | packed_field<1>(block.high, i) << 8;
        const auto signs = static_cast<std::uint32_t>(packed_field<4>(block.signs, i));
        signed_codes(kIq3SGrid[number], signs, to.codes.data() + 4 * i);
    }
}

constexpr IntegerForm kIntegers = {256, 32, 15, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kIQ3_S = {Type::iq3_s,
                                   "IQ3_S",
                                   kSuperBlock,
                                   sizeof(Block),
                                   decode_blocks<Block, kSuperBlock, decode_block>,
                                   encode_blocks<Block, kSuperBlock, encode_block>,
                                   encode_blocks_weighted<Block, kSuperBlock, encode_block>,
                                   &kIntegers};

}  // namespace strata::quant
