// Results, checked arithmetic and text.
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "base/checked.h"
#include "base/result.h"
#include "base/text.h"

namespace strata {
namespace {

Result<int> half(int n) {
    if (n % 2 != 0) return STRATA_ERROR(n, " is odd");
    return n / 2;
}

Result<int> quarter(int n) {
    STRATA_ASSIGN(const int once, half(n));
    STRATA_ASSIGN(const int twice, half(once));
    return twice;
}

Status check_even(int n) {
    STRATA_TRY(half(n));
    return Ok{};
}

TEST(Result, holds_a_value_or_a_sentence) {
    EXPECT_EQ(half(4).value(), 2);
    EXPECT_EQ(half(3).error().message, "3 is odd");
    EXPECT_TRUE(half(4).ok());
    EXPECT_FALSE(half(3).ok());
}

TEST(Result, an_error_leaves_the_function_at_once) {
    EXPECT_EQ(quarter(12).value(), 3);
    EXPECT_EQ(quarter(6).error().message, "3 is odd");
    EXPECT_TRUE(check_even(2).ok());
    EXPECT_EQ(check_even(5).error().message, "5 is odd");
}

TEST(Result, carries_values_that_only_move) {
    Result<std::unique_ptr<int>> made(std::make_unique<int>(7));
    const std::unique_ptr<int> taken = std::move(made).value();
    EXPECT_EQ(*taken, 7);
}

using ResultDeathTest = ::testing::Test;

TEST(ResultDeathTest, the_value_of_an_error_is_a_broken_invariant) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH((void)half(3).value(), "broken invariant");
}

TEST(Checked, a_wrap_is_no_value) {
    constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
    EXPECT_EQ(checked_add(2, 3), 5U);
    EXPECT_EQ(checked_add(kMax, 0), kMax);
    EXPECT_FALSE(checked_add(kMax, 1));
    EXPECT_EQ(checked_mul(std::uint64_t{1} << 32, (std::uint64_t{1} << 32) - 1),
              ((std::uint64_t{1} << 32) - 1) << 32);
    EXPECT_FALSE(checked_mul(std::uint64_t{1} << 32, std::uint64_t{1} << 32));
    EXPECT_EQ(checked_mul(kMax, 0), 0U);
    EXPECT_EQ(checked_align(0, 32), 0U);
    EXPECT_EQ(checked_align(1, 32), 32U);
    EXPECT_EQ(checked_align(64, 32), 64U);
    EXPECT_FALSE(checked_align(kMax - 3, 32));
}

TEST(Text, names_from_outside_stay_one_line) {
    EXPECT_EQ(quote("naïve 東京"), "'naïve 東京'");
    EXPECT_EQ(quote(std::string_view("a\n\x1b\0z", 5)), "'a\\x0a\\x1b\\x00z'");
    const std::string longest = quote(std::string(100'000, 'x'));
    EXPECT_LT(longest.size(), kQuoteBytesMax + 10);
    EXPECT_TRUE(longest.ends_with("...'"));
}

TEST(Text, shapes_and_sentences_are_written_out) {
    const std::uint64_t shape[] = {2560, 512};
    EXPECT_EQ(shape_text(shape), "[2560, 512]");
    EXPECT_EQ(shape_text({}), "[]");
    EXPECT_EQ(concat("a ", 1234567, ' ', 0.5, " b"), "a 1234567 0.5 b");
}

}  // namespace
}  // namespace strata
