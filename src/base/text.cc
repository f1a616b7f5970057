#include "base/text.h"

namespace strata {
namespace {

// Of what is left out of a long text, the end is shown as far as a file's name is likely to reach.
constexpr std::size_t kTailBytes = kQuoteBytesMax / 4;

// How many bytes at the start of the text are a character to escape.
std::size_t obeyed(std::string_view text) {
    const auto byte = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
    };
    const auto within = [](int value, int low, int high) { return value >= low && value <= high; };
    if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
    // U+0080 to U+009F, and the mark U+061C.
    if (byte(0) == 0xc2 && within(byte(1), 0x80, 0x9f)) return 2;
    if (byte(0) == 0xd8 && byte(1) == 0x9c) return 2;
    // The marks U+200E, U+200F, U+202A to U+202E and U+2066 to U+2069, and before some of them the
    // ends of lines U+2028 and U+2029.
    if (byte(0) != 0xe2) return 0;
    if (byte(1) == 0x80 && within(byte(2), 0x8e, 0x8f)) return 3;
    if (byte(1) == 0x80 && within(byte(2), 0xa8, 0xae)) return 3;
    return byte(1) == 0x81 && within(byte(2), 0xa6, 0xa9) ? 3 : 0;
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

std::string escaped(std::string_view text) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string out;
    while (!text.empty()) {
        const std::size_t count = obeyed(text);
        if (count == 0) out += text.front();
        for (const char c : text.substr(0, count)) {
            const auto byte = static_cast<unsigned char>(c);
            out += "\\x";
            out += kDigits[byte >> 4];
            out += kDigits[byte & 15];
        }
        text.remove_prefix(count == 0 ? 1 : count);
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
