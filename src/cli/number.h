// Numbers and lists of numbers as a person types them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace strata::cli {

struct IntegerRange {
    std::int64_t min = 0;
    std::int64_t max = INT64_MAX;
};

// Digits, with a minus sign where the range has negative numbers, and a unit: k, M, G, T and KiB,
// MiB, GiB, TiB are powers of 1024, KB, MB, GB, TB powers of 1000, B is 1. Any case. Errors: not of
// this form, or outside the range.
Result<std::int64_t> parse_integer(std::string_view text, IntegerRange range);

// 64 bits without a sign or a unit.
Result<std::uint64_t> parse_seed(std::string_view text);

// A finite number, decimal or with an exponent; a point is the decimal mark in every locale.
Result<double> parse_real(std::string_view text);

// "1,2,3": numbers from 0 to 2^31 - 1, without units; white space separates them too. Errors name
// the item and its place. `item` is what the list holds ("token id").
Result<std::vector<std::int32_t>> parse_list(std::string_view text, std::string_view item);

}  // namespace strata::cli
