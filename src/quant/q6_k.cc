// Q6_K: 256 values, six bits a value; each 16 share a signed scale of eight bits, which an f16 of
// the block multiplies; value = scale * (code - 32).
#include <array>

#include "quant/blocks.h"
#include "quant/fit.h"
#include "quant/formats.h"
#include "quant/half.h"
#include "quant/integer_form.h"

namespace strata::quant {
namespace {

struct Block {
    std::array<std::uint8_t, 128> low;
    std::array<std::uint8_t, 64> high;
    std::array<std::int8_t, 16> parts;
    std::uint16_t scale;  // f16
};
static_assert(sizeof(Block) == 210);

// 128 values take 64 bytes of `low`, first the low halves, then the high ones, and 32 bytes of
// `high`, two bits of each for 32 neighbours.
void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    for (int part = 0; part < 16; ++part) {
        const float step = scale * static_cast<float>(block.parts[part]);
        const int half = part / 8;
        const int within = part % 8 * 16;
        const std::uint8_t* low = block.low.data() + half * 64 + within % 64;
        const std::uint8_t* high = block.high.data() + half * 32 + within % 32;
        for (int j = 0; j < 16; ++j) {
            const int code = (low[j] >> within / 64 * 4 & 15) | (high[j] >> within / 32 * 2 & 3)
                                                                    << 4;
            *out++ = step * static_cast<float>(code - 32);
        }
    }
}

Block encode_block(const float* in, const float* importance) {
    const Prepared<kSuperBlock> values(in, importance);
    const std::span<const float> x(values.x);
    const std::span<const float> w(values.w);
    const auto level_of = [](float v) { return static_cast<float>(nearest_in(v, -32, 31)); };
    std::array<float, 16> scales;
    float extreme = 0.0f;
    for (int part = 0; part < 16; ++part) {
        scales[part] = fit_scale(x.subspan(16 * part, 16), w.subspan(16 * part, 16),
                                 {30.0f, 33.0f, 7, true}, level_of);
        if (std::fabs(scales[part]) > std::fabs(extreme)) extreme = scales[part];
    }
    Block block{};
    block.scale = values.stored(extreme / -128.0f);
    const float scale = values.effective(block.scale);
    const float inverse = inverse_of(scale);
    for (int part = 0; part < 16; ++part) {
        block.parts[part] = static_cast<std::int8_t>(nearest_in(scales[part] * inverse, -128, 127));
        const float part_inverse = inverse_of(scale * static_cast<float>(block.parts[part]));
        for (int v = 16 * part; v < 16 * part + 16; ++v) {
            const int code = nearest_in(x[v] * part_inverse, -32, 31) + 32;
            const int within = v % 128;
            block.low[v / 128 * 64 + within % 64] |=
                static_cast<std::uint8_t>((code & 15) << within / 64 * 4);
            block.high[v / 128 * 32 + within % 32] |=
                static_cast<std::uint8_t>(code >> 4 << within / 32 * 2);
        }
    }
    return block;
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale);
    for (int part = 0; part < 16; ++part) {
        to.parts[part] = block.parts[part];
        const int half = part / 8;
        const int within = part % 8 * 16;
        const std::uint8_t* low = block.low.data() + half * 64 + within % 64;
        const std::uint8_t* high = block.high.data() + half * 32 + within % 32;
        for (int j = 0; j < 16; ++j) {
            const int code = (low[j] >> within / 64 * 4 & 15) | (high[j] >> within / 32 * 2 & 3)
                                                                    << 4;
            to.codes[16 * part + j] = static_cast<std::int8_t>(code - 32);
        }
    }
}

constexpr IntegerForm kIntegers = {256, 16, 32, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kQ6_K = {Type::q6_k,
                                  "Q6_K",
                                  kSuperBlock,
                                  sizeof(Block),
                                  decode_blocks<Block, kSuperBlock, decode_block>,
                                  encode_blocks<Block, kSuperBlock, encode_block>,
                                  encode_blocks_weighted<Block, kSuperBlock, encode_block>,
                                  &kIntegers};

}  // namespace strata::quant
