// Metadata and tensors that a reader of a file cannot do without.
#include <optional>

#include "base/text.h"
#include "gguf/reader.h"

namespace strata::gguf {
namespace {

// `as` is the accessor of Value that gives what is wanted.
template <typename T>
Result<T> get(const File& file, std::string_view key, std::optional<T> (Value::*as)() const,
              std::string_view wanted) {
    const Value* value = file.find(key);
    if (value == nullptr) {
        return STRATA_ERROR(quote(file.path()), ": metadata key ", quote(key), " is missing");
    }
    std::optional<T> found = (value->*as)();
    if (found) return std::move(*found);
    const auto number = value->as_int();
    return STRATA_ERROR(quote(file.path()), ": metadata key ", quote(key), " is ",
                        number ? concat(*number) : "of type " + value->type_text(), ", wanted ",
                        wanted);
}

constexpr std::string_view kUint = "an integer of 0 or more";
constexpr std::string_view kFloat = "a number";
constexpr std::string_view kBool = "a bool";

}  // namespace

Result<std::uint64_t> require_uint(const File& file, std::string_view key) {
    return get(file, key, &Value::as_uint, kUint);
}

Result<std::int64_t> require_int(const File& file, std::string_view key) {
    return get(file, key, &Value::as_int, "an integer");
}

Result<double> require_float(const File& file, std::string_view key) {
    return get(file, key, &Value::as_float, kFloat);
}

Result<bool> require_bool(const File& file, std::string_view key) {
    return get(file, key, &Value::as_bool, kBool);
}

Result<std::string_view> require_string(const File& file, std::string_view key) {
    return get(file, key, &Value::as_string, "a string");
}

Result<std::vector<std::uint64_t>> require_uints(const File& file, std::string_view key) {
    return get(file, key, &Value::as_uints, "an array of integers of 0 or more");
}

Result<std::vector<std::int64_t>> require_ints(const File& file, std::string_view key) {
    return get(file, key, &Value::as_ints, "an array of integers");
}

Result<std::vector<float>> require_floats(const File& file, std::string_view key) {
    return get(file, key, &Value::as_floats, "an array of numbers");
}

Result<std::vector<std::string_view>> require_strings(const File& file, std::string_view key) {
    return get(file, key, &Value::as_strings, "an array of strings");
}

Result<std::uint64_t> uint_or(const File& file, std::string_view key, std::uint64_t fallback) {
    if (file.find(key) == nullptr) return fallback;
    return get(file, key, &Value::as_uint, kUint);
}

Result<double> float_or(const File& file, std::string_view key, double fallback) {
    if (file.find(key) == nullptr) return fallback;
    return get(file, key, &Value::as_float, kFloat);
}

Result<bool> bool_or(const File& file, std::string_view key, bool fallback) {
    if (file.find(key) == nullptr) return fallback;
    return get(file, key, &Value::as_bool, kBool);
}

Result<const Tensor*> require_tensor(const File& file, std::string_view name) {
    const Tensor* tensor = file.find_tensor(name);
    if (tensor != nullptr) return tensor;
    return STRATA_ERROR(quote(file.path()), ": tensor ", quote(name), " is missing");
}

}  // namespace strata::gguf
