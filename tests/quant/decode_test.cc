#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "quant/type.h"
#include "tests/quant/fixture.h"

namespace strata::quant {
namespace {

constexpr Type kBlockTypes[] = {
    Type::q5_0,    Type::q5_1,  Type::q2_0,   Type::q2_k,   Type::q3_k,   Type::q4_k,
    Type::q5_k,    Type::q6_k,  Type::iq1_m,  Type::iq2_s,  Type::iq2_xs, Type::iq2_xxs,
    Type::iq3_xxs, Type::iq3_s, Type::iq4_nl, Type::iq4_xs, Type::mxfp4,  Type::nvfp4};

std::uint64_t hash_of(const float* values, int n) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < n; ++i) {
        const bool nan = std::isnan(values[i]);
        hash =
            (hash ^ (nan ? 0x7fc00000u : std::bit_cast<std::uint32_t>(values[i]))) * 0x100000001b3u;
    }
    return hash;
}

TEST(Decoders, read_the_values_of_the_public_package) {
    for (const Type type : kBlockTypes) {
        const TypeInfo& format = info(type);
        SCOPED_TRACE(format.name);
        const auto codes = fixture<std::byte>(format.name, "codes");
        const auto hashes = fixture<std::uint64_t>(format.name, "hashes");
        ASSERT_EQ(codes.size(), hashes.size() * static_cast<std::size_t>(format.block_bytes));
        const auto n = static_cast<std::int64_t>(hashes.size()) * format.block;
        std::vector<float> values(static_cast<std::size_t>(n));
        format.decode(codes.data(), values.data(), n);
        for (std::size_t block = 0; block < hashes.size(); ++block) {
            const float* first = values.data() + block * static_cast<std::size_t>(format.block);
            EXPECT_EQ(hash_of(first, format.block), hashes[block]) << "block " << block;
        }
    }
}

TEST(Decoders, read_rows_of_any_alignment_and_no_row_at_all) {
    for (const Type type : kBlockTypes) {
        const TypeInfo& format = info(type);
        SCOPED_TRACE(format.name);
        const auto codes = fixture<std::byte>(format.name, "codes");
        std::vector<std::byte> shifted(codes.size() + 1);
        std::copy(codes.begin(), codes.end(), shifted.begin() + 1);
        std::vector<float> values(static_cast<std::size_t>(format.block));
        std::vector<float> again(values.size());
        const auto last = codes.size() - static_cast<std::size_t>(format.block_bytes);
        format.decode(codes.data() + last, values.data(), format.block);
        format.decode(shifted.data() + 1 + last, again.data(), format.block);
        EXPECT_EQ(values, again);
        format.decode(nullptr, nullptr, 0);
    }
}

TEST(Decoders, are_found_by_id_and_name) {
    for (const Type type : kBlockTypes) {
        const TypeInfo& format = info(type);
        SCOPED_TRACE(format.name);
        const auto id = static_cast<std::uint32_t>(type);
        EXPECT_EQ(find_type(id), &format);
        EXPECT_EQ(find_type(format.name), &format);
        EXPECT_EQ(type_name(id), format.name);
    }
}

TEST(Decoders, refuse_a_width_that_the_block_does_not_divide) {
    for (const Type type : kBlockTypes) {
        const TypeInfo& format = info(type);
        SCOPED_TRACE(format.name);
        const auto block = static_cast<std::uint64_t>(format.block);
        EXPECT_EQ(row_bytes(type, 3 * block).value(), 3U * format.block_bytes);
        const auto refused = row_bytes(type, block + block / 2);
        ASSERT_FALSE(refused.ok());
        EXPECT_NE(refused.error().message.find(format.name), std::string::npos);
    }
}

TEST(Quant, an_expert_of_640_columns_is_refused_by_the_formats_of_256) {
    const auto refused = row_bytes(Type::iq3_xxs, 640);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "a row of 640 values cannot be IQ3_XXS, whose blocks hold 256 values");
    EXPECT_EQ(row_bytes(Type::q2_0, 640).value(), 180U);
}

}  // namespace
}  // namespace strata::quant
