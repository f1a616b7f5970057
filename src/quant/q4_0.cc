// Q4_0: 32 values share a scale, four bits a value; value = (code - 8) * scale. Byte j holds the
// codes of values j (low half) and j + 16 (high half).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

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
    std::array<std::uint8_t, kHalf> codes;
};
static_assert(sizeof(Block) == 18);

void decode(const std::byte* row, float* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += kBlock, row += sizeof(Block)) {
        Block block;
        std::memcpy(&block, row, sizeof(Block));
        const float scale = f16_to_f32(block.scale);
        for (int j = 0; j < kHalf; ++j) {
            out[i + j] = scale * static_cast<float>((block.codes[j] & 15) - 8);
            out[i + j + kHalf] = scale * static_cast<float>((block.codes[j] >> 4) - 8);
        }
    }
}

// `scaled` is in [-8, 8] up to rounding; 8 has no code and becomes 7. Not finite: a block that
// holds a NaN or an infinity, or one so small that the inverse of its scale overflows; its scale
// tells, and the code is 0.
std::uint8_t code_of(float scaled) {
    const float raised = scaled + 8.5f;
    if (!std::isfinite(raised)) return 0;
    return static_cast<std::uint8_t>(std::clamp(static_cast<int>(raised), 0, 15));
}

// The first value of the largest magnitude becomes -8 exactly, so the scale takes the opposite of
// its sign.
void encode(const float* in, std::byte* row, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += kBlock, row += sizeof(Block)) {
        float largest = in[i];
        for (int j = 1; j < kBlock && !std::isnan(largest); ++j) {
            const float value = in[i + j];
            if (std::fabs(value) > std::fabs(largest) || std::isnan(value)) largest = value;
        }
        const float scale = largest / -8.0f;
        const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
        Block block;
        block.scale = f32_to_f16(scale);
        for (int j = 0; j < kHalf; ++j) {
            const int low = code_of(in[i + j] * inverse);
            const int high = code_of(in[i + j + kHalf] * inverse);
            block.codes[j] = static_cast<std::uint8_t>(low | high << 4);
        }
        std::memcpy(row, &block, sizeof(Block));
    }
}

// With importance, what fits best; without, what files of other programs have.
Block encode_block(const float* in, const float* importance) {
    const Prepared<kBlock> values(in, importance);
    const auto level_of = [](float v) { return static_cast<float>(nearest_in(v, -8, 7)); };
    Block block{};
    block.scale = values.stored(fit_scale(values.x, values.w, {6.5f, 8.75f, 10, true}, level_of));
    const float inverse = inverse_of(values.effective(block.scale));
    for (int j = 0; j < kBlock; ++j) {
        const int code = nearest_in(values.x[j] * inverse, -8, 7) + 8;
        block.codes[j % kHalf] |= static_cast<std::uint8_t>(code << j / kHalf * 4);
    }
    return block;
}

void integers(const Block& block, Integers& to) {
    to.scales[0] = f16_to_f32(block.scale);
    for (int j = 0; j < kHalf; ++j) {
        to.codes[j] = static_cast<std::int8_t>((block.codes[j] & 15) - 8);
        to.codes[j + kHalf] = static_cast<std::int8_t>((block.codes[j] >> 4) - 8);
    }
}

constexpr IntegerForm kIntegers = {32, 32, 8, false, unpack_integers<Block, integers>};

}  // namespace

constinit const TypeInfo kQ4_0 = {Type::q4_0,
                                  "Q4_0",
                                  kBlock,
                                  sizeof(Block),
                                  decode,
                                  encode,
                                  encode_blocks_weighted<Block, kBlock, encode_block>,
                                  &kIntegers};

}  // namespace strata::quant
