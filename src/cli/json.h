// JSON for scripts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace strata::cli {

// Keys stay in the order in which they were put.
using Json = nlohmann::ordered_json;

// One line with its end; bytes that are not UTF-8 become U+FFFD.
inline std::string json_line(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace strata::cli
