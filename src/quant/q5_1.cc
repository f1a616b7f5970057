// Q5_1: 32 values share a scale and an offset, five bits a value; value = code * scale + offset.
// The codes lie as in Q5_0.
#include <array>

#include "quant/blocks.h"
#include "quant/fit.h"
#include "quant/formats.h"
#include "quant/half.h"
#include "quant/integer_form.h"

namespace strata::quant {
namespace {

constexpr int kBlock = 32;
constexpr int kHalf = kBlock / 2;

struct Block {
    std::uint16_t scale;   // f16
    std::uint16_t offset;  // f16
    std::array<std::uint8_t, 4> high;
    std::array<std::uint8_t, kHalf> low;
};
static_assert(sizeof(Block) == 24);

void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    const float offset = f16_to_f32(block.offset);
    for (int j = 0; j < kHalf; ++j) {
        const int first = (block.low[j] & 15) | packed_field<1>(block.high, j) << 4;
        const int second = block.low[j] >> 4 | packed_field<1>(block.high, j + kHalf) << 4;
        out[j] = scale * static_cast<float>(first) + offset;
        out[j + kHalf] = scale * static_cast<float>(second) + offset;
    }
}

Block encode_block(const float* in, const float* importance) {
    const Prepared<kBlock> values(in, importance);
    const Affine fit = fit_affine(values.x, values.w, 31, false);
    Block block{};
    block.scale = values.stored(fit.scale);
    block.offset = values.stored(fit.base);
    const float inverse = inverse_of(values.effective(block.scale));
    const float base = values.effective(block.offset);
    for (int j = 0; j < kBlock; ++j) {
        const int code = nearest_in((values.x[j] - base) * inverse, 0, 31);
        block.low[j % kHalf] |= static_cast<std::uint8_t>((code & 15) << j / kHalf * 4);
        block.high[j / 8] |= static_cast<std::uint8_t>(code >> 4 << j % 8);
    }
    return block;
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale);
    to.minimum = -f16_to_f32(block.offset);
    for (int j = 0; j < kHalf; ++j) {
        const int first = (block.low[j] & 15) | packed_field<1>(block.high, j) << 4;
        const int second = block.low[j] >> 4 | packed_field<1>(block.high, j + kHalf) << 4;
        to.codes[j] = static_cast<std::int8_t>(first);
        to.codes[j + kHalf] = static_cast<std::int8_t>(second);
    }
}

constexpr IntegerForm kIntegers = {32, 32, 0, true, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kQ5_1 = {Type::q5_1,
                                  "Q5_1",
                                  kBlock,
                                  sizeof(Block),
                                  decode_blocks<Block, kBlock, decode_block>,
                                  encode_blocks<Block, kBlock, encode_block>,
                                  encode_blocks_weighted<Block, kBlock, encode_block>,
                                  &kIntegers};

}  // namespace strata::quant
