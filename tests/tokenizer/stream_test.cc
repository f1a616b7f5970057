// Text on its way out: characters whole, stop strings never.
#include "tokenizer/stream.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace strata {
namespace {

// Everything that comes out when `bytes` goes in cut at random places.
template <typename Stream>
std::string in_pieces(Stream stream, const std::string& bytes, std::mt19937& random,
                      std::size_t longest) {
    std::string text;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t length = std::min<std::size_t>(1 + random() % longest, bytes.size() - at);
        text += stream.push(bytes.substr(at, length));
        at += length;
    }
    return text + stream.finish();
}

StopMatcher matcher(std::vector<std::string> stops) {
    auto created = StopMatcher::create(std::move(stops));
    EXPECT_TRUE(created.ok()) << created.error().message;
    return std::move(created).value();
}

// The definition, on the whole text: the first end of a stop, of several there the longest.
std::string cut_at_stop(const std::string& text, const std::vector<std::string>& stops) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        std::size_t longest = 0;
        for (const std::string& stop : stops) {
            if (end >= stop.size() && text.compare(end - stop.size(), stop.size(), stop) == 0) {
                longest = std::max(longest, stop.size());
            }
        }
        if (longest > 0) return text.substr(0, end - longest);
    }
    return text;
}

TEST(TextStream, a_character_is_held_until_it_is_whole) {
    TextStream stream;
    EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
    EXPECT_EQ(stream.push("\x91"), "");
    EXPECT_EQ(stream.push("\x8D!"), "\xF0\x9F\x91\x8D!");
    EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, an_unfinished_character_at_the_end_is_one_replacement) {
    TextStream stream;
    EXPECT_EQ(stream.push("\xF0\x9F\x91"), "");
    EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
    EXPECT_EQ(stream.finish(), "");
    EXPECT_EQ(stream.push("b"), "b");
}

// Wanted values: what Python's bytes.decode('utf-8', 'replace') says.
TEST(TextStream, bytes_that_form_no_character_are_replaced_as_python_does) {
    const std::string r = "\xEF\xBF\xBD";
    EXPECT_EQ(to_utf8("\xFF\xFE"), r + r);
    EXPECT_EQ(to_utf8("\xC0\x80"), r + r);
    EXPECT_EQ(to_utf8("\xED\xA0\x80"), r + r + r);
    EXPECT_EQ(to_utf8("\xE2\x82"
                      "A"),
              r + "A");
    EXPECT_EQ(to_utf8("\xE2\x28\xA1"), r + "(" + r);
    EXPECT_EQ(to_utf8("\xF0\x9F\x91\xF0\x9F\x91\x8D"), r + "\xF0\x9F\x91\x8D");
    EXPECT_EQ(to_utf8("\xF4\x90\x80\x80"), r + r + r + r);
    EXPECT_EQ(to_utf8("\xE0\x9F\xBF"), r + r + r);
    EXPECT_EQ(to_utf8(std::string("\0", 1)), std::string("\0", 1));
}

TEST(TextStream, where_the_bytes_are_cut_does_not_matter) {
    const std::string some = "щё👩‍👩‍👧a\xFF\xF0\x9F\xC3\xE2\x82\xED\xA0\x80\xF4\x8F";
    std::mt19937 random(1);
    for (int i = 0; i < 3000; ++i) {
        std::string bytes(random() % 30, 'x');
        for (char& byte : bytes) byte = some[random() % some.size()];
        EXPECT_EQ(in_pieces(TextStream(), bytes, random, 5), to_utf8(bytes));
    }
    EXPECT_EQ(in_pieces(TextStream(), "щёчки 👩‍👩‍👧", random, 1),
              "щёчки 👩‍👩‍👧");
}

TEST(StopMatcher, nothing_of_a_stop_string_comes_out) {
    StopMatcher stops = matcher({"beta gamma"});
    std::string text;
    for (const char byte : std::string("alpha beta gamma delta")) text += stops.push({&byte, 1});
    EXPECT_EQ(text + stops.finish(), "alpha ");
    EXPECT_EQ(stops.matched(), 0u);
    EXPECT_EQ(stops.push("more"), "");
}

TEST(StopMatcher, a_beginning_that_does_not_become_a_stop_comes_out) {
    StopMatcher stops = matcher({"DEFGHIJ"});
    EXPECT_EQ(stops.push("ABCDEF"), "ABC");
    EXPECT_EQ(stops.push("G"), "");
    EXPECT_EQ(stops.push("HIX"), "DEFGHIX");
    EXPECT_EQ(stops.push("DE"), "");
    EXPECT_EQ(stops.finish(), "DE");
    EXPECT_FALSE(stops.matched().has_value());
}

TEST(StopMatcher, the_text_before_a_stop_inside_a_token_comes_out_once) {
    StopMatcher stops = matcher({"\n", "Bob:"});
    EXPECT_EQ(stops.push("Alice!"), "Alice!");
    EXPECT_EQ(stops.push("?\nrest"), "?");
    EXPECT_EQ(stops.matched(), 0u);
    EXPECT_EQ(stops.finish(), "");
}

TEST(StopMatcher, of_stops_that_end_together_the_longest_counts) {
    StopMatcher stops = matcher({"c", "abc", "bc"});
    EXPECT_EQ(stops.push("xab"), "x");
    EXPECT_EQ(stops.push("c"), "");
    EXPECT_EQ(stops.matched(), 1u);
}

TEST(StopMatcher, where_the_text_is_cut_does_not_matter) {
    std::mt19937 random(5);
    const auto word = [&](std::size_t longest) {
        std::string text(1 + random() % longest, 'a');
        for (char& letter : text) letter = "ab"[random() % 2];
        return text;
    };
    for (int i = 0; i < 5000; ++i) {
        std::vector<std::string> stops;
        for (std::size_t n = 1 + random() % 3; n > 0; --n) stops.push_back(word(8));
        const std::string text = word(30);
        EXPECT_EQ(in_pieces(matcher(stops), text, random, 4), cut_at_stop(text, stops)) << text;
    }
}

TEST(StopMatcher, without_stops_everything_comes_out_at_once) {
    StopMatcher stops;
    EXPECT_EQ(stops.push("abc"), "abc");
    EXPECT_EQ(stops.finish(), "");
}

TEST(StopMatcher, stops_beyond_the_limits_are_errors) {
    EXPECT_FALSE(StopMatcher::create({""}).ok());
    EXPECT_FALSE(StopMatcher::create({"\xFF"}).ok());
    EXPECT_FALSE(StopMatcher::create({std::string(kStopStringBytesMax + 1, 'a')}).ok());
    EXPECT_FALSE(StopMatcher::create(std::vector<std::string>(kStopStringsMax + 1, "a")).ok());
    EXPECT_TRUE(StopMatcher::create({std::string(kStopStringBytesMax, 'a')}).ok());
}

}  // namespace
}  // namespace strata
