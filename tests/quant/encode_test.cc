#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "quant/half.h"
#include "quant/type.h"
#include "tests/quant/fixture.h"

namespace strata::quant {
namespace {

constexpr Type kEncoded[] = {Type::q8_0,  Type::q6_k,   Type::q5_0,   Type::q5_1,   Type::q5_k,
                             Type::q4_k,  Type::q4_0,   Type::iq4_nl, Type::iq3_s,  Type::iq3_xxs,
                             Type::iq2_s, Type::iq2_xs, Type::q2_0,   Type::iq4_xs, Type::iq2_xxs};
constexpr std::int64_t kColumns = 1024;

std::vector<float> gaussian() {
    std::vector<float> values;
    for (const std::uint16_t half : fixture<std::uint16_t>("gaussian", "f16")) {
        values.push_back(f16_to_f32(half));
    }
    return values;
}

std::vector<float> round_trip(const TypeInfo& format, const std::vector<float>& values,
                              const float* importance = nullptr) {
    const auto n = static_cast<std::int64_t>(values.size());
    const auto row = static_cast<std::size_t>(row_bytes(format.type, values.size()).value());
    std::vector<std::byte> stored(row);
    if (importance == nullptr || format.encode_weighted == nullptr) {
        format.encode(values.data(), stored.data(), n);
    } else {
        const std::int64_t bytes = kColumns / format.block * format.block_bytes;
        for (std::int64_t r = 0; r < n / kColumns; ++r) {
            format.encode_weighted(values.data() + r * kColumns, importance,
                                   stored.data() + r * bytes, kColumns);
        }
    }
    std::vector<float> decoded(values.size());
    format.decode(stored.data(), decoded.data(), n);
    return decoded;
}

double relative_error(const std::vector<float>& values, const std::vector<float>& decoded,
                      const std::vector<float>* importance = nullptr) {
    double off = 0;
    double all = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double w = importance == nullptr ? 1.0 : (*importance)[i % importance->size()];
        off += w * std::pow(static_cast<double>(values[i]) - decoded[i], 2);
        all += w * std::pow(static_cast<double>(values[i]), 2);
    }
    return std::sqrt(off / all);
}

// Relative RMS errors of ggml's encoders on the same numbers, without and with importance.
struct Reference {
    double plain;
    double weighted;
};

std::map<std::string, Reference> references() {
    std::map<std::string, Reference> all;
    std::ifstream in(STRATA_TEST_DATA "/encoder_errors.txt");
    std::string name;
    Reference errors{};
    while (in >> name >> errors.plain >> errors.weighted) all[name] = errors;
    return all;
}

TEST(Encoders, leave_no_larger_error_than_those_of_ggml) {
    const auto values = gaussian();
    const auto importance = fixture<float>("importance", "f32");
    const auto known = references();
    ASSERT_EQ(known.size(), 17U);
    std::ifstream in(STRATA_FORMATS_PAGE);
    const std::string page{std::istreambuf_iterator<char>(in), {}};
    for (const auto& [name, reference] : known) {
        const TypeInfo& format = *find_type(name);
        const double plain = relative_error(values, round_trip(format, values));
        const double weighted =
            relative_error(values, round_trip(format, values, importance.data()), &importance);
        char line[128];
        std::snprintf(line, sizeof(line), "| %s | %.4f | %.4f | %.4f | %.4f |\n",
                      std::string(format.name).c_str(), plain, reference.plain, weighted,
                      reference.weighted);
        EXPECT_NE(page.find(line), std::string::npos) << "docs/formats.md lacks the line\n" << line;
        EXPECT_LE(plain, 1.005 * reference.plain) << name;
        EXPECT_LE(weighted, 1.005 * reference.weighted) << name;
    }
}

TEST(Encoders, leave_errors_in_the_order_that_their_sizes_promise) {
    const auto values = gaussian();
    const auto error = [&](Type type) {
        return relative_error(values, round_trip(info(type), values));
    };
    double last = 0;
    for (const Type type : {Type::q8_0, Type::q6_k, Type::q5_k, Type::q4_k, Type::iq3_s,
                            Type::iq3_xxs, Type::iq2_s, Type::iq2_xs, Type::iq2_xxs, Type::q2_0}) {
        const double now = error(type);
        EXPECT_GT(now, 1.05 * last) << info(type).name;
        last = now;
    }
    EXPECT_LT(last, 0.37);
    EXPECT_NEAR(error(Type::iq4_nl), error(Type::q4_k), 0.1 * error(Type::q4_k));
    EXPECT_LT(error(Type::q5_1), error(Type::q5_0));
    EXPECT_LT(error(Type::q5_k), error(Type::q5_1) * 1.1);
}

TEST(Encoders, keep_zeros_and_blocks_of_one_value) {
    for (const Type type : kEncoded) {
        const TypeInfo& format = info(type);
        SCOPED_TRACE(format.name);
        std::vector<float> values(512);
        for (const float value : round_trip(format, values)) ASSERT_EQ(value, 0.0f);
        values[300] = -3.0f;
        auto decoded = round_trip(format, values);
        EXPECT_LT(decoded[300],
                  -1.4f);  // the grids have no zero, and all their values share a scale
        std::fill(values.begin(), values.end(), 0.25f);
        decoded = round_trip(format, values);
        EXPECT_LT(relative_error(values, decoded), 0.05);
    }
}

// Powers of two change nothing but the scale.
TEST(Encoders, fit_alike_at_every_size) {
    auto values = gaussian();
    values.resize(1024);
    for (const Type type : kEncoded) {
        const TypeInfo& format = info(type);
        const auto first = round_trip(format, values);
        for (const float factor : {0x1p-4f, 0x1p9f}) {
            auto scaled = values;
            for (float& value : scaled) value *= factor;
            auto decoded = round_trip(format, scaled);
            for (float& value : decoded) value /= factor;
            EXPECT_NEAR(relative_error(values, decoded), relative_error(values, first), 2e-3)
                << format.name << " times " << factor;
        }
    }
}

TEST(Encoders, give_the_same_bytes_at_any_alignment_and_for_blocks_apart) {
    auto values = gaussian();
    values.resize(512);
    for (const Type type : kEncoded) {
        const TypeInfo& format = info(type);
        const auto size = static_cast<std::size_t>(row_bytes(type, 512).value());
        std::vector<std::byte> row(size);
        std::vector<std::byte> shifted(size + 1);
        format.encode(values.data(), row.data(), 512);
        const auto half = static_cast<std::ptrdiff_t>(size / 2);
        format.encode(values.data() + 256, shifted.data() + 1 + half, 256);
        format.encode(values.data(), shifted.data() + 1, 256);
        EXPECT_TRUE(std::equal(row.begin(), row.end(), shifted.begin() + 1)) << format.name;
        format.encode(nullptr, nullptr, 0);
    }
}

TEST(Encoders, spend_their_codes_on_what_is_important) {
    auto values = gaussian();
    values.resize(kColumns);
    std::vector<float> importance(kColumns, 1.0f);
    for (std::size_t i = 0; i < importance.size(); i += 4) importance[i] = 100.0f;
    for (const Type type : kEncoded) {
        const TypeInfo& format = info(type);
        if (format.encode_weighted == nullptr) continue;
        const double blind = relative_error(values, round_trip(format, values), &importance);
        const auto seeing = round_trip(format, values, importance.data());
        EXPECT_LT(relative_error(values, seeing, &importance), 0.99 * blind) << format.name;
    }
}

TEST(Encoders, take_any_importance) {
    auto values = gaussian();
    values.resize(kColumns);
    const float kOdd[] = {0.0f, -1.0f, 1e38f, 1e-44f, INFINITY, NAN};
    for (const Type type : kEncoded) {
        const TypeInfo& format = info(type);
        if (format.encode_weighted == nullptr) continue;
        const double plain = relative_error(values, round_trip(format, values));
        for (const float odd : kOdd) {
            const std::vector<float> importance(kColumns, odd);
            const auto decoded = round_trip(format, values, importance.data());
            EXPECT_LT(relative_error(values, decoded), 1.05 * plain) << format.name << ' ' << odd;
        }
        std::vector<float> importance(kColumns, 1.0f);
        for (std::size_t i = 0; i < importance.size(); ++i) importance[i] = kOdd[i % 6];
        for (const float value : round_trip(format, values, importance.data())) {
            EXPECT_TRUE(std::isfinite(value)) << format.name;
        }
    }
}

TEST(Encoders, take_what_is_not_finite_too_large_or_too_small) {
    const float kLimit = std::numeric_limits<float>::max();
    for (const Type type : kEncoded) {
        const TypeInfo& format = info(type);
        for (const float odd : {NAN, -NAN, INFINITY, -INFINITY, 1e-45f, -1e-39f, kLimit, -kLimit}) {
            std::vector<float> values(512, 0.5f);
            values[5] = odd;
            const auto decoded = round_trip(format, values);
            if (std::isnan(odd)) {
                EXPECT_TRUE(std::isnan(decoded[5])) << format.name;
            }
            EXPECT_NEAR(decoded[400], 0.5f, 0.03f) << format.name << " beside " << odd;
            std::fill(values.begin(), values.end(), odd);
            (void)round_trip(format, values);
            for (std::size_t i = 0; i < values.size(); i += 2) values[i] = -odd;
            (void)round_trip(format, values);
        }
    }
}

// What has been stored once is stored again without loss, or nearly so.
TEST(Encoders, hardly_change_what_has_been_stored_once) {
    auto values = gaussian();
    for (const Type type : kEncoded) {
        const TypeInfo& format = info(type);
        const auto once = round_trip(format, values);
        const auto twice = round_trip(format, once);
        EXPECT_LT(relative_error(once, twice), 0.5 * relative_error(values, once)) << format.name;
    }
}

}  // namespace
}  // namespace strata::quant
