#include "convert/fields.h"

#include <cmath>
#include <utility>

#include "base/mapped_file.h"
#include "base/text.h"

namespace strata::convert {
namespace {

using nlohmann::json;

constexpr std::size_t kExcerptBytes = 60;

std::optional<std::int64_t> as_integer(const json& value, std::int64_t low, std::int64_t high) {
    if (value.is_number_unsigned()) {
        const auto number = value.get<std::uint64_t>();
        if (high < 0 || number > static_cast<std::uint64_t>(high)) return std::nullopt;
    } else if (!value.is_number_integer()) {
        return std::nullopt;
    }
    const auto number = value.get<std::int64_t>();
    if (number < low || number > high) return std::nullopt;
    return number;
}

std::string integer_wanted(std::int64_t low, std::int64_t high) {
    return concat("an integer from ", low, " to ", high);
}

}  // namespace

Result<json> read_json_object(const std::string& path) {
    STRATA_ASSIGN(const MappedFile file, MappedFile::open(path));
    if (file.bytes().size() > kJsonBytesMax) {
        return STRATA_ERROR(quote(path), " has ", file.bytes().size(), " bytes, wanted at most ",
                            kJsonBytesMax);
    }
    const auto* text = reinterpret_cast<const char*>(file.bytes().data());
    json value = json::parse(text, text + file.bytes().size(), nullptr, false);
    if (value.is_discarded()) return STRATA_ERROR(quote(path), " is not JSON");
    if (!value.is_object()) {
        return STRATA_ERROR(quote(path), " holds JSON of type ", value.type_name(),
                            ", wanted an object");
    }
    return value;
}

std::string excerpt(const json& value) {
    if (value.is_object()) return "an object";
    if (value.is_array() && value.size() > kExcerptBytes) {
        return concat("a list of ", value.size());
    }
    if (value.is_string() && value.get_ref<const std::string&>().size() > kExcerptBytes) {
        return concat("a string of ", value.get_ref<const std::string&>().size(), " bytes");
    }
    std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
    if (text.size() > kExcerptBytes) text = text.substr(0, kExcerptBytes) + "...";
    return text;
}

Fields::Fields(const json& object, std::string where, std::string prefix)
    : object_(&object), where_(std::move(where)), prefix_(std::move(prefix)) {}

const json* Fields::find(std::string_view key) const {
    const auto found = object_->find(key);
    return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::string Fields::name(std::string_view key) const {
    return concat(quote(where_), ": ", prefix_, key);
}

Error Fields::wrong(std::string_view key, std::string_view wanted) const {
    const json* value = find(key);
    if (value == nullptr) return STRATA_ERROR(name(key), " is missing, wanted ", wanted);
    return STRATA_ERROR(name(key), " is ", excerpt(*value), ", wanted ", wanted);
}

Result<std::optional<Fields>> Fields::object(std::string_view key) const {
    const json* value = find(key);
    if (value == nullptr) return std::optional<Fields>();
    if (!value->is_object()) return wrong(key, "an object");
    return std::optional<Fields>(Fields(*value, where_, concat(prefix_, key, '.')));
}

Result<std::int64_t> Fields::integer(std::string_view key, std::int64_t low,
                                     std::int64_t high) const {
    const json* value = find(key);
    const auto number = value == nullptr ? std::nullopt : as_integer(*value, low, high);
    if (!number) return wrong(key, integer_wanted(low, high));
    return *number;
}

Result<std::int64_t> Fields::integer_or(std::string_view key, std::int64_t low, std::int64_t high,
                                        std::int64_t fallback) const {
    return has(key) ? integer(key, low, high) : Result<std::int64_t>(fallback);
}

Result<std::vector<std::int64_t>> Fields::integers(std::string_view key, std::int64_t low,
                                                   std::int64_t high) const {
    std::vector<std::int64_t> numbers;
    const json* value = find(key);
    if (value == nullptr) return numbers;
    const std::size_t count = value->is_array() ? value->size() : 1;
    for (std::size_t i = 0; i < count; ++i) {
        const auto number = as_integer(value->is_array() ? (*value)[i] : *value, low, high);
        if (!number) return wrong(key, concat(integer_wanted(low, high), " or a list of them"));
        numbers.push_back(*number);
    }
    return numbers;
}

Result<double> Fields::number(std::string_view key) const {
    const json* value = find(key);
    if (value == nullptr || !value->is_number() || !std::isfinite(value->get<double>())) {
        return wrong(key, "a number");
    }
    return value->get<double>();
}

Result<bool> Fields::boolean_or(std::string_view key, bool fallback) const {
    const json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) return wrong(key, "true or false");
    return value->get<bool>();
}

Result<std::string> Fields::string(std::string_view key) const {
    const json* value = find(key);
    if (value == nullptr || !value->is_string()) return wrong(key, "a string");
    return value->get<std::string>();
}

Result<std::vector<std::string>> Fields::strings(std::string_view key) const {
    std::vector<std::string> strings;
    const json* value = find(key);
    if (value == nullptr) return strings;
    if (!value->is_array()) return wrong(key, "a list of strings");
    for (const json& entry : *value) {
        if (!entry.is_string()) return wrong(key, "a list of strings");
        strings.push_back(entry.get<std::string>());
    }
    return strings;
}

}  // namespace strata::convert
