// IQ4_NL: 32 values share a scale, four bits a value; value = kIq4Values[code] * scale. Byte j
// holds the codes of values j (low half) and j + 16 (high half).
#include <array>

#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/fit.h"
#include "quant/formats.h"
#include "quant/half.h"
#include "quant/integer_form.h"
#include "quant/iq4_nearest.h"

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

Block encode_block(const float* in, const float* importance) {
    const Prepared<kBlock> values(in, importance);
    const Iq4Nearest& nearest = iq4_nearest();
    const auto level_of = [&](float v) { return static_cast<float>(kIq4Values[nearest.code(v)]); };
    Block block{};
    block.scale = values.stored(fit_scale(values.x, values.w, {96.0f, 132.0f, 10, true}, level_of));
    const float inverse = inverse_of(values.effective(block.scale));
    for (int j = 0; j < kBlock; ++j) {
        const int code = nearest.code(values.x[j] * inverse);
        block.codes[j % kHalf] |= static_cast<std::uint8_t>(code << j / kHalf * 4);
    }
    return block;
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale);
    for (int j = 0; j < kHalf; ++j) {
        to.codes[j] = kIq4Values[block.codes[j] & 15];
        to.codes[j + kHalf] = kIq4Values[block.codes[j] >> 4];
    }
}

constexpr IntegerForm kIntegers = {32, 32, 128, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kIQ4_NL = {Type::iq4_nl,
                                    "IQ4_NL",
                                    kBlock,
                                    sizeof(Block),
                                    decode_blocks<Block, kBlock, decode_block>,
                                    encode_blocks<Block, kBlock, encode_block>,
                                    encode_blocks_weighted<Block, kBlock, encode_block>,
                                    &kIntegers};

}  // namespace strata::quant
