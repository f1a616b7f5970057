// IQ4_XS: 256 values, four bits a value; each 32 share a signed scale of six bits, which an f16 of
// the block multiplies; value = scale * kIq4Values[code].
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

struct Block {
    std::uint16_t scale;  // f16
    std::uint16_t high;   // the upper two bits of each part's scale
    std::array<std::uint8_t, 4> low;
    std::array<std::uint8_t, 128> codes;
};
static_assert(sizeof(Block) == 136);

// The low halves of 16 bytes are the first 16 values of a part, the high halves the others.
void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    for (int part = 0; part < 8; ++part, out += 32) {
        const int code = packed_field<4>(block.low, part) | (block.high >> 2 * part & 3) << 4;
        const float step = scale * static_cast<float>(code - 32);
        const std::uint8_t* codes = block.codes.data() + 16 * part;
        for (int j = 0; j < 16; ++j) {
            out[j] = step * static_cast<float>(kIq4Values[codes[j] & 15]);
            out[j + 16] = step * static_cast<float>(kIq4Values[codes[j] >> 4]);
        }
    }
}

Block encode_block(const float* in, const float* importance) {
    const Prepared<kSuperBlock> values(in, importance);
    const std::span<const float> x(values.x);
    const std::span<const float> w(values.w);
    const Iq4Nearest& nearest = iq4_nearest();
    const auto level_of = [&](float v) { return static_cast<float>(kIq4Values[nearest.code(v)]); };
    std::array<float, 8> scales;
    float extreme = 0.0f;
    for (int part = 0; part < 8; ++part) {
        scales[part] = fit_scale(x.subspan(32 * part, 32), w.subspan(32 * part, 32),
                                 {96.0f, 132.0f, 10, true}, level_of);
        if (std::fabs(scales[part]) > std::fabs(extreme)) extreme = scales[part];
    }
    Block block{};
    block.scale = values.stored(extreme / -32.0f);
    const float scale = values.effective(block.scale);
    for (int part = 0; part < 8; ++part) {
        const int code = nearest_in(scales[part] * inverse_of(scale), -32, 31);
        block.low[part / 2] |= static_cast<std::uint8_t>(((code + 32) & 15) << part % 2 * 4);
        block.high |= static_cast<std::uint16_t>((code + 32) >> 4 << 2 * part);
        const float inverse = inverse_of(scale * static_cast<float>(code));
        for (int j = 0; j < 32; ++j) {
            const int nibble = nearest.code(x[32 * part + j] * inverse);
            block.codes[16 * part + j % 16] |= static_cast<std::uint8_t>(nibble << j / 16 * 4);
        }
    }
    return block;
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale);
    for (int part = 0; part < 8; ++part) {
        const int code = packed_field<4>(block.low, part) | (block.high >> 2 * part & 3) << 4;
        to.parts[part] = static_cast<std::int8_t>(code - 32);
        const std::uint8_t* codes = block.codes.data() + 16 * part;
        for (int j = 0; j < 16; ++j) {
            to.codes[32 * part + j] = kIq4Values[codes[j] & 15];
            to.codes[32 * part + j + 16] = kIq4Values[codes[j] >> 4];
        }
    }
}

constexpr IntegerForm kIntegers = {256, 32, 128, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kIQ4_XS = {Type::iq4_xs,
                                    "IQ4_XS",
                                    kSuperBlock,
                                    sizeof(Block),
                                    decode_blocks<Block, kSuperBlock, decode_block>,
                                    encode_blocks<Block, kSuperBlock, encode_block>,
                                    encode_blocks_weighted<Block, kSuperBlock, encode_block>,
                                    &kIntegers};

}  // namespace strata::quant
