#include "gguf/value.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/text.h"

namespace strata::gguf {
namespace {

template <typename T>
T load(const char* bytes) {
    T number;
    std::memcpy(&number, bytes, sizeof(T));
    return number;
}

// Calls f with the `index`-th number of `payload` in its own C++ type; false if `type` is no
// number.
template <typename F>
bool visit_number(ValueType type, std::string_view payload, std::size_t index, F f) {
    const char* at = payload.data() + index * scalar_bytes(type);
    switch (type) {
        case ValueType::u8:
            f(load<std::uint8_t>(at));
            return true;
        case ValueType::i8:
            f(load<std::int8_t>(at));
            return true;
        case ValueType::u16:
            f(load<std::uint16_t>(at));
            return true;
        case ValueType::i16:
            f(load<std::int16_t>(at));
            return true;
        case ValueType::u32:
            f(load<std::uint32_t>(at));
            return true;
        case ValueType::i32:
            f(load<std::int32_t>(at));
            return true;
        case ValueType::u64:
            f(load<std::uint64_t>(at));
            return true;
        case ValueType::i64:
            f(load<std::int64_t>(at));
            return true;
        case ValueType::f32:
            f(load<float>(at));
            return true;
        case ValueType::f64:
            f(load<double>(at));
            return true;
        default:
            return false;
    }
}

template <typename Integer>
std::optional<Integer> integer_at(ValueType type, std::string_view payload, std::size_t index) {
    std::optional<Integer> found;
    visit_number(type, payload, index, [&](auto number) {
        if constexpr (std::is_integral_v<decltype(number)>) {
            if (std::in_range<Integer>(number)) found = static_cast<Integer>(number);
        }
    });
    return found;
}

std::optional<double> float_at(ValueType type, std::string_view payload, std::size_t index) {
    std::optional<double> found;
    visit_number(type, payload, index, [&](auto number) { found = static_cast<double>(number); });
    return found;
}

bool is_integer(ValueType type) {
    return scalar_bytes(type) != 0 && type != ValueType::f32 && type != ValueType::f64 &&
           type != ValueType::boolean;
}

template <typename Integer>
std::optional<std::vector<Integer>> integers(const Value& value) {
    if (value.type() != ValueType::array || !is_integer(value.element_type())) return std::nullopt;
    std::vector<Integer> numbers;
    numbers.reserve(value.count());
    for (std::size_t i = 0; i < value.count(); ++i) {
        const auto number = integer_at<Integer>(value.element_type(), value.payload(), i);
        if (!number) return std::nullopt;
        numbers.push_back(*number);
    }
    return numbers;
}

}  // namespace

std::string_view name_of(ValueType type) {
    switch (type) {
        case ValueType::u8:
            return "u8";
        case ValueType::i8:
            return "i8";
        case ValueType::u16:
            return "u16";
        case ValueType::i16:
            return "i16";
        case ValueType::u32:
            return "u32";
        case ValueType::i32:
            return "i32";
        case ValueType::f32:
            return "f32";
        case ValueType::boolean:
            return "bool";
        case ValueType::string:
            return "string";
        case ValueType::array:
            return "array";
        case ValueType::u64:
            return "u64";
        case ValueType::i64:
            return "i64";
        case ValueType::f64:
            return "f64";
    }
    return "unknown type";
}

std::size_t scalar_bytes(ValueType type) {
    switch (type) {
        case ValueType::u8:
        case ValueType::i8:
        case ValueType::boolean:
            return 1;
        case ValueType::u16:
        case ValueType::i16:
            return 2;
        case ValueType::u32:
        case ValueType::i32:
        case ValueType::f32:
            return 4;
        case ValueType::u64:
        case ValueType::i64:
        case ValueType::f64:
            return 8;
        default:
            return 0;
    }
}

Value Value::string(std::string_view text) {
    return Value(ValueType::string, ValueType::string, 1, std::string(text));
}

Value Value::array(std::span<const std::string> strings) {
    std::string payload;
    for (const std::string& text : strings) {
        const std::uint64_t length = text.size();
        payload.append(reinterpret_cast<const char*>(&length), sizeof(length));
        payload += text;
    }
    return Value(ValueType::array, ValueType::string, strings.size(), std::move(payload));
}

std::string Value::type_text() const {
    if (type_ != ValueType::array) return std::string(name_of(type_));
    return concat("array of ", name_of(element_));
}

std::optional<std::uint64_t> Value::as_uint() const {
    return integer_at<std::uint64_t>(type_, payload_, 0);
}

std::optional<std::int64_t> Value::as_int() const {
    return integer_at<std::int64_t>(type_, payload_, 0);
}

std::optional<double> Value::as_float() const { return float_at(type_, payload_, 0); }

std::optional<bool> Value::as_bool() const {
    if (type_ != ValueType::boolean) return std::nullopt;
    return payload_[0] != 0;
}

std::optional<std::string_view> Value::as_string() const {
    if (type_ != ValueType::string) return std::nullopt;
    return std::string_view(payload_);
}

std::optional<std::vector<std::uint64_t>> Value::as_uints() const {
    return integers<std::uint64_t>(*this);
}

std::optional<std::vector<std::int64_t>> Value::as_ints() const {
    return integers<std::int64_t>(*this);
}

std::optional<std::vector<float>> Value::as_floats() const {
    if (type_ != ValueType::array || scalar_bytes(element_) == 0 ||
        element_ == ValueType::boolean) {
        return std::nullopt;
    }
    std::vector<float> numbers;
    numbers.reserve(count_);
    for (std::size_t i = 0; i < count_; ++i) {
        visit_number(element_, payload_, i,
                     [&](auto number) { numbers.push_back(static_cast<float>(number)); });
    }
    return numbers;
}

std::optional<std::vector<bool>> Value::as_bools() const {
    if (type_ != ValueType::array || element_ != ValueType::boolean) return std::nullopt;
    std::vector<bool> flags(count_);
    for (std::size_t i = 0; i < count_; ++i) flags[i] = payload_[i] != 0;
    return flags;
}

std::optional<std::vector<std::string_view>> Value::as_strings() const {
    if (type_ != ValueType::array || element_ != ValueType::string) return std::nullopt;
    std::vector<std::string_view> strings;
    strings.reserve(count_);
    const std::string_view payload = payload_;
    std::size_t at = 0;
    for (std::uint64_t i = 0; i < count_; ++i) {
        const auto length = load<std::uint64_t>(payload.data() + at);
        strings.push_back(payload.substr(at + sizeof(length), length));
        at += sizeof(length) + length;
    }
    return strings;
}

}  // namespace strata::gguf
