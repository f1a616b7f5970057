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

// The text with each byte of what a terminal obeys in place of showing it as \xNN: controls, with
// U+0080 to U+009F, ends of lines, and marks that turn the direction of text around; and of what is
// no UTF-8, in which a terminal may find such bytes.
std::string escaped(std::string_view text);

// Of a value from outside that a sentence shows: more would push away what the sentence says of it.
inline constexpr std::size_t kQuoteBytesMax = 200;

// A name, path or value from outside in quotes, escaped, so that a message stays one line; of more
// than kQuoteBytesMax bytes the first and, since a path's name stands there, the last, with "..."
// between them.
std::string quote(std::string_view text);

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
