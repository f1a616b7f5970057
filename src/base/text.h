// Building sentences without std::format (GCC 12 has none).
#pragma once

#include <charconv>
#include <cstdint>
#include <locale>
#include <span>
#include <sstream>
#include <string>
#include <string_view>

#include "base/result.h"

namespace strata {

// The arguments one after another, as operator<< writes them.
template <typename... Parts>
std::string concat(const Parts&... parts) {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    (out << ... << parts);
    return out.str();
}

// The fewest digits that read back as the number: what lies just outside a bound looks so.
inline std::string shortest(double value) {
    char digits[32];  // 24 are the most
    return {digits, std::to_chars(digits, digits + sizeof(digits), value).ptr};
}

inline constexpr std::size_t kQuoteBytesMax = 4096;

// A name or path from outside, in quotes: control bytes as \xNN, the rest of a very long one as
// "...", so that a message stays one line.
inline std::string quote(std::string_view text) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string out = "'";
    for (const char c : text.substr(0, kQuoteBytesMax)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte != 0x7f) {
            out += c;
        } else {
            out += "\\x";
            out += kDigits[byte >> 4];
            out += kDigits[byte & 15];
        }
    }
    out += text.size() > kQuoteBytesMax ? "...'" : "'";
    return out;
}

// "[2560, 512]"
inline std::string shape_text(std::span<const std::uint64_t> shape) {
    std::string out = "[";
    for (const std::uint64_t size : shape) {
        if (out.size() > 1) out += ", ";
        out += std::to_string(size);
    }
    return out + "]";
}

}  // namespace strata

// An error whose sentence is the arguments one after another.
#define STRATA_ERROR(...) (::strata::Error{::strata::concat(__VA_ARGS__)})
