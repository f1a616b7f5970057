// NVFP4: 64 values of E2M1; each 16 share a scale that is an unsigned E4M3. A factor of the whole
// tensor, which NVFP4 has too, is a tensor of its own and no part of this.
#include <array>
#include <bit>

#include "quant/blocks.h"
#include "quant/e2m1.h"
#include "quant/formats.h"
#include "quant/half.h"
#include "quant/integer_form.h"

namespace strata::quant {
namespace {

constexpr int kBlock = 64;
constexpr int kParts = 4;

struct Block {
    std::array<std::uint8_t, kParts> scales;
    std::array<std::uint8_t, kBlock / 2> codes;
};
static_assert(sizeof(Block) == 36);

// Half of the scale, as the codes' table is doubled. The top bit means nothing; E4M3's NaN, 0x7f,
// is read as 0, as ggml does, and 0xff as the number that it would be.
float half_scale(std::uint32_t code) {
    if (code == 0x7f) return 0.0f;
    const std::uint32_t exponent = code >> 3 & 15;
    const auto fraction = static_cast<float>(code & 7);
    if (exponent == 0) return fraction * 0x1p-10f;
    return (1.0f + fraction / 8.0f) * std::bit_cast<float>((exponent + 127 - 8) << 23);
}

// A part's low halves are its first eight values, the high halves the others.
void decode_block(const Block& block, float* out) {
    for (int part = 0; part < kParts; ++part, out += 16) {
        const float scale = half_scale(block.scales[part]);
        const std::uint8_t* codes = block.codes.data() + 8 * part;
        for (int j = 0; j < 8; ++j) {
            out[j] = scale * static_cast<float>(kE2m1Doubled[codes[j] & 15]);
            out[j + 8] = scale * static_cast<float>(kE2m1Doubled[codes[j] >> 4]);
        }
    }
}

void integers(const Block& block, Integers& to) {
    for (int part = 0; part < kParts; ++part) {
        to.scales[part] = half_scale(block.scales[part]);
        for (int j = 0; j < 8; ++j) {
            const int codes = block.codes[8 * part + j];
            to.codes[16 * part + j] = kE2m1Doubled[codes & 15];
            to.codes[16 * part + j + 8] = kE2m1Doubled[codes >> 4];
        }
    }
}

constexpr IntegerForm kIntegers = {16, 16, 12, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kNVFP4 = {
    Type::nvfp4, "NVFP4", kBlock,    sizeof(Block), decode_blocks<Block, kBlock, decode_block>,
    nullptr,     nullptr, &kIntegers};

}  // namespace strata::quant
