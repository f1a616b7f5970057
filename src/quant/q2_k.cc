// Q2_K: 256 values, two bits a value; each 16 share a scale and a minimum of four bits, which two
// f16 of the block multiply; value = scale * code - minimum.
#include <array>

#include "quant/blocks.h"
#include "quant/formats.h"
#include "quant/half.h"
#include "quant/integer_form.h"

namespace strata::quant {
namespace {

struct Block {
    std::array<std::uint8_t, 16> parts;  // scale in the low half, minimum in the high half
    std::array<std::uint8_t, 64> codes;
    std::uint16_t scale;    // f16
    std::uint16_t minimum;  // f16
};
static_assert(sizeof(Block) == 84);

// Two bits of each of 32 bytes make 32 neighbours, four times, then the next 32 bytes.
void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    const float minimum = f16_to_f32(block.minimum);
    for (int part = 0; part < 16; ++part) {
        const float step = scale * static_cast<float>(block.parts[part] & 15);
        const float base = minimum * static_cast<float>(block.parts[part] >> 4);
        const std::uint8_t* codes = block.codes.data() + part / 8 * 32 + part % 2 * 16;
        const int shift = part / 2 % 4 * 2;
        for (int j = 0; j < 16; ++j) {
            *out++ = step * static_cast<float>(codes[j] >> shift & 3) - base;
        }
    }
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale);
    to.minimum = f16_to_f32(block.minimum);
    for (int part = 0; part < 16; ++part) {
        to.parts[part] = static_cast<std::int8_t>(block.parts[part] & 15);
        to.minima[part] = static_cast<std::int8_t>(block.parts[part] >> 4);
        const std::uint8_t* codes = block.codes.data() + part / 8 * 32 + part % 2 * 16;
        const int shift = part / 2 % 4 * 2;
        for (int j = 0; j < 16; ++j) {
            to.codes[16 * part + j] = static_cast<std::int8_t>(codes[j] >> shift & 3);
        }
    }
}

constexpr IntegerForm kIntegers = {256, 16, 0, true, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kQ2_K = {Type::q2_k,
                                  "Q2_K",
                                  kSuperBlock,
                                  sizeof(Block),
                                  decode_blocks<Block, kSuperBlock, decode_block>,
                                  nullptr,
                                  nullptr,
                                  &kIntegers};

}  // namespace strata::quant
