#include "gguf/value.h"

#include <gtest/gtest.h>

#include <limits>

namespace strata::gguf {
namespace {

TEST(GgufValue, integers_of_every_width_convert_where_they_fit) {
    EXPECT_EQ(Value::of(std::uint8_t{200}).as_uint(), 200U);
    EXPECT_EQ(Value::of(std::int8_t{100}).as_uint(), 100U);
    EXPECT_EQ(Value::of(std::int8_t{-100}).as_uint(), std::nullopt);
    EXPECT_EQ(Value::of(std::int8_t{-100}).as_int(), -100);
    EXPECT_EQ(Value::of(std::uint16_t{60000}).as_int(), 60000);
    EXPECT_EQ(Value::of(std::int16_t{-1}).as_int(), -1);
    EXPECT_EQ(Value::of(std::uint32_t{4000000000}).as_uint(), 4000000000U);
    EXPECT_EQ(Value::of(std::int32_t{-5}).as_uint(), std::nullopt);
    EXPECT_EQ(Value::of(std::numeric_limits<std::uint64_t>::max()).as_uint(),
              std::numeric_limits<std::uint64_t>::max());
    EXPECT_EQ(Value::of(std::numeric_limits<std::uint64_t>::max()).as_int(), std::nullopt);
    EXPECT_EQ(Value::of(std::numeric_limits<std::int64_t>::min()).as_int(),
              std::numeric_limits<std::int64_t>::min());
}

TEST(GgufValue, nothing_but_a_number_is_a_number) {
    EXPECT_EQ(Value::of(0.5f).as_float(), 0.5);
    EXPECT_EQ(Value::of(0.1).as_float(), 0.1);
    EXPECT_EQ(Value::of(std::int32_t{-3}).as_float(), -3.0);
    EXPECT_EQ(Value::of(0.5f).as_uint(), std::nullopt);
    EXPECT_EQ(Value::of(2.0).as_int(), std::nullopt);
    EXPECT_EQ(Value::of(true).as_uint(), std::nullopt);
    EXPECT_EQ(Value::of(true).as_float(), std::nullopt);
    EXPECT_EQ(Value::string("5").as_uint(), std::nullopt);
    EXPECT_EQ(Value::string("5").as_float(), std::nullopt);
    const Value array = Value::array(std::vector<std::uint32_t>{5});
    EXPECT_EQ(array.as_uint(), std::nullopt);
    EXPECT_EQ(array.as_float(), std::nullopt);
}

TEST(GgufValue, bools_and_strings_are_only_what_they_are) {
    EXPECT_EQ(Value::of(true).as_bool(), true);
    EXPECT_EQ(Value::of(false).as_bool(), false);
    EXPECT_EQ(Value::of(std::uint8_t{1}).as_bool(), std::nullopt);
    EXPECT_EQ(Value::string("").as_string(), "");
    EXPECT_EQ(Value::string("naïve").as_string(), "naïve");
    EXPECT_EQ(Value::of(std::uint8_t{1}).as_string(), std::nullopt);
    EXPECT_EQ(Value::string("").as_strings(), std::nullopt);
}

TEST(GgufValue, arrays_convert_element_by_element) {
    const Value ints = Value::array(std::vector<std::int32_t>{11, -1});
    EXPECT_EQ(ints.count(), 2U);
    EXPECT_EQ(ints.as_ints(), (std::vector<std::int64_t>{11, -1}));
    EXPECT_EQ(ints.as_uints(), std::nullopt);
    EXPECT_EQ(ints.as_floats(), (std::vector<float>{11, -1}));
    EXPECT_EQ(ints.as_bools(), std::nullopt);
    EXPECT_EQ(ints.as_strings(), std::nullopt);
    const Value large = Value::array(std::vector<std::uint64_t>{1, ~std::uint64_t{0}});
    EXPECT_EQ(large.as_uints(), (std::vector<std::uint64_t>{1, ~std::uint64_t{0}}));
    EXPECT_EQ(large.as_ints(), std::nullopt);
    const Value floats = Value::array(std::vector<float>{0.5f});
    EXPECT_EQ(floats.as_floats(), std::vector<float>{0.5f});
    EXPECT_EQ(floats.as_ints(), std::nullopt);
    EXPECT_EQ(Value::of(std::uint32_t{5}).as_uints(), std::nullopt);
    EXPECT_EQ(Value::array(std::vector<std::int32_t>{}).as_ints(), std::vector<std::int64_t>{});
}

TEST(GgufValue, string_arrays_give_back_every_string) {
    const std::vector<std::string> words = {"", "a", std::string("b\0c", 3), "Ġhello"};
    const Value value = Value::array(words);
    const auto found = value.as_strings();
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(std::vector<std::string>(found->begin(), found->end()), words);
    EXPECT_EQ(value.as_string(), std::nullopt);
    EXPECT_EQ(value.as_ints(), std::nullopt);
    EXPECT_EQ(value.as_floats(), std::nullopt);
}

TEST(GgufValue, types_have_names_for_messages) {
    EXPECT_EQ(Value::string("x").type_text(), "string");
    EXPECT_EQ(Value::of(1.0f).type_text(), "f32");
    EXPECT_EQ(Value::array(std::vector<std::uint64_t>{}).type_text(), "array of u64");
    EXPECT_EQ(name_of(static_cast<ValueType>(99)), "unknown type");
}

}  // namespace
}  // namespace strata::gguf
