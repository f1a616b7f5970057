// Where text is cut, and the Unicode classes that decide it.
#include "tokenizer/pre_split.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/tokenizer/cases.h"
#include "tokenizer/unicode.h"

namespace strata {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces_of(std::string_view text, PreSplit rules = PreSplit::qwen35) {
    PreSplitter splitter(text, rules);
    Pieces pieces;
    for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next()) {
        pieces.emplace_back(piece);
    }
    return pieces;
}

CharClass named_class(char32_t code, char name) {
    switch (name) {
        case 'L':
            return CharClass::letter;
        case 'M':
            return CharClass::mark;
        case 'N':
            return CharClass::number;
        default:
            return code == U'\r' || code == U'\n' ? CharClass::newline : CharClass::space;
    }
}

TEST(PreSplit, every_code_point_has_the_class_that_the_reference_gives_it) {
    std::vector<CharClass> wanted(0x110000, CharClass::other);
    std::istringstream lines(read_data("classes.txt"));
    int ranges = 0;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    for (char name = 0; lines >> std::hex >> begin >> end >> name; ++ranges) {
        for (char32_t code = begin; code <= end; ++code) wanted[code] = named_class(code, name);
    }
    ASSERT_GT(ranges, 1000);
    for (char32_t code = 0; code < 0x110000; ++code) {
        if (code >= 0xD800 && code < 0xE000) continue;
        ASSERT_EQ(static_cast<int>(char_class(code)), static_cast<int>(wanted[code]))
            << "U+" << std::hex << static_cast<std::uint32_t>(code);
    }
}

TEST(PreSplit, words_take_one_character_in_front) {
    EXPECT_EQ(pieces_of("a bc  de"), (Pieces{"a", " bc", " ", " de"}));
    EXPECT_EQ(pieces_of("(x)\ty.z"), (Pieces{"(x", ")", "\ty", ".z"}));
    EXPECT_EQ(pieces_of("1a\na"), (Pieces{"1", "a", "\n", "a"}));
}

TEST(PreSplit, digits_stand_alone) { EXPECT_EQ(pieces_of(" 123"), (Pieces{" ", "1", "2", "3"})); }

TEST(PreSplit, contractions_are_cut_off_whatever_their_case) {
    EXPECT_EQ(pieces_of("it's IT'S we'Ll 'Ve"),
              (Pieces{"it", "'s", " IT", "'S", " we", "'Ll", " '", "Ve"}));
    EXPECT_EQ(pieces_of("x'\xC5\xBF"), (Pieces{"x", "'\xC5\xBF"}));
    EXPECT_EQ(pieces_of("'lo 'r '"), (Pieces{"'lo", " '", "r", " '"}));
    EXPECT_EQ(pieces_of("'v"), (Pieces{"'v"}));
}

TEST(PreSplit, punctuation_takes_a_space_in_front_and_newlines_behind) {
    EXPECT_EQ(pieces_of("a !?\r\n\n b"), (Pieces{"a", " !?\r\n\n", " b"}));
    EXPECT_EQ(pieces_of("\t!"), (Pieces{"\t", "!"}));
}

TEST(PreSplit, white_space_is_cut_behind_its_last_newline_and_before_its_last_character) {
    EXPECT_EQ(pieces_of("a \n \n  b"), (Pieces{"a", " \n \n", " ", " b"}));
    EXPECT_EQ(pieces_of("a   1"), (Pieces{"a", "  ", " ", "1"}));
    EXPECT_EQ(pieces_of("a   "), (Pieces{"a", "   "}));
    EXPECT_EQ(pieces_of("\xE3\x80\x80\xE3\x80\x80x"), (Pieces{"\xE3\x80\x80", "\xE3\x80\x80x"}));
}

TEST(PreSplit, marks_are_letters_for_qwen35_and_punctuation_for_qwen2) {
    const std::string text = "q\xCC\x87r \xCC\x87";
    EXPECT_EQ(pieces_of(text), (Pieces{"q\xCC\x87r", " \xCC\x87"}));
    EXPECT_EQ(pieces_of(text, PreSplit::qwen2), (Pieces{"q", "\xCC\x87r", " \xCC\x87"}));
    EXPECT_EQ(pieces_of("\xCC\x87!\n"), (Pieces{"\xCC\x87", "!\n"}));
    EXPECT_EQ(pieces_of("\xCC\x87!\n", PreSplit::qwen2), (Pieces{"\xCC\x87!\n"}));
}

TEST(PreSplit, a_byte_outside_any_character_is_punctuation) {
    EXPECT_EQ(pieces_of("a\xFF\xFE \xC3"), (Pieces{"a", "\xFF\xFE", " \xC3"}));
    EXPECT_EQ(pieces_of("\xFFzz"), (Pieces{"\xFFzz"}));
}

}  // namespace
}  // namespace strata
