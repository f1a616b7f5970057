// Q2_0: 64 values share a scale, two bits a value; value = (code - 1) * scale, so that there is one
// level below zero and two above. Files of another program use the same type id for groups of 128.
#include <array>

#include "quant/blocks.h"
#include "quant/formats.h"
#include "quant/half.h"

namespace strata::quant {
namespace {

constexpr int kBlock = 64;

struct Block {
    std::uint16_t scale;  // f16
    std::array<std::uint8_t, kBlock / 4> codes;
};
static_assert(sizeof(Block) == 18);

void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    for (int j = 0; j < kBlock; ++j) {
        out[j] = static_cast<float>(packed_field<2>(block.codes, j) - 1) * scale;
    }
}

}  // namespace

constinit const TypeInfo kQ2_0 = {
    Type::q2_0, "Q2_0", kBlock, sizeof(Block), decode_blocks<Block, kBlock, decode_block>, nullptr};

}  // namespace strata::quant
