// The grammar of JSON: what it takes in, what it refuses and at which byte.

#include "grammar/json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace strata::test {
namespace {

using grammar::Json;
using Texts = std::vector<std::string>;

// Bytes of `text` that are taken in.
std::size_t taken(const std::string& text, Json* state) {
    std::size_t count = 0;
    while (count < text.size() && state->push(static_cast<std::uint8_t>(text[count]))) ++count;
    return count;
}

bool is_whole(const std::string& text) {
    Json state;
    return taken(text, &state) == text.size() && state.complete();
}

// Each as the value of a member.
void expect_values(const Texts& values, bool allowed) {
    for (const std::string& value : values) {
        EXPECT_EQ(is_whole("{\"a\":" + value + "}"), allowed) << value;
        EXPECT_EQ(is_whole("{\"a\":[" + value + " , " + value + "]}"), allowed) << value;
    }
}

// Refused at the last byte, whatever would come after it.
void expect_dead(const Texts& texts) {
    for (const std::string& text : texts) {
        Json state;
        EXPECT_EQ(taken(text, &state), text.size() - 1) << text;
    }
}

// What goes on.
void expect_begun(const Texts& texts) {
    for (const std::string& text : texts) {
        Json state;
        EXPECT_EQ(taken(text, &state), text.size()) << text;
        EXPECT_FALSE(state.complete()) << text;
    }
}

std::string repeated(const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
}

TEST(Json, objects_are_whole_with_their_last_brace) {
    for (const char* text : {"{}", " {}", "\n\n{ }", "{\"\":0}", "{\"a\" : {\"b\" :[ ]} ,\"a\":1}",
                             "{\"a\":[{},[],[[1],{\"b\":[]}]]}"}) {
        EXPECT_TRUE(is_whole(text)) << text;
    }
    expect_begun({"", " ", "{", "{\"", "{\"a", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,",
                  "{\"a\":[", "{\"a\":[1,", "{\"a\":tru"});
}

TEST(Json, nothing_but_an_object_begins_and_nothing_follows_it) {
    expect_dead({"[", "\"", "1", "t", "}", "\xef", "{} ", "{}\n", "{}{", "{}}", "{},"});
}

TEST(Json, members_and_elements_stand_between_commas) {
    expect_dead({"{,",          "{1",         "{a",          "{\"a\",",        "{\"a\"1",
                 "{\"a\"::",    "{\"a\":,",   "{\"a\":}",    "{\"a\":1,}",     "{\"a\":1,,",
                 "{\"a\":1]",   "{\"a\":[}",  "{\"a\":[,",   "{\"a\":[1,]",    "{\"a\":[1}",
                 "{\"a\":[1 2", "{\"a\":[1:", "{\"a\":1 \"", "{\"a\":[\"b\":", "{\"a\":{]",
                 "{\"a\":[]]",  "{\"a\":1,{", "{'",          "{\"a\":/"});
}

TEST(Json, numbers_are_as_the_rfc_writes_them) {
    expect_values({"0", "-0", "7", "10", "-120", "0.0", "1.05", "0e0", "1E5", "1e+05", "2e-3",
                   "1.5e10", "-0.0E-0"},
                  true);
    expect_values({"",     "01",  "-",        "-01",       "00",  "+1",    ".5",  "1.",
                   "1.e1", "1e",  "1e+",      "1e1.0",     "0x1", "1e1e1", "- 1", "1 1",
                   "--1",  "NaN", "Infinity", "-Infinity", "1_0", "1.2.3"},
                  false);
    expect_dead({"{\"a\":01", "{\"a\":-}", "{\"a\":1.}", "{\"a\":1e}", "{\"a\":1e+,"});
}

TEST(Json, numbers_end_at_the_length_that_is_allowed) {
    const std::string most(grammar::kJsonDigitsMax, '9');
    expect_values({most, "-" + most + "." + most + "e-99", "0." + most, most + "e+00"}, true);
    expect_values({most + "9", "0." + most + "0", "1e100", "1e-001", "1" + most + ".0"}, false);
    expect_begun({"{\"a\":" + most + " ", "{\"a\":[1e10,"});
}

TEST(Json, literals_are_true_false_and_null) {
    expect_values({"true", "false", "null"}, true);
    expect_values({"tru", "truee", "True", "nul", "nulll", "fals", "none", "trfalse", "true false"},
                  false);
}

TEST(Json, strings_escape_what_has_to_be) {
    expect_values({R"("")", R"("a b")", R"("\"\\\/\b\f\n\r\t")", R"("\u0041\uabCD\u0000")",
                   "\"\x7f\"", R"("//")", R"("{[,:")"},
                  true);
    expect_values({R"("\a")", R"("\x41")", R"("\u12")", R"("\u12g4")", R"("\U0041")", R"("\")",
                   "\"\n\"", "\"\t\"", "\"\x1f\"", std::string("\"\0\"", 3), R"('a')", R"("a)"},
                  false);
    expect_dead({"{\"a\":\"\\u12\"", "{\"a\":\"\\u12g", "{\"\n", "{\"a\":\"\\'"});
}

TEST(Json, escaped_surrogates_come_in_pairs) {
    expect_values({R"("\ud83d\ude00")", R"("\uD800\uDC00\uDBFF\uDFFF")", R"("\ud7ff\ue000")"},
                  true);
    expect_values({R"("\ud83d")", R"("\ude00")", R"("\ude00\ud83d")", R"("\ud83d\u0041")",
                   R"("\ud83dx")", R"("\ud83d\n")", R"("\ud83d\ud83d\ude00")"},
                  false);
}

TEST(Json, strings_are_utf8_and_nothing_overlong) {
    expect_values({"\"\xc2\x80\xdf\xbf\"", "\"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\"",
                   "\"\xf0\x90\x80\x80\xf1\x80\x80\x80\xf4\x8f\xbf\xbf\""},
                  true);
    expect_dead({"{\"\x80", "{\"\xbf", "{\"\xc0", "{\"\xc1", "{\"\xf5", "{\"\xff", "{\"\xc3\"",
                 "{\"\xe0\x9f", "{\"\xed\xa0", "{\"\xf0\x8f", "{\"\xf4\x90", "{\"\xe2\x82\"",
                 "{\"\xe2\x82\xc0", "{\"\xf0\x90\x80\"", "{\"\xf1\x80\x80\x80\x80", "{\"a\":\xc2"});
    // A character begun with one token goes on in the next.
    Json state;
    EXPECT_TRUE(state.push("{\"\xe2"));
    EXPECT_TRUE(state.push("\x82"));
    EXPECT_FALSE(Json(state).push("\""));
    EXPECT_TRUE(state.push("\xac\":0}"));
    EXPECT_TRUE(state.complete());
}

TEST(Json, nesting_ends_at_the_depth_that_is_allowed) {
    const int inner = grammar::kJsonDepthMax - 1;
    const std::string arrays = "{\"a\":" + repeated("[", inner);
    EXPECT_TRUE(is_whole(arrays + repeated("]", inner) + "}"));
    EXPECT_TRUE(is_whole(repeated("{\"a\":", inner) + "{}" + repeated("}", inner)));
    expect_dead({arrays + "[", arrays + "{", repeated("{\"a\":", inner + 1) + "{"});
    expect_begun({arrays + "1,"});
}

TEST(Json, white_space_ends_at_the_length_that_is_allowed) {
    const std::string most(grammar::kJsonSpaceMax, ' ');
    EXPECT_TRUE(is_whole("{" + most + "\"a\"" + most + ":" + most + "1" + most + "," + most +
                         "\"b\":\"" + most + most + "\"}"));
    for (const char* before : {"{", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":[", "{\"a\":1,"}) {
        expect_dead({before + most + " ", before + most + "\n"});
    }
    const std::string lead(grammar::kJsonLeadMax, '\n');
    EXPECT_TRUE(is_whole(lead + "{}"));
    expect_dead({lead + " ", "{\"a\":1\v", "{\"a\":1\f", "{\xc2"});
}

TEST(Json, how_a_text_came_to_its_place_is_forgotten) {
    const auto after = [](const std::string& text) {
        Json state;
        EXPECT_TRUE(state.push(text)) << text;
        return state;
    };
    EXPECT_EQ(after("{\"a\":[{\"b\":true}, \"x"), after("{\"c\" :[1,\"y"));
    EXPECT_EQ(after("{\"a\":[{\"b\":true}, \"x").hash(), after("{\"c\" :[1,\"y").hash());
    EXPECT_NE(after("{\"a"), after("{\"a\":\"a"));
    EXPECT_NE(after("{\"a\":["), after("{\"a\":{"));
    EXPECT_NE(after("{ "), after("{  "));
}

}  // namespace
}  // namespace strata::test
