#include "cli/number.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/text.h"

namespace strata::cli {
namespace {

struct Unit {
    std::string_view name;  // lower case
    std::int64_t factor;
};

constexpr std::int64_t kKibi = 1024;
constexpr std::int64_t kKilo = 1000;

constexpr std::array kUnits = {
    Unit{"", 1},
    Unit{"b", 1},
    Unit{"k", kKibi},
    Unit{"m", kKibi* kKibi},
    Unit{"g", kKibi* kKibi* kKibi},
    Unit{"t", kKibi* kKibi* kKibi* kKibi},
    Unit{"kib", kKibi},
    Unit{"mib", kKibi* kKibi},
    Unit{"gib", kKibi* kKibi* kKibi},
    Unit{"tib", kKibi* kKibi* kKibi* kKibi},
    Unit{"kb", kKilo},
    Unit{"mb", kKilo* kKilo},
    Unit{"gb", kKilo* kKilo* kKilo},
    Unit{"tb", kKilo* kKilo* kKilo* kKilo},
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_name(std::string_view text, std::string_view name) {
    if (text.size() != name.size()) return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (lower(text[i]) != name[i]) return false;
    }
    return true;
}

std::optional<std::int64_t> unit_factor(std::string_view text) {
    for (const Unit& unit : kUnits) {
        if (same_name(text, unit.name)) return unit.factor;
    }
    return std::nullopt;
}

bool digit(char c) { return c >= '0' && c <= '9'; }
bool white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

Error out_of_range(std::string_view text, IntegerRange range) {
    return STRATA_ERROR(quote(text), " is out of range: ", range.min, " to ", range.max,
                        " is wanted");
}

}  // namespace

Result<std::int64_t> parse_integer(std::string_view text, IntegerRange range) {
    const std::size_t start = !text.empty() && text[0] == '-' ? 1 : 0;
    std::size_t end = start;
    while (end < text.size() && digit(text[end])) ++end;
    const auto factor = unit_factor(text.substr(end));
    if (end == start || !factor) {
        return STRATA_ERROR(quote(text), " is not a whole number such as 8192, 8k or 12GiB");
    }
    std::int64_t value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + end, value);
    if (parsed.ec != std::errc() || __builtin_mul_overflow(value, *factor, &value)) {
        return out_of_range(text, range);
    }
    if (value < range.min || value > range.max) return out_of_range(text, range);
    return value;
}

Result<std::uint64_t> parse_seed(std::string_view text) {
    std::uint64_t value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
        return STRATA_ERROR(quote(text), " is not a whole number from 0 to ",
                            std::numeric_limits<std::uint64_t>::max());
    }
    return value;
}

Result<double> parse_real(std::string_view text) {
    double value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec == std::errc::result_out_of_range) {
        return STRATA_ERROR(quote(text), " is too large or too small for a number");
    }
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() ||
        !std::isfinite(value)) {
        return STRATA_ERROR(quote(text), " is not a finite number such as 0.7");
    }
    return value;
}

Result<std::vector<std::int32_t>> parse_list(std::string_view text, std::string_view item) {
    std::vector<std::int32_t> list;
    std::size_t at = 0;
    const auto skip_white = [&] {
        while (at < text.size() && white(text[at])) ++at;
    };
    skip_white();
    if (at == text.size()) return STRATA_ERROR("the list holds no ", item);
    while (true) {
        const std::size_t start = at;
        while (at < text.size() && text[at] != ',' && !white(text[at])) ++at;
        const std::string_view found = text.substr(start, at - start);
        std::int32_t value = 0;
        const auto parsed = std::from_chars(found.data(), found.data() + found.size(), value);
        if (found.empty() || !digit(found[0]) || parsed.ec != std::errc() ||
            parsed.ptr != found.data() + found.size()) {
            return STRATA_ERROR(item, " ", list.size() + 1, " of the list is ", quote(found),
                                ", and a whole number from 0 to ",
                                std::numeric_limits<std::int32_t>::max(), " is wanted");
        }
        list.push_back(value);
        skip_white();
        if (at == text.size()) return list;
        if (text[at] != ',') continue;
        ++at;
        skip_white();
    }
}

}  // namespace strata::cli
