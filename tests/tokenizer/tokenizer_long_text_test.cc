// Two megabytes of one thing on a stack of 256 KiB. What is quadratic would take an hour.
#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <functional>
#include <string>

#include "tests/tokenizer/cases.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace strata {
namespace {

constexpr std::size_t kBytes = 2'000'000;
constexpr std::size_t kStackBytes = 256 * 1024;
constexpr double kSecondsMax = 60;

void* call(void* body) {
    (*static_cast<std::function<void()>*>(body))();
    return nullptr;
}

void on_a_small_stack(std::function<void()> body) {
    pthread_attr_t attributes;
    ASSERT_EQ(pthread_attr_init(&attributes), 0);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
    pthread_t thread;
    ASSERT_EQ(pthread_create(&thread, &attributes, call, &body), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
}

std::string repeated(const std::string& unit) {
    std::string text;
    text.reserve(kBytes + unit.size());
    while (text.size() < kBytes) text += unit;
    return text;
}

struct Unit {
    const char* name;
    const char* text;
};

class LongText : public testing::TestWithParam<Unit> {};

TEST_P(LongText, is_encoded_in_time_and_comes_back) {
    const std::string text = repeated(GetParam().text);
    const Tokenizer& tokenizer = fixture_tokenizer();
    const auto begin = std::chrono::steady_clock::now();
    std::vector<TokenId> ids;
    on_a_small_stack([&] { ids = tokenizer.encode(text); });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    RecordProperty("seconds", std::to_string(taken.count()));
    EXPECT_LT(taken.count(), kSecondsMax);
    EXPECT_TRUE(tokenizer.decode(ids) == to_nfc(text));
}

constexpr Unit kUnits[] = {
    {"one_letter", "a"},
    {"two_letters", "th"},
    {"a_word", "inreasontedly"},
    {"one_mark", "\u0301"},
    {"marks_out_of_order", "\u0301\u0323"},
    {"letters_that_compose", "a\u0301"},
    {"spaces", " "},
    {"digits", "7"},
    {"newlines", "\n"},
    {"spaces_and_newlines", " \n"},
    {"crlf", "\r\n"},
    {"tabs", "\t"},
    {"next_lines", "\u0085"},
    {"words", " x"},
    {"punctuation", "!"},
    {"apostrophes", "'"},
    {"ideographs", "漢"},
    {"joined_emoji", "\U0001F468\u200d"},
    {"broken_bytes", "\xFF"},
    {"beginnings_of_an_added_token", "<|im_end|"},
};

INSTANTIATE_TEST_SUITE_P(TwoMegabytes, LongText, testing::ValuesIn(kUnits),
                         [](const auto& unit) { return std::string(unit.param.name); });

TEST(TokenizerLongText, a_deeply_nested_tokenizer_json_is_an_error_on_a_small_stack) {
    const std::string json = "{\"model\":" + std::string(kBytes, '[');
    on_a_small_stack([&] { EXPECT_FALSE(vocabulary_from_json(json, "").ok()); });
}

}  // namespace
}  // namespace strata
