// The byte-level alphabet: each byte value as one printable character, so that a token of raw bytes
// is a string. Printable Latin-1 bytes stand for themselves; the other 68, in ascending order, are
// U+0100 and on (GPT-2's table).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata {

// The character of a byte, as UTF-8.
std::string byte_spelling(std::uint8_t byte);
// The bytes that a spelling stands for; nothing if it has a character outside the alphabet.
std::optional<std::string> spelled_bytes(std::string_view spelling);

}  // namespace strata
