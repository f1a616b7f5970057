// Reading typed, bounded fields of a JSON object that may hold anything. Errors name file, key, the
// value found and the value wanted.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace strata::convert {

// Of the JSON files of a checkpoint other than the tokenizer's.
inline constexpr std::uint64_t kJsonBytesMax = std::uint64_t{16} << 20;

// The file as JSON with an object at its top. Errors: the file cannot be read, is too long, is no
// JSON or no object.
Result<nlohmann::json> read_json_object(const std::string& path);

// The value as JSON on one line, cut to a length that suits an error message.
std::string excerpt(const nlohmann::json& value);

// One object of a file. A key whose value is null counts as missing. Points into the document.
class Fields {
  public:
    // `where` names the file in messages, `prefix` the object in it: "" or "rope_parameters.".
    Fields(const nlohmann::json& object, std::string where, std::string prefix = "");

    const nlohmann::json* find(std::string_view key) const;
    bool has(std::string_view key) const { return find(key) != nullptr; }
    // An object below this one; no value where it is missing. Error: not an object.
    Result<std::optional<Fields>> object(std::string_view key) const;

    // An integer within [low, high].
    Result<std::int64_t> integer(std::string_view key, std::int64_t low, std::int64_t high) const;
    Result<std::int64_t> integer_or(std::string_view key, std::int64_t low, std::int64_t high,
                                    std::int64_t fallback) const;
    // One integer or a list of them, each within [low, high]; empty where the key is missing.
    Result<std::vector<std::int64_t>> integers(std::string_view key, std::int64_t low,
                                               std::int64_t high) const;
    // A finite number.
    Result<double> number(std::string_view key) const;
    Result<bool> boolean_or(std::string_view key, bool fallback) const;
    Result<std::string> string(std::string_view key) const;
    // Each of the list's entries, or none where the key is missing.
    Result<std::vector<std::string>> strings(std::string_view key) const;

    // "'DIR/config.json': rope_parameters.rope_type", the start of every message about a key.
    std::string name(std::string_view key) const;
    // The sentence "... is FOUND, wanted WANTED", or "... is missing, wanted WANTED".
    Error wrong(std::string_view key, std::string_view wanted) const;

  private:
    const nlohmann::json* object_;
    std::string where_;
    std::string prefix_;
};

}  // namespace strata::convert
