// IQ1_M: 256 values; eight of them are a vector of kIq1Grid (11 bits) plus or minus 1/8; each 16
// share a scale of three bits, which an f16 of the block multiplies:
// value = scale * (2 * part + 1) * (vector +- 1/8).
#include <array>

#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/formats.h"
#include "quant/half.h"
#include "quant/integer_form.h"

namespace strata::quant {
namespace {

constexpr float kShift = 0.125f;

// Bytes all through: the block's scale has no place of its own.
struct Block {
    std::array<std::uint8_t, 32> low;   // of the vectors' numbers
    std::array<std::uint8_t, 16> high;  // four bits a vector: three of its number, one its shift
    std::array<std::uint8_t, 8> parts;  // four words: four scales of three bits, a quarter of f16
};
static_assert(sizeof(Block) == 56);

float block_scale(const Block& block) {
    std::uint32_t half = 0;
    for (int word = 0; word < 4; ++word) {
        half |= load_u16(block.parts.data() + 2 * word) >> 12 << (4 * word);
    }
    return f16_to_f32(static_cast<std::uint16_t>(half));
}

void decode_block(const Block& block, float* out) {
    const float scale = block_scale(block);
    for (int part = 0; part < 16; ++part) {
        const std::uint32_t word = load_u16(block.parts.data() + part / 4 * 2);
        const float step = scale * static_cast<float>(2 * (word >> part % 4 * 3 & 7) + 1);
        for (int i = 2 * part; i < 2 * part + 2; ++i) {
            const int high = packed_field<4>(block.high, i);
            const auto& vector = kIq1Grid[block.low[i] | (high & 7) << 8].values;
            const float shift = (high & 8) != 0 ? -kShift : kShift;
            for (int j = 0; j < 8; ++j) *out++ = step * (static_cast<float>(vector[j]) + shift);
        }
    }
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = block_scale(block) * kShift;
    for (int part = 0; part < 16; ++part) {
        const std::uint32_t word = load_u16(block.parts.data() + part / 4 * 2);
        to.parts[part] = static_cast<std::int8_t>(2 * (word >> part % 4 * 3 & 7) + 1);
        for (int i = 2 * part; i < 2 * part + 2; ++i) {
            const int high = packed_field<4>(block.high, i);
            const auto& vector = kIq1Grid[block.low[i] | (high & 7) << 8].values;
            const int shift = (high & 8) != 0 ? -1 : 1;
            for (int j = 0; j < 8; ++j) {
                to.codes[8 * i + j] = static_cast<std::int8_t>(8 * vector[j] + shift);
            }
        }
    }
}

constexpr IntegerForm kIntegers = {256, 16, 9, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kIQ1_M = {Type::iq1_m,
                                   "IQ1_M",
                                   kSuperBlock,
                                   sizeof(Block),
                                   decode_blocks<Block, kSuperBlock, decode_block>,
                                   nullptr,
                                   nullptr,
                                   &kIntegers};

}  // namespace strata::quant
