// 16-bit floating point: IEEE 754 binary16 and bfloat16, to and from float. All conversions round
// to nearest, ties to even; every NaN stays one.
#pragma once

#include <bit>
#include <cstdint>

namespace strata::quant {

constexpr float f16_to_f32(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    const std::uint32_t exponent = (half >> 10) & 0x1fu;
    const std::uint32_t fraction = half & 0x3ffu;
    if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0) {
        return std::bit_cast<float>(sign | (exponent + (127 - 15)) << 23 | fraction << 13);
    }
    // Zero and subnormals are exact multiples of 2^-24.
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

constexpr std::uint16_t f32_to_f16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {  // the payload's upper bits are kept and the NaN made quiet
        return static_cast<std::uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    }
    if (magnitude >= 0x47800000u) return sign | 0x7c00u;  // 2^16 and above
    std::uint32_t rounded = 0;
    if (magnitude >= 0x38800000u) {  // 2^-14 and above: normal; a carry may reach infinity
        const std::uint32_t shifted = magnitude - ((127u - 15u) << 23);
        rounded = (shifted + 0xfffu + (shifted >> 13 & 1u)) >> 13;
    } else {
        // Adding 0.5, whose last bit is worth 2^-24, makes the addition do the rounding.
        const float sum = std::bit_cast<float>(magnitude) + 0.5f;
        rounded = std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(0.5f);
    }
    return static_cast<std::uint16_t>(sign | rounded);
}

constexpr float bf16_to_f32(std::uint16_t half) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

constexpr std::uint16_t f32_to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {  // made quiet
        return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
    }
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace strata::quant
