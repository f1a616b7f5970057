// Q2_0: 64 values share a scale, two bits a value; value = (code - 1) * scale, so that there is one
// level below zero and two above. Files of another program use the same type id for groups of 128.
#include <array>

#include "quant/blocks.h"
#include "quant/fit.h"
#include "quant/formats.h"
#include "quant/half.h"
#include "quant/integer_form.h"

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

// The levels are lopsided, so a scale of either sign may fit better.
Block encode_block(const float* in, const float* importance) {
    const Prepared<kBlock> values(in, importance);
    const auto level_of = [](float v) { return static_cast<float>(nearest_in(v, -1, 2)); };
    Block block{};
    block.scale = values.stored(fit_scale(values.x, values.w, {1.0f, 3.4f, 13, true}, level_of));
    const float inverse = inverse_of(values.effective(block.scale));
    for (int j = 0; j < kBlock; ++j) {
        const int code = nearest_in(values.x[j] * inverse, -1, 2) + 1;
        block.codes[j / 4] |= static_cast<std::uint8_t>(code << j % 4 * 2);
    }
    return block;
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale);
    for (int j = 0; j < kBlock; ++j) {
        to.codes[j] = static_cast<std::int8_t>(packed_field<2>(block.codes, j) - 1);
    }
}

constexpr IntegerForm kIntegers = {64, 64, 1, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kQ2_0 = {Type::q2_0,
                                  "Q2_0",
                                  kBlock,
                                  sizeof(Block),
                                  decode_blocks<Block, kBlock, decode_block>,
                                  encode_blocks<Block, kBlock, encode_block>,
                                  encode_blocks_weighted<Block, kBlock, encode_block>,
                                  &kIntegers};

}  // namespace strata::quant
