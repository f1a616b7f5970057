// Q3_K: 256 values, three bits a value; each 16 share a signed scale of six bits, which an f16 of
// the block multiplies; value = scale * code, -4 <= code <= 3.
#include <array>

#include "quant/blocks.h"
#include "quant/formats.h"
#include "quant/half.h"
#include "quant/integer_form.h"

namespace strata::quant {
namespace {

struct Block {
    std::array<std::uint8_t, 32> high;
    std::array<std::uint8_t, 64> low;
    std::array<std::uint8_t, 12> parts;
    std::uint16_t scale;  // f16
};
static_assert(sizeof(Block) == 110);

// The low four bits of the 16 scales are the halves of eight bytes, first the low ones; the upper
// two are the quarters of the next four bytes.
int part_scale(const Block& block, int part) {
    const int low = block.parts[part % 8] >> (part / 8 * 4) & 15;
    const int high = block.parts[8 + part % 4] >> (part / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

// The low bits lie as in Q2_K; of each of 32 bytes, bit k is the third of value k * 32 + byte.
void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    for (int part = 0; part < 16; ++part) {
        const float step = scale * static_cast<float>(part_scale(block, part));
        const std::uint8_t* low = block.low.data() + part / 8 * 32 + part % 2 * 16;
        const std::uint8_t* high = block.high.data() + part % 2 * 16;
        const int shift = part / 2 % 4 * 2;
        for (int j = 0; j < 16; ++j) {
            const int code = (low[j] >> shift & 3) | (high[j] >> (part / 2) & 1) << 2;
            *out++ = step * static_cast<float>(code - 4);
        }
    }
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale);
    for (int part = 0; part < 16; ++part) {
        to.parts[part] = static_cast<std::int8_t>(part_scale(block, part));
        const std::uint8_t* low = block.low.data() + part / 8 * 32 + part % 2 * 16;
        const std::uint8_t* high = block.high.data() + part % 2 * 16;
        const int shift = part / 2 % 4 * 2;
        for (int j = 0; j < 16; ++j) {
            const int code = (low[j] >> shift & 3) | (high[j] >> (part / 2) & 1) << 2;
            to.codes[16 * part + j] = static_cast<std::int8_t>(code - 4);
        }
    }
}

constexpr IntegerForm kIntegers = {256, 16, 4, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kQ3_K = {Type::q3_k,
                                  "Q3_K",
                                  kSuperBlock,
                                  sizeof(Block),
                                  decode_blocks<Block, kSuperBlock, decode_block>,
                                  nullptr,
                                  nullptr,
                                  &kIntegers};

}  // namespace strata::quant
