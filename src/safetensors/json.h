// JSON from a stranger's file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace strata::safetensors {

inline constexpr int kJsonDepthMax = 64;

// Errors name `path`: not JSON, nested deeper than kJsonDepthMax, a key twice in one object.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& path);

// A whole file. Errors: also those of reading it, and more than `bytes_max` bytes.
Result<nlohmann::json> read_json(const std::string& path, std::uint64_t bytes_max);

}  // namespace strata::safetensors
