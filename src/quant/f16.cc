// F16: IEEE 754 binary16.
#include <cstring>

#include "quant/formats.h"
#include "quant/half.h"

namespace strata::quant {
namespace {

void decode(const std::byte* row, float* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i, row += 2) {
        std::uint16_t half = 0;
        std::memcpy(&half, row, 2);
        out[i] = f16_to_f32(half);
    }
}

void encode(const float* in, std::byte* row, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i, row += 2) {
        const std::uint16_t half = f32_to_f16(in[i]);
        std::memcpy(row, &half, 2);
    }
}

}  // namespace

constinit const TypeInfo kF16 = {Type::f16, "F16", 1, 2, decode, encode};

}  // namespace strata::quant
