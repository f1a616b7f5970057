#include "quant/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace strata::quant {
namespace {

static_assert(f32_to_f16(1.0f) == 0x3c00 && f16_to_f32(0x3c00) == 1.0f);
static_assert(f32_to_bf16(1.0f) == 0x3f80 && bf16_to_f32(0x3f80) == 1.0f);

// From the definition: (-1)^sign * 2^(exponent - bias) * (1 + fraction / 2^bits).
double defined_value(std::uint32_t half, int exponent_bits, int fraction_bits) {
    const double sign = half >> 15 ? -1.0 : 1.0;
    const int exponent = static_cast<int>(half >> fraction_bits) & ((1 << exponent_bits) - 1);
    const double fraction = half & ((1u << fraction_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
    return sign * std::ldexp(1.0 + std::ldexp(fraction, -fraction_bits), exponent - bias);
}

TEST(Half, every_f16_has_the_value_that_the_standard_defines) {
    for (std::uint32_t half = 0; half < 0x10000; ++half) {
        const float value = f16_to_f32(static_cast<std::uint16_t>(half));
        if ((half & 0x7fff) > 0x7c00) {
            EXPECT_TRUE(std::isnan(value)) << half;
        } else if ((half & 0x7fff) == 0x7c00) {
            EXPECT_EQ(value, half >> 15 ? -INFINITY : INFINITY);
        } else {
            ASSERT_EQ(value, static_cast<float>(defined_value(half, 5, 10))) << half;
            ASSERT_EQ(std::signbit(value), (half >> 15) == 1) << half;
        }
    }
}

TEST(Half, every_f16_survives_the_way_to_float_and_back) {
    for (std::uint32_t half = 0; half < 0x10000; ++half) {
        const auto back = f32_to_f16(f16_to_f32(static_cast<std::uint16_t>(half)));
        const bool nan = (half & 0x7fff) > 0x7c00;
        ASSERT_EQ(back, nan ? half | 0x200 : half);  // NaNs come back quiet
    }
}

TEST(Half, every_bf16_survives_the_way_to_float_and_back) {
    for (std::uint32_t half = 0; half < 0x10000; ++half) {
        const auto back = f32_to_bf16(bf16_to_f32(static_cast<std::uint16_t>(half)));
        const bool nan = (half & 0x7fff) > 0x7f80;
        ASSERT_EQ(back, nan ? half | 0x40 : half);
    }
}

// Between two neighbours of a 16-bit format: the middle goes to the even one, the floats beside the
// middle to the nearer.
template <typename Encode, typename Decode>
void check_rounding(Encode encode, Decode decode, std::uint16_t largest) {
    for (std::uint32_t half = 0; half < largest; ++half) {
        const auto low = static_cast<std::uint16_t>(half);
        const auto high = static_cast<std::uint16_t>(half + 1);
        const double middle = (static_cast<double>(decode(low)) + decode(high)) / 2;
        const auto tie = static_cast<float>(middle);
        if (static_cast<double>(tie) != middle) continue;  // below float's own resolution
        const std::uint16_t even = half % 2 == 0 ? low : high;
        ASSERT_EQ(encode(tie), even) << half;
        ASSERT_EQ(encode(-tie), even | 0x8000) << half;
        ASSERT_EQ(encode(std::nextafter(tie, 0.0f)), low) << half;
        ASSERT_EQ(encode(std::nextafter(tie, INFINITY)), high) << half;
    }
}

TEST(Half, f16_rounds_to_nearest_and_ties_to_even) {
    check_rounding(f32_to_f16, f16_to_f32, 0x7bff);
}

TEST(Half, bf16_rounds_to_nearest_and_ties_to_even) {
    check_rounding(f32_to_bf16, bf16_to_f32, 0x7f7f);
}

TEST(Half, what_is_too_large_becomes_infinite_and_what_is_too_small_zero) {
    EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
    EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
    EXPECT_EQ(f32_to_f16(-1e30f), 0xfc00);
    EXPECT_EQ(f32_to_f16(0x1p-25f), 0);
    EXPECT_EQ(f32_to_f16(-0x1.000002p-25f), 0x8001);
    EXPECT_EQ(f32_to_f16(-1e-40f), 0x8000);
    EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(Half, a_nan_stays_one_whatever_its_payload) {
    for (const std::uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffffffffu}) {
        const auto nan = std::bit_cast<float>(bits);
        EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(nan)))) << bits;
        EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(nan)))) << bits;
    }
}

}  // namespace
}  // namespace strata::quant
