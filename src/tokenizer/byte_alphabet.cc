#include "tokenizer/byte_alphabet.h"

#include <array>

#include "tokenizer/unicode.h"

namespace strata {

namespace {

constexpr char32_t kFirstSubstitute = 0x100;
constexpr char32_t kAlphabetEnd = 0x144;

constexpr bool stands_for_itself(std::uint32_t byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

struct Alphabet {
    std::array<char32_t, 256> character{};
    // -1 where no byte is spelled so.
    std::array<std::int16_t, kAlphabetEnd> byte{};
};

constexpr Alphabet make_alphabet() {
    Alphabet alphabet;
    for (auto& byte : alphabet.byte) byte = -1;
    char32_t substitute = kFirstSubstitute;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        const char32_t code = stands_for_itself(byte) ? byte : substitute++;
        alphabet.character[byte] = code;
        alphabet.byte[code] = static_cast<std::int16_t>(byte);
    }
    return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();
static_assert(kAlphabet.character[0xAD] == kAlphabetEnd - 1);

}  // namespace

std::string byte_spelling(std::uint8_t byte) {
    const char32_t code = kAlphabet.character[byte];
    if (code < 0x80) return std::string(1, static_cast<char>(code));
    return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

std::optional<std::string> spelled_bytes(std::string_view spelling) {
    std::string bytes;
    bytes.reserve(spelling.size());
    for (std::size_t position = 0; position < spelling.size();) {
        const Utf8Step step = utf8_step(spelling, position);
        if (step.state != Utf8::whole || step.code >= kAlphabetEnd) return std::nullopt;
        const std::int16_t byte = kAlphabet.byte[step.code];
        if (byte < 0) return std::nullopt;
        bytes += static_cast<char>(byte);
        position += step.length;
    }
    return bytes;
}

}  // namespace strata
