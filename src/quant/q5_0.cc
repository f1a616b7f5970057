// Q5_0: 32 values share a scale, five bits a value; value = (code - 16) * scale. Byte j holds the
// low four bits of values j (low half) and j + 16 (high half); bit j of `high` is value j's fifth.
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
    std::uint16_t scale;  // f16
    std::array<std::uint8_t, 4> high;
    std::array<std::uint8_t, kHalf> low;
};
static_assert(sizeof(Block) == 22);

void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    for (int j = 0; j < kHalf; ++j) {
        const int first = (block.low[j] & 15) | packed_field<1>(block.high, j) << 4;
        const int second = block.low[j] >> 4 | packed_field<1>(block.high, j + kHalf) << 4;
        out[j] = scale * static_cast<float>(first - 16);
        out[j + kHalf] = scale * static_cast<float>(second - 16);
    }
}

// The levels are lopsided, so a scale of either sign may fit better.
Block encode_block(const float* in, const float* importance) {
    const Prepared<kBlock> values(in, importance);
    const auto level_of = [](float v) { return static_cast<float>(nearest_in(v, -16, 15)); };
    Block block{};
    block.scale = values.stored(fit_scale(values.x, values.w, {14.5f, 16.5f, 9, true}, level_of));
    const float inverse = inverse_of(values.effective(block.scale));
    for (int j = 0; j < kBlock; ++j) {
        const int code = nearest_in(values.x[j] * inverse, -16, 15) + 16;
        block.low[j % kHalf] |= static_cast<std::uint8_t>((code & 15) << j / kHalf * 4);
        block.high[j / 8] |= static_cast<std::uint8_t>(code >> 4 << j % 8);
    }
    return block;
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale);
    for (int j = 0; j < kHalf; ++j) {
        const int first = (block.low[j] & 15) | packed_field<1>(block.high, j) << 4;
        const int second = block.low[j] >> 4 | packed_field<1>(block.high, j + kHalf) << 4;
        to.codes[j] = static_cast<std::int8_t>(first - 16);
        to.codes[j + kHalf] = static_cast<std::int8_t>(second - 16);
    }
}

constexpr IntegerForm kIntegers = {32, 32, 16, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kQ5_0 = {Type::q5_0,
                                  "Q5_0",
                                  kBlock,
                                  sizeof(Block),
                                  decode_blocks<Block, kBlock, decode_block>,
                                  encode_blocks<Block, kBlock, encode_block>,
                                  encode_blocks_weighted<Block, kBlock, encode_block>,
                                  &kIntegers};

}  // namespace strata::quant
