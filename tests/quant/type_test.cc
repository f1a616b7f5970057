#include "quant/type.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/quant/fixture.h"

namespace strata::quant {
namespace {

constexpr Type kFloatTypes[] = {Type::f32, Type::f16, Type::bf16, Type::q8_0, Type::q4_0};

std::vector<std::byte> encode(const TypeInfo& format, const std::vector<float>& values) {
    const auto n = static_cast<std::int64_t>(values.size());
    std::vector<std::byte> row(row_bytes(format.type, values.size()).value());
    format.encode(values.data(), row.data(), n);
    return row;
}

std::vector<float> decode(const TypeInfo& format, const std::vector<std::byte>& row) {
    const std::size_t n = row.size() / format.block_bytes * format.block;
    std::vector<float> values(n);
    format.decode(row.data(), values.data(), static_cast<std::int64_t>(n));
    return values;
}

TEST(Quant, encoders_write_the_bytes_of_the_public_package) {
    for (const Type type : {Type::f16, Type::bf16, Type::q8_0, Type::q4_0}) {
        const TypeInfo& format = info(type);
        const auto ours = encode(format, fixture<float>(format.name, "floats"));
        const auto theirs = fixture<std::byte>(format.name, "encoded");
        ASSERT_EQ(ours.size(), theirs.size());
        for (std::size_t i = 0; i < ours.size(); ++i) {
            ASSERT_EQ(ours[i], theirs[i]) << format.name << " block " << i / format.block_bytes;
        }
    }
}

TEST(Quant, decoders_read_the_values_of_the_public_package) {
    for (const Type type : {Type::f16, Type::bf16, Type::q8_0, Type::q4_0}) {
        const TypeInfo& format = info(type);
        const auto ours = decode(format, fixture<std::byte>(format.name, "codes"));
        const auto theirs = fixture<float>(format.name, "decoded");
        ASSERT_EQ(ours.size(), theirs.size());
        for (std::size_t i = 0; i < ours.size(); ++i) {
            if (std::isnan(theirs[i])) {
                ASSERT_TRUE(std::isnan(ours[i])) << format.name << " value " << i;
            } else {
                ASSERT_EQ(std::bit_cast<std::uint32_t>(ours[i]),
                          std::bit_cast<std::uint32_t>(theirs[i]))
                    << format.name << " value " << i;
            }
        }
    }
}

TEST(Quant, rows_of_any_alignment_decode_alike) {
    for (const Type type : kFloatTypes) {
        const TypeInfo& format = info(type);
        std::vector<float> values(64);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
        const auto row = encode(format, values);
        std::vector<std::byte> shifted(row.size() + 1);
        std::copy(row.begin(), row.end(), shifted.begin() + 1);
        std::vector<float> out(64);
        format.decode(shifted.data() + 1, out.data(), 64);
        EXPECT_EQ(out, decode(format, row)) << format.name;
        format.encode(values.data(), shifted.data() + 1, 64);
        EXPECT_TRUE(std::equal(row.begin(), row.end(), shifted.begin() + 1)) << format.name;
    }
}

TEST(Quant, no_values_need_no_memory) {
    for (const Type type : kFloatTypes) {
        info(type).decode(nullptr, nullptr, 0);
        info(type).encode(nullptr, nullptr, 0);
    }
}

// Half a step of the code, plus what rounding the scale to f16 moves a value of the largest code.
// The scales stay in f16's normal range.
TEST(Quant, a_value_comes_back_within_half_a_step) {
    std::mt19937_64 random(11);
    std::normal_distribution<float> normal;
    for (int round = 0; round < 200; ++round) {
        std::vector<float> values(32);
        float largest = 0;
        for (float& value : values) {
            value = normal(random) * std::exp2(static_cast<float>(round % 10 - 5));
            largest = std::max(largest, std::fabs(value));
        }
        const auto q8 = decode(info(Type::q8_0), encode(info(Type::q8_0), values));
        const auto q4 = decode(info(Type::q4_0), encode(info(Type::q4_0), values));
        for (std::size_t i = 0; i < values.size(); ++i) {
            EXPECT_LE(std::fabs(q8[i] - values[i]), largest * (0.5f / 127 + 0x1p-10f));
            // The value opposite to the largest has no code of its own: a whole step.
            EXPECT_LE(std::fabs(q4[i] - values[i]), largest * (1.0f / 8 + 0x1p-10f));
        }
    }
}

TEST(Quant, what_is_not_finite_is_encoded_without_undefined_behaviour) {
    const float kNan = std::numeric_limits<float>::quiet_NaN();
    const float kInfinity = std::numeric_limits<float>::infinity();
    for (const Type type : kFloatTypes) {
        for (const float odd : {kNan, -kNan, kInfinity, -kInfinity, 1e-45f, 3e38f}) {
            std::vector<float> values(32, 0.5f);
            values[5] = odd;
            const auto out = decode(info(type), encode(info(type), values));
            if (std::isnan(odd)) {
                EXPECT_TRUE(std::isnan(out[5])) << info(type).name;
            }
            std::fill(values.begin(), values.end(), odd);
            (void)decode(info(type), encode(info(type), values));
        }
    }
}

TEST(Quant, formats_are_found_by_id_and_by_name_in_any_case) {
    for (const Type type : kFloatTypes) {
        const TypeInfo& format = info(type);
        EXPECT_EQ(find_type(static_cast<std::uint32_t>(type)), &format);
        EXPECT_EQ(find_type(format.name), &format);
        EXPECT_EQ(type_name(static_cast<std::uint32_t>(type)), format.name);
        EXPECT_NE(readable_types().find(format.name), std::string::npos);
    }
    EXPECT_EQ(find_type("q8_0"), &info(Type::q8_0));
    EXPECT_EQ(find_type("Bf16"), &info(Type::bf16));
    EXPECT_EQ(find_type("q8"), nullptr);
    EXPECT_EQ(find_type(""), nullptr);
    EXPECT_EQ(find_type(24), nullptr);  // I8
    EXPECT_EQ(find_type(0xffffffff), nullptr);
}

TEST(Quant, types_that_cannot_be_read_have_names_for_messages) {
    EXPECT_EQ(type_name(21), "IQ3_S");
    EXPECT_EQ(type_name(12), "Q4_K");
    EXPECT_EQ(type_name(4), "4 (unknown)");
    EXPECT_EQ(type_name(4000000000), "4000000000 (unknown)");
}

TEST(Quant, a_row_has_the_bytes_of_its_blocks) {
    EXPECT_EQ(row_bytes(Type::f32, 5).value(), 20U);
    EXPECT_EQ(row_bytes(Type::bf16, 5).value(), 10U);
    EXPECT_EQ(row_bytes(Type::q8_0, 64).value(), 68U);
    EXPECT_EQ(row_bytes(Type::q4_0, 64).value(), 36U);
    EXPECT_EQ(row_bytes(Type::i64, 3).value(), 24U);
}

TEST(Quant, a_row_that_the_block_does_not_divide_is_refused_with_both_numbers) {
    const auto row = row_bytes(Type::q8_0, 48);
    ASSERT_FALSE(row.ok());
    EXPECT_NE(row.error().message.find("48"), std::string::npos) << row.error().message;
    EXPECT_NE(row.error().message.find("32"), std::string::npos) << row.error().message;
}

TEST(Quant, a_row_whose_size_wraps_is_refused) {
    EXPECT_FALSE(row_bytes(Type::f32, std::uint64_t{1} << 62).ok());
    EXPECT_FALSE(row_bytes(Type::q8_0, ~std::uint64_t{0} / 32 * 32).ok());
}

}  // namespace
}  // namespace strata::quant
