// IQ4_NL: 32 values share a scale, four bits a value; value = kIq4Values[code] * scale. Byte j
// holds the codes of values j (low half) and j + 16 (high half).
#include <array>

#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/formats.h"
#include "quant/half.h"

namespace strata::quant {
namespace {

constexpr int kBlock = 32;
constexpr int kHalf = kBlock / 2;

struct Block {
    std::uint16_t scale;  // f16
    std::array<std::uint8_t, kHalf> codes;
};
static_assert(sizeof(Block) == 18);

void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    for (int j = 0; j < kHalf; ++j) {
        out[j] = scale * static_cast<float>(kIq4Values[block.codes[j] & 15]);
        out[j + kHalf] = scale * static_cast<float>(kIq4Values[block.codes[j] >> 4]);
    }
}

}  // namespace

constinit const TypeInfo kIQ4_NL = {
    Type::iq4_nl, "IQ4_NL", kBlock, sizeof(Block), decode_blocks<Block, kBlock, decode_block>,
    nullptr};

}  // namespace strata::quant
