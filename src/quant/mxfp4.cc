// MXFP4: 32 values of E2M1 share a scale that is a power of two (E8M0: 2^(byte - 127)). Byte j
// holds the codes of values j (low half) and j + 16 (high half).
#include <array>
#include <bit>

#include "quant/blocks.h"
#include "quant/e2m1.h"
#include "quant/formats.h"
#include "quant/half.h"
#include "quant/integer_form.h"

namespace strata::quant {
namespace {

constexpr int kBlock = 32;
constexpr int kHalf = kBlock / 2;

struct Block {
    std::uint8_t exponent;
    std::array<std::uint8_t, kHalf> codes;
};
static_assert(sizeof(Block) == 17);

// Half of the scale, as the codes' table is doubled: the two smallest are subnormal. E8M0's one
// NaN, 255, is read as 2^128, as ggml does.
float half_scale(std::uint32_t exponent) {
    return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

void decode_block(const Block& block, float* out) {
    const float scale = half_scale(block.exponent);
    for (int j = 0; j < kHalf; ++j) {
        out[j] = scale * static_cast<float>(kE2m1Doubled[block.codes[j] & 15]);
        out[j + kHalf] = scale * static_cast<float>(kE2m1Doubled[block.codes[j] >> 4]);
    }
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = half_scale(block.exponent);
    for (int j = 0; j < kHalf; ++j) {
        to.codes[j] = kE2m1Doubled[block.codes[j] & 15];
        to.codes[j + kHalf] = kE2m1Doubled[block.codes[j] >> 4];
    }
}

constexpr IntegerForm kIntegers = {32, 32, 12, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kMXFP4 = {
    Type::mxfp4, "MXFP4", kBlock,    sizeof(Block), decode_blocks<Block, kBlock, decode_block>,
    nullptr,     nullptr, &kIntegers};

}  // namespace strata::quant
