// F32: float as it is. Nothing at all may be at a null pointer, which memcpy does not take.
#include <cstring>

#include "quant/formats.h"

namespace strata::quant {
namespace {

void decode(const std::byte* row, float* out, std::int64_t n) {
    if (n > 0) std::memcpy(out, row, static_cast<std::size_t>(n) * sizeof(float));
}

void encode(const float* in, std::byte* row, std::int64_t n) {
    if (n > 0) std::memcpy(row, in, static_cast<std::size_t>(n) * sizeof(float));
}

}  // namespace

constinit const TypeInfo kF32 = {Type::f32, "F32", 1, 4, decode, encode};

}  // namespace strata::quant
