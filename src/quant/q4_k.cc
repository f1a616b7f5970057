// Q4_K: 256 values, four bits a value; each 32 share a scale and a minimum of six bits, which two
// f16 of the block multiply; value = scale * code - minimum.
#include <array>

#include "quant/blocks.h"
#include "quant/formats.h"
#include "quant/half.h"
#include "quant/integer_form.h"
#include "quant/k_parts.h"

namespace strata::quant {
namespace {

struct Block {
    std::uint16_t scale;    // f16
    std::uint16_t minimum;  // f16
    std::array<std::uint8_t, 12> parts;
    std::array<std::uint8_t, 128> codes;
};
static_assert(sizeof(Block) == 144);

// The low halves of 32 bytes are one part, their high halves the next.
void decode_block(const Block& block, float* out) {
    const float scale = f16_to_f32(block.scale);
    const float minimum = f16_to_f32(block.minimum);
    const KParts parts = unpack_parts(block.parts);
    for (int part = 0; part < 8; ++part) {
        const float step = scale * static_cast<float>(parts.scales[part]);
        const float base = minimum * static_cast<float>(parts.minima[part]);
        const std::uint8_t* codes = block.codes.data() + part / 2 * 32;
        const int shift = part % 2 * 4;
        for (int j = 0; j < 32; ++j) {
            *out++ = step * static_cast<float>(codes[j] >> shift & 15) - base;
        }
    }
}

Block encode_block(const float* in, const float* importance) {
    const Prepared<kSuperBlock> values(in, importance);
    const KFit fit = fit_parts(values, 15);
    Block block{};
    block.scale = fit.scale;
    block.minimum = fit.minimum;
    block.parts = pack_parts(fit.parts);
    for (int v = 0; v < kSuperBlock; ++v) {
        const int code = fit.codes[v];
        block.codes[v / 64 * 32 + v % 32] |= static_cast<std::uint8_t>(code << v / 32 % 2 * 4);
    }
    return block;
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale);
    to.minimum = f16_to_f32(block.minimum);
    const KParts parts = unpack_parts(block.parts);
    for (int part = 0; part < 8; ++part) {
        to.parts[part] = static_cast<std::int8_t>(parts.scales[part]);
        to.minima[part] = static_cast<std::int8_t>(parts.minima[part]);
        const std::uint8_t* codes = block.codes.data() + part / 2 * 32;
        const int shift = part % 2 * 4;
        for (int j = 0; j < 32; ++j) {
            to.codes[32 * part + j] = static_cast<std::int8_t>(codes[j] >> shift & 15);
        }
    }
}

constexpr IntegerForm kIntegers = {256, 32, 0, true, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kQ4_K = {Type::q4_k,
                                  "Q4_K",
                                  kSuperBlock,
                                  sizeof(Block),
                                  decode_blocks<Block, kSuperBlock, decode_block>,
                                  encode_blocks<Block, kSuperBlock, encode_block>,
                                  encode_blocks_weighted<Block, kSuperBlock, encode_block>,
                                  &kIntegers};

}  // namespace strata::quant
