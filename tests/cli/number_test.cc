#include "cli/number.h"

#include <gtest/gtest.h>

#include <string>

namespace strata::cli {
namespace {

std::int64_t integer(std::string_view text, IntegerRange range = {}) {
    const auto value = parse_integer(text, range);
    EXPECT_TRUE(value.ok()) << text;
    return value.ok() ? *value : -1;
}

TEST(Number, units_multiply) {
    EXPECT_EQ(integer("0"), 0);
    EXPECT_EQ(integer("8192"), 8192);
    EXPECT_EQ(integer("8k"), 8192);
    EXPECT_EQ(integer("8K"), 8192);
    EXPECT_EQ(integer("12GiB"), std::int64_t{12} << 30);
    EXPECT_EQ(integer("12gib"), std::int64_t{12} << 30);
    EXPECT_EQ(integer("2TiB"), std::int64_t{2} << 40);
    EXPECT_EQ(integer("3MB"), 3000000);
    EXPECT_EQ(integer("7B"), 7);
    EXPECT_EQ(integer("0000000000000000000000000000000000012"), 12);
    EXPECT_EQ(integer("9223372036854775807"), INT64_MAX);
}

TEST(Number, a_sign_is_taken_where_the_range_has_one) {
    EXPECT_EQ(integer("-1", {-1, 10}), -1);
    EXPECT_EQ(integer("-0"), 0);
    EXPECT_FALSE(parse_integer("-1", {0, 10}).ok());
}

TEST(Number, what_is_no_whole_number_is_an_error) {
    for (const char* text : {"", " ", "k", "-", "--1", "+1", "1.5", "1e3", "0x10", "8 k", " 8",
                             "8q", "8kk", "8kiB ", "1,000", "\xd9\xa1", "nan"}) {
        EXPECT_FALSE(parse_integer(text, {}).ok()) << text;
    }
}

TEST(Number, what_wraps_or_leaves_the_range_is_an_error_with_the_range) {
    for (const char* text : {"0", "4097", "5k", "9223372036854775808", "99999999999999999999999",
                             "8388608TiB", "-1"}) {
        const auto value = parse_integer(text, {1, 4096});
        ASSERT_FALSE(value.ok()) << text;
        EXPECT_NE(value.error().message.find("1 to 4096"), std::string::npos)
            << value.error().message;
    }
}

TEST(Number, a_seed_has_64_bits) {
    EXPECT_EQ(*parse_seed("18446744073709551615"), UINT64_MAX);
    for (const char* text : {"", "-1", "18446744073709551616", "1k", " 1", "1.0"}) {
        EXPECT_FALSE(parse_seed(text).ok()) << text;
    }
}

TEST(Number, reals_are_finite) {
    EXPECT_EQ(*parse_real("0.5"), 0.5);
    EXPECT_EQ(*parse_real("-2"), -2);
    EXPECT_EQ(*parse_real("1e-3"), 1e-3);
    EXPECT_EQ(*parse_real("-0"), 0);
    for (const char* text :
         {"", "nan", "-nan", "inf", "-inf", "1e999", "1,5", "0.5x", " 1", "+1", "0x1p3", "."}) {
        EXPECT_FALSE(parse_real(text).ok()) << text;
    }
}

TEST(Number, lists_are_parted_by_commas_or_white_space) {
    EXPECT_EQ(*parse_list("1,2,3", "id"), (std::vector<std::int32_t>{1, 2, 3}));
    EXPECT_EQ(*parse_list("0", "id"), (std::vector<std::int32_t>{0}));
    EXPECT_EQ(*parse_list(" 1 , 2\n3\t2147483647\n", "id"),
              (std::vector<std::int32_t>{1, 2, 3, INT32_MAX}));
}

TEST(Number, a_wrong_item_of_a_list_is_named_with_its_place) {
    const struct {
        const char* text;
        const char* named;
    } cases[] = {{"1,x,3", "id 2 of the list is 'x'"},
                 {"1,,3", "id 2 of the list is ''"},
                 {",1", "id 1 of the list is ''"},
                 {"1,", "id 2 of the list is ''"},
                 {"1,-2", "id 2 of the list is '-2'"},
                 {"1,-0", "id 2 of the list is '-0'"},
                 {"2147483648", "id 1 of the list is '2147483648'"},
                 {"1,99999999999999999999", "id 2 of the list is '99999999999999999999'"},
                 {"1.5", "id 1 of the list is '1.5'"},
                 {"1;2", "id 1 of the list is '1;2'"},
                 {"1k", "id 1 of the list is '1k'"}};
    for (const auto& one : cases) {
        const auto list = parse_list(one.text, "id");
        ASSERT_FALSE(list.ok()) << one.text;
        EXPECT_NE(list.error().message.find(one.named), std::string::npos) << list.error().message;
    }
    EXPECT_FALSE(parse_list("", "id").ok());
    EXPECT_FALSE(parse_list(" \n", "id").ok());
}

}  // namespace
}  // namespace strata::cli
