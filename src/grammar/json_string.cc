#include "grammar/json_string.h"

#include <string_view>

namespace strata::grammar {
namespace {

constexpr bool within(std::uint8_t byte, int low, int high) { return byte >= low && byte <= high; }

// The value of a hexadecimal digit; 16: it is none.
constexpr int hex_value(std::uint8_t byte) {
    if (within(byte, '0', '9')) return byte - '0';
    if (within(byte, 'a', 'f')) return byte - 'a' + 10;
    if (within(byte, 'A', 'F')) return byte - 'A' + 10;
    return 16;
}

}  // namespace

JsonString::Step JsonString::push(std::uint8_t byte) {
    if (place_ == Place::plain) {
        if (byte == '"') return Step::ended;
        return begin(byte) ? Step::inside : Step::refused;
    }
    if (place_ == Place::escape) return unescape(byte) ? Step::inside : Step::refused;
    const bool allowed = place_ < Place::hex_4 ? go_on(byte) : take_digit(byte);
    return allowed ? Step::inside : Step::refused;
}

bool JsonString::begin(std::uint8_t byte) {
    if (byte == '\\') return go_to(true, Place::escape);
    if (byte < 0x80) return byte >= 0x20;
    if (within(byte, 0xc2, 0xdf)) return go_to(true, Place::tail_1);
    if (byte == 0xe0) return go_to(true, Place::after_e0);
    if (byte == 0xed) return go_to(true, Place::after_ed);
    if (within(byte, 0xe1, 0xef)) return go_to(true, Place::tail_2);
    if (byte == 0xf0) return go_to(true, Place::after_f0);
    if (within(byte, 0xf1, 0xf3)) return go_to(true, Place::tail_3);
    return go_to(byte == 0xf4, Place::after_f4);
}

bool JsonString::unescape(std::uint8_t byte) {
    if (byte == 'u') return go_to(true, Place::hex_4);
    constexpr std::string_view kEscaped = "\"\\/bfnrt";
    return go_to(kEscaped.find(static_cast<char>(byte)) != kEscaped.npos, Place::plain);
}

bool JsonString::go_on(std::uint8_t byte) {
    switch (place_) {
        case Place::tail_3:
            return go_to(within(byte, 0x80, 0xbf), Place::tail_2);
        case Place::tail_2:
            return go_to(within(byte, 0x80, 0xbf), Place::tail_1);
        case Place::after_e0:
            return go_to(within(byte, 0xa0, 0xbf), Place::tail_1);
        case Place::after_ed:
            return go_to(within(byte, 0x80, 0x9f), Place::tail_1);
        case Place::after_f0:
            return go_to(within(byte, 0x90, 0xbf), Place::tail_2);
        case Place::after_f4:
            return go_to(within(byte, 0x80, 0x8f), Place::tail_2);
        default:
            return go_to(within(byte, 0x80, 0xbf), Place::plain);
    }
}

bool JsonString::take_digit(std::uint8_t byte) {
    const int digit = hex_value(byte);
    const bool is_digit = digit < 16;
    switch (place_) {
        case Place::hex_4:
            return go_to(is_digit, digit == 0xd ? Place::hex_after_d : Place::hex_3);
        case Place::hex_after_d:
            return go_to(digit < 0xc, digit < 8 ? Place::hex_2 : Place::high_2);
        case Place::hex_3:
            return go_to(is_digit, Place::hex_2);
        case Place::hex_2:
            return go_to(is_digit, Place::hex_1);
        case Place::high_2:
            return go_to(is_digit, Place::high_1);
        case Place::high_1:
            return go_to(is_digit, Place::low_backslash);
        case Place::low_backslash:
            return go_to(byte == '\\', Place::low_u);
        case Place::low_u:
            return go_to(byte == 'u', Place::low_d);
        case Place::low_d:
            return go_to(digit == 0xd, Place::low_c_to_f);
        case Place::low_c_to_f:
            return go_to(digit >= 0xc && is_digit, Place::hex_2);
        default:
            return go_to(is_digit, Place::plain);
    }
}

}  // namespace strata::grammar
