// The grammar of JSON against a parser that is not ours: documents, and documents damaged.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "grammar/json.h"
#include "tests/support/random.h"

namespace strata::test {
namespace {

using grammar::Json;

// Objects as the RFC has them, each piece of every kind.
class Documents {
  public:
    explicit Documents(Random& random) : random_(random) {}

    std::string object(int depth) {
        std::string text = "{" + space();
        const std::int64_t members = random_.integer(0, 3);
        for (std::int64_t i = 0; i < members; ++i) {
            text += (i > 0 ? "," : "") + space() + string() + space() + ":" + value(depth - 1);
        }
        return text + "}";
    }

  private:
    template <std::size_t n>
    std::string one_of(const char* const (&pieces)[n]) {
        return pieces[random_.integer(0, n - 1)];
    }
    std::string space() { return one_of({"", "", "", " ", "\n", "\t", "\r\n", "  "}); }
    std::string array(int depth) {
        std::string text = "[" + space();
        const std::int64_t elements = random_.integer(0, 3);
        for (std::int64_t i = 0; i < elements; ++i) text += (i > 0 ? "," : "") + value(depth - 1);
        return text + "]";
    }
    std::string value(int depth) {
        const std::int64_t kind = random_.integer(depth > 0 ? 0 : 2, 5);
        return space() +
               (kind == 0   ? object(depth)
                : kind == 1 ? array(depth)
                : kind == 2 ? string()
                : kind == 3 ? one_of({"true", "false", "null"})
                            : number()) +
               space();
    }
    std::string number() {
        return one_of({"", "-"}) + one_of({"0", "1", "90", "123456789"}) +
               one_of({"", "", ".0", ".25"}) + one_of({"", "", "e1", "E+10", "e-07"});
    }
    std::string string() {
        std::string text = "\"";
        const std::int64_t pieces = random_.integer(0, 5);
        for (std::int64_t i = 0; i < pieces; ++i) {
            text += one_of({"a",
                            "Z",
                            "0",
                            " ",
                            "/",
                            "{",
                            "]",
                            ":",
                            "'",
                            "\x7f",
                            "\\\"",
                            "\\\\",
                            "\\n",
                            "\\u0041",
                            "\\u00e9",
                            "\\ud83d\\ude00",
                            "\\uDBFF\\uDFFF",
                            "\xc2\xa2",
                            "\xe2\x82\xac",
                            "\xed\x9f\xbf",
                            "\xf0\x9f\x98\x80",
                            "\xf4\x8f\xbf\xbf"});
        }
        return text + "\"";
    }

    Random& random_;
};

// One byte left out, put in, changed or moved, or a stretch doubled.
void damage(Random& random, std::string& text) {
    constexpr std::string_view kLikely = "{}[]\",:\\ \n-+.eE0019afut/\x80\xa0\xc2\xe2\xed\xf0";
    const auto at = [&] {
        return static_cast<std::size_t>(random.integer(0, std::ssize(text) - 1));
    };
    const char byte = random.integer(0, 3) == 0 ? static_cast<char>(random.integer(0, 255))
                                                : kLikely[random.bits() % kLikely.size()];
    switch (text.empty() ? 1 : random.integer(0, 4)) {
        case 0:
            text.erase(at(), 1);
            break;
        case 1:
            text.insert(text.empty() ? 0 : at(), 1, byte);
            break;
        case 2:
            text[at()] = byte;
            break;
        case 3:
            std::swap(text[at()], text[at()]);
            break;
        default:
            text.insert(at(), text.substr(at(), 8));
    }
}

int depth_of(const nlohmann::json& value) {
    if (!value.is_structured()) return 0;
    int inner = 0;
    for (const auto& element : value) inner = std::max(inner, depth_of(element));
    return inner + 1;
}

// Whether all white space and numbers of a valid document are as short as ours.
bool has_short_runs(const std::string& text) {
    int spaces = 0;
    int spaces_max = grammar::kJsonLeadMax;
    int digits = 0;
    int digits_max = grammar::kJsonDigitsMax;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '"') in_string = !in_string;
        if (in_string && text[i] == '\\') ++i;
        if (in_string) continue;
        const bool digit = text[i] >= '0' && text[i] <= '9';
        spaces = std::string_view(" \t\r\n").find(text[i]) < 4 ? spaces + 1 : 0;
        digits = digit ? digits + 1 : 0;
        if (text[i] == 'e' || text[i] == 'E') digits_max = grammar::kJsonExponentMax;
        if (!digit && std::string_view("eE+-").find(text[i]) == std::string_view::npos) {
            digits_max = grammar::kJsonDigitsMax;
        }
        if (spaces > spaces_max || digits > digits_max) return false;
        if (spaces == 0) spaces_max = grammar::kJsonSpaceMax;
    }
    return true;
}

