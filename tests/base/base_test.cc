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
}

TEST(Text, of_a_long_value_the_ends_are_quoted_and_no_character_is_cut) {
    const std::string x(kQuoteBytesMax / 4 * 3, 'x');
    const std::string y(kQuoteBytesMax / 4, 'y');
    EXPECT_EQ(quote(x + y), concat('\'', x, y, '\''));
    EXPECT_EQ(quote(concat(x, std::string(100'000, '-'), y)), concat('\'', x, "...", y, '\''));
    EXPECT_EQ(quote(concat(x.substr(1), "東", std::string(100, '-'), "東", y.substr(1))),
              concat('\'', x.substr(1), "...", y.substr(1), '\''));
    // Bytes that only go on with a character are none.
    EXPECT_GT(quote(std::string(1000, '\x85')).size(), kQuoteBytesMax / 2);
}

TEST(Text, what_a_terminal_would_obey_is_escaped_and_its_neighbours_are_not) {
    EXPECT_EQ(escaped("\x7f|\u0080|\u009f|\u00a0"), "\\x7f|\\xc2\\x80|\\xc2\\x9f|\u00a0");
    EXPECT_EQ(escaped("\u061b\u061c\u061d"), "\u061b\\xd8\\x9c\u061d");
    EXPECT_EQ(escaped("\u200d\u200e\u200f\u2010"), "\u200d\\xe2\\x80\\x8e\\xe2\\x80\\x8f\u2010");
    EXPECT_EQ(escaped("\u2027\u2028\u202e\u202f"), "\u2027\\xe2\\x80\\xa8\\xe2\\x80\\xae\u202f");
    EXPECT_EQ(escaped("\u2065\u2066\u2069\u206a"), "\u2065\\xe2\\x81\\xa6\\xe2\\x81\\xa9\u206a");
    EXPECT_EQ(escaped("\xe2\x80"), "\\xe2\\x80");
    EXPECT_EQ(escaped("\xff\x9b|東\x80"), "\\xff\\x9b|東\\x80");
    EXPECT_EQ(escaped("\xc0\x9b|\xf5"), "\\xc0\\x9b|\\xf5");
    EXPECT_EQ(escaped(""), "");
}

TEST(Text, shapes_and_sentences_are_written_out) {
    const std::uint64_t shape[] = {2560, 512};
    EXPECT_EQ(shape_text(shape), "[2560, 512]");
    EXPECT_EQ(shape_text({}), "[]");
    EXPECT_EQ(concat("a ", 1234567, ' ', 0.5, " b"), "a 1234567 0.5 b");
}

}  // namespace
}  // namespace strata
