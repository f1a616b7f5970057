// IQ4_XS: 256 values, four bits a value; each 32 share a signed scale of six bits, which an f16 of
// the block multiplies; value = scale * kIq4Values[code].
#include <array>

#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/formats.h"
#include "quant/half.h"

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

}  // namespace

constinit const TypeInfo kIQ4_XS = {Type::iq4_xs,
                                    "IQ4_XS",
                                    kSuperBlock,
                                    sizeof(Block),
                                    decode_blocks<Block, kSuperBlock, decode_block>,
                                    nullptr};

}  // namespace strata::quant
