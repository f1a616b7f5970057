// Q8_0: 32 values share a scale, one signed byte a value; value = code * scale.
#include <array>
#include <cmath>
#include <cstring>

#include "quant/formats.h"
#include "quant/half.h"
#include "quant/integer_form.h"

namespace strata::quant {
namespace {

constexpr int kBlock = 32;

struct Block {
    std::uint16_t scale;  // f16
    std::array<std::int8_t, kBlock> codes;
};
static_assert(sizeof(Block) == 34);

void decode(const std::byte* row, float* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += kBlock, row += sizeof(Block)) {
        Block block;
        std::memcpy(&block, row, sizeof(Block));
        const float scale = f16_to_f32(block.scale);
        for (int j = 0; j < kBlock; ++j) out[i + j] = static_cast<float>(block.codes[j]) * scale;
    }
}

// Halves round away from zero. Not finite: a block that holds a NaN or an infinity, or one so small
// that the inverse of its scale overflows; its scale tells, and the code is 0.
std::int8_t code_of(float scaled) {
    return std::isfinite(scaled) ? static_cast<std::int8_t>(std::round(scaled)) : std::int8_t{0};
}

// The codes are made with the scale before it is rounded to f16, as ggml's reference does.
void encode(const float* in, std::byte* row, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += kBlock, row += sizeof(Block)) {
        float largest = 0.0f;
        for (int j = 0; j < kBlock; ++j) {
            const float magnitude = std::fabs(in[i + j]);
            if (magnitude > largest || std::isnan(magnitude)) largest = magnitude;
        }
        const float scale = largest / 127.0f;
        const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
        Block block;
        block.scale = f32_to_f16(scale);
        for (int j = 0; j < kBlock; ++j) block.codes[j] = code_of(in[i + j] * inverse);
        std::memcpy(row, &block, sizeof(Block));
    }
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale);
    for (int j = 0; j < kBlock; ++j) to.codes[j] = block.codes[j];
}

constexpr IntegerForm kIntegers = {32, 32, 128, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kQ8_0 = {Type::q8_0, "Q8_0", kBlock,  sizeof(Block),
                                  decode,     encode, nullptr, &kIntegers};

}  // namespace strata::quant
