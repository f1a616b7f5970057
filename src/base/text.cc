#include "base/text.h"

namespace strata {
namespace {

// Of what is left out of a long text, the end is shown as far as a file's name is likely to reach.
constexpr std::size_t kTailBytes = kQuoteBytesMax / 4;

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Bytes of the character of UTF-8 at the start of the text; 0: there is none.
std::size_t character_bytes(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text.front());
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || lead > 0xf4) return 0;
    const std::size_t bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (text.size() < bytes) return 0;
    for (std::size_t i = 1; i < bytes; ++i) {
        if (!continues(text[i])) return 0;
    }
    return bytes;
}

// Whether a terminal obeys the character at the start of the text in place of showing it.
bool is_obeyed(std::string_view text) {
    const auto byte = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
    };
    const auto within = [](int value, int low, int high) { return value >= low && value <= high; };
    if (byte(0) < 0x20 || byte(0) == 0x7f) return true;
    // U+0080 to U+009F, and the mark U+061C.
    if (byte(0) == 0xc2 && within(byte(1), 0x80, 0x9f)) return true;
    if (byte(0) == 0xd8 && byte(1) == 0x9c) return true;
    // The marks U+200E, U+200F, U+202A to U+202E and U+2066 to U+2069, and before some of them the
    // ends of lines U+2028 and U+2029.
    if (byte(0) != 0xe2) return false;
    if (byte(1) == 0x80 && within(byte(2), 0x8e, 0x8f)) return true;
    if (byte(1) == 0x80 && within(byte(2), 0xa8, 0xae)) return true;
    return byte(1) == 0x81 && within(byte(2), 0xa6, 0xa9);
}

}  // namespace

std::string escaped(std::string_view text) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string out;
    while (!text.empty()) {
        const std::size_t bytes = character_bytes(text);
        const bool hidden = bytes == 0 || is_obeyed(text);
        const std::string_view character = text.substr(0, bytes == 0 ? 1 : bytes);
        if (!hidden) out += character;
        for (std::size_t i = 0; hidden && i < character.size(); ++i) {
            const auto byte = static_cast<unsigned char>(character[i]);
            out += "\\x";
            out += kDigits[byte >> 4];
            out += kDigits[byte & 15];
        }
        text.remove_prefix(character.size());
    }
    return out;
}

std::string quote(std::string_view text) {
    if (text.size() <= kQuoteBytesMax) return concat('\'', escaped(text), '\'');
    // No character is cut in two.
    constexpr std::size_t kContinuedMax = 3;
    std::size_t head = kQuoteBytesMax - kTailBytes;
    std::size_t tail = text.size() - kTailBytes;
    for (std::size_t i = 0; i < kContinuedMax && continues(text[head]); ++i) --head;
    for (std::size_t i = 0; i < kContinuedMax && continues(text[tail]); ++i) ++tail;
    return concat('\'', escaped(text.substr(0, head)), "...", escaped(text.substr(tail)), '\'');
}

}  // namespace strata
