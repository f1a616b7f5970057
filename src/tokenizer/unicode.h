// What the tokenizer needs of UTF-8 and Unicode: characters of a byte string, the classes that the
// pre-split tells apart, and normalization form C. Linear time, no recursion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

enum class Utf8 {
    whole,    // a character
    broken,   // bytes that begin no character, whatever follows
    partial,  // the text ends inside a character
};

struct Utf8Step {
    Utf8 state;
    // Bytes of the character, or of the longest prefix of one that the text holds (at least 1).
    std::size_t length;
    char32_t code;  // for `whole` only
};

// The character at `position` < text.size(). Overlong forms, surrogates and values beyond U+10FFFF
// are broken (Unicode chapter 3, table 3-7).
Utf8Step utf8_step(std::string_view text, std::size_t position);

enum class CharClass : std::uint8_t {
    letter,   // general category L
    mark,     // general category M
    number,   // general category N
    newline,  // \r and \n
    space,    // White_Space but not a newline
    other,
};

// As Unicode 16.0 has it, the version of the regex engine in the reference (tokenizers 0.23).
CharClass char_class(char32_t code);

// Normalization form C of every valid stretch; broken bytes stay and separate stretches. As in the
// reference, whose tables are those of Unicode 9.0: a mark assigned later is not reordered.
std::string to_nfc(std::string_view text);

}  // namespace strata
