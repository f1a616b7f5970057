#include "base/scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/compare.h"

namespace strata {
namespace {

std::vector<float> waves(std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = 9 * std::sin(static_cast<float>(i) * 1.7f);
    }
    return values;
}

TEST(Scan, exponentials_are_summed_whatever_their_number) {
    for (const std::size_t count : {1, 15, 16, 17, 1000}) {
        const std::vector<float> values = waves(count);
        double wanted = 0;
        for (const float x : values) wanted += std::exp(static_cast<double>(x) - 2.5);
        const auto sum = static_cast<float>(sum_of_exponentials(values, 2.5f));
        test::expect_close(std::to_string(count), {sum}, test::Rows{{wanted}},
                           test::Tolerance::projection());
    }
}

TEST(Scan, the_first_of_the_largest_is_found_wherever_it_stands) {
    for (const std::size_t count : {1, 255, 256, 257, 700}) {
        for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
            std::vector<float> values = waves(count);
            values[at] = 10;
            values.back() = 10;
            EXPECT_EQ(first_largest(values), at) << count;
        }
    }
    EXPECT_EQ(first_largest(std::vector<float>{-3, -2, -2, -5}), 1u);
    EXPECT_EQ(first_largest(std::vector<float>(300, -std::numeric_limits<float>::infinity())), 0u);
}

TEST(Scan, zeros_are_as_large_whatever_their_sign) {
    EXPECT_EQ(first_largest(std::vector<float>{-1, -0.0f, 0.0f}), 1u);
}

TEST(Scan, the_first_NaN_is_found_and_infinities_are_none) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> values = waves(100);
    values[7] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(first_nan(values), values.size());
    values[80] = kNan;
    values[33] = -kNan;
    EXPECT_EQ(first_nan(values), 33u);
}

TEST(Scan, the_first_above_a_bound_is_found_from_any_place_on) {
    for (const std::size_t count : {1, 63, 64, 65, 200}) {
        for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
            std::vector<float> values(count, 2.0f);
            values[at] = 3;
            EXPECT_EQ(first_above(values, 0, 2), at) << count;
            EXPECT_EQ(first_above(values, at, 2), at) << count;
            EXPECT_EQ(first_above(values, at + 1, 2), count) << count;
            EXPECT_EQ(first_above(values, 0, 3), count) << count;
        }
    }
}

TEST(Scan, neither_NaN_nor_an_infinity_is_finite) {
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
        std::vector<float> values = waves(70);
        EXPECT_TRUE(all_finite(values));
        values[66] = value;
        EXPECT_FALSE(all_finite(values)) << value;
    }
    EXPECT_TRUE(all_finite(std::vector<float>{std::numeric_limits<float>::max(), -0.0f}));
}

}  // namespace
}  // namespace strata