// What the other parser makes of it, within our bounds. It takes no number that is none in float64.
bool wanted(const std::string& text) {
    // It takes a NUL for the end, and a mark of the byte order for nothing.
    if (text.find('\0') != text.npos || text.starts_with("\xef\xbb\xbf")) return false;
    const auto value = nlohmann::json::parse(text, nullptr, false);
    return value.is_object() && text.back() == '}' && depth_of(value) <= grammar::kJsonDepthMax &&
           has_short_runs(text);
}

bool is_taken(const std::string& text) {
    Json state;
    return state.push(text) && state.complete();
}

TEST(JsonFuzz, every_beginning_of_a_document_is_taken_and_none_but_the_last_is_whole) {
    Random random("documents");
    for (int i = 0; i < 2000; ++i) {
        const std::string text = Documents(random).object(4);
        ASSERT_TRUE(wanted(text)) << text;
        Json state;
        for (const char byte : text) {
            ASSERT_FALSE(state.complete()) << text;
            ASSERT_TRUE(state.push(static_cast<std::uint8_t>(byte))) << text;
        }
        ASSERT_TRUE(state.complete()) << text;
    }
}

TEST(JsonFuzz, damaged_documents_are_taken_where_another_parser_takes_them) {
    Random random("damage");
    int whole = 0;
    int broken = 0;
    for (int i = 0; i < 60000; ++i) {
        std::string text = Documents(random).object(3);
        const std::int64_t times = random.integer(1, 3);
        for (std::int64_t k = 0; k < times; ++k) damage(random, text);
        const bool want = wanted(text);
        ASSERT_EQ(is_taken(text), want) << text;
        ++(want ? whole : broken);
    }
    EXPECT_GT(whole, 2000);
    EXPECT_GT(broken, 5000);
}

TEST(JsonFuzz, random_bytes_are_taken_where_another_parser_takes_them) {
    Random random("bytes");
    constexpr std::string_view kBytes = "{{}}\"\"\"::,[] 01-.e\\utrn\xc2\x80";
    int whole = 0;
    for (int i = 0; i < 60000; ++i) {
        std::string text = "{";
        const std::int64_t length = random.integer(0, 8);
        for (std::int64_t k = 0; k < length; ++k) text += kBytes[random.bits() % kBytes.size()];
        const bool want = wanted(text);
        ASSERT_EQ(is_taken(text), want) << text;
        whole += want ? 1 : 0;
    }
    EXPECT_GT(whole, 30);
}

// Whatever was taken in, there is an end to it.
TEST(JsonFuzz, every_text_that_is_taken_can_become_whole) {
    // Those that end most come first, and each place has one of them.
    constexpr std::string_view kEnding = "\"}]:0\\udctrueflasn\x80\x90\xa0{";
    Random random("ends");
    for (int i = 0; i < 3000; ++i) {
        Json state;
        std::string text;
        for (int tries = 0; tries < 400; ++tries) {
            const auto byte = static_cast<std::uint8_t>(random.integer(0, 255));
            Json next = state;
            if (!next.push(byte)) continue;
            state = next;
            text += static_cast<char>(byte);
        }
        for (int steps = 0; !state.complete(); ++steps) {
            ASSERT_LT(steps, 2 * grammar::kJsonDepthMax + 16) << text;
            const bool goes_on = std::ranges::any_of(kEnding, [&](char byte) {
                Json next = state;
                if (!next.push(static_cast<std::uint8_t>(byte))) return false;
                state = next;
                text += byte;
                return true;
            });
            ASSERT_TRUE(goes_on) << text;
        }
        ASSERT_TRUE(wanted(text)) << text;
    }
}

}  // namespace
}  // namespace strata::test
