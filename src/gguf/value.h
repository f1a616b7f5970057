// A typed value of a GGUF file's metadata.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace strata::gguf {

// The numbers are the format's.
enum class ValueType : std::uint32_t {
    u8 = 0,
    i8 = 1,
    u16 = 2,
    i16 = 3,
    u32 = 4,
    i32 = 5,
    f32 = 6,
    boolean = 7,
    string = 8,
    array = 9,
    u64 = 10,
    i64 = 11,
    f64 = 12,
};

// "u8", "string", ...; "unknown type" for a number outside the enum.
std::string_view name_of(ValueType type);

// Bytes of a number or boolean; 0 for strings, arrays and unknown types.
std::size_t scalar_bytes(ValueType type);

// The ValueType of a C++ number; there is none for other types.
template <typename T>
constexpr ValueType type_of() {
    if constexpr (std::is_same_v<T, std::uint8_t>)
        return ValueType::u8;
    else if constexpr (std::is_same_v<T, std::int8_t>)
        return ValueType::i8;
    else if constexpr (std::is_same_v<T, std::uint16_t>)
        return ValueType::u16;
    else if constexpr (std::is_same_v<T, std::int16_t>)
        return ValueType::i16;
    else if constexpr (std::is_same_v<T, std::uint32_t>)
        return ValueType::u32;
    else if constexpr (std::is_same_v<T, std::int32_t>)
        return ValueType::i32;
    else if constexpr (std::is_same_v<T, float>)
        return ValueType::f32;
    else if constexpr (std::is_same_v<T, bool>)
        return ValueType::boolean;
    else if constexpr (std::is_same_v<T, std::uint64_t>)
        return ValueType::u64;
    else if constexpr (std::is_same_v<T, std::int64_t>)
        return ValueType::i64;
    else {
        static_assert(std::is_same_v<T, double>, "not a number that GGUF stores");
        return ValueType::f64;
    }
}

// Holds the value as the file encodes it, so that an array of a million strings is one block of
// bytes; the accessors decode. Owns its bytes.
class Value {
  public:
    template <typename T>
    static Value of(T number) {
        return Value(type_of<T>(), type_of<T>(), 1, bytes_of(&number, 1));
    }
    static Value string(std::string_view text);
    template <typename T>
    static Value array(std::span<const T> numbers) {
        return Value(ValueType::array, type_of<T>(), numbers.size(),
                     bytes_of(numbers.data(), numbers.size()));
    }
    template <typename T>
    requires std::is_arithmetic_v<T>
    static Value array(const std::vector<T>& numbers) { return array(std::span<const T>(numbers)); }
    static Value array(std::span<const std::string> strings);
    static Value array(const std::vector<std::string>& strings) {
        return array(std::span<const std::string>(strings));
    }

    // A value whose `payload` the caller has checked against `type`, `element` and `count`.
    static Value encoded(ValueType type, ValueType element, std::uint64_t count,
                         std::string payload) {
        return Value(type, element, count, std::move(payload));
    }

    ValueType type() const { return type_; }
    // Of an array, the type of its elements; else type().
    ValueType element_type() const { return element_; }
    // Elements of an array; else 1.
    std::uint64_t count() const { return count_; }
    // "string", "array of u32", ...
    std::string type_text() const;
    // The file's encoding, without an array's type and count or a lone string's length.
    std::string_view payload() const { return payload_; }

    // Each accessor is empty if the value is of another kind. Integers of every width convert where
    // the value fits; as_float also takes integers; nothing else converts.
    std::optional<std::uint64_t> as_uint() const;
    std::optional<std::int64_t> as_int() const;
    std::optional<double> as_float() const;
    std::optional<bool> as_bool() const;
    // Valid while this value lives and is not moved.
    std::optional<std::string_view> as_string() const;

    // Arrays. as_ints and as_uints need every element to fit.
    std::optional<std::vector<std::uint64_t>> as_uints() const;
    std::optional<std::vector<std::int64_t>> as_ints() const;
    std::optional<std::vector<float>> as_floats() const;
    std::optional<std::vector<bool>> as_bools() const;
    // Valid while this value lives and is not moved.
    std::optional<std::vector<std::string_view>> as_strings() const;

  private:
    Value(ValueType type, ValueType element, std::uint64_t count, std::string payload)
        : type_(type), element_(element), count_(count), payload_(std::move(payload)) {}
    template <typename T>
    static std::string bytes_of(const T* numbers, std::size_t count) {
        static_assert(std::endian::native == std::endian::little, "GGUF is little-endian");
        return std::string(reinterpret_cast<const char*>(numbers), count * sizeof(T));
    }

    ValueType type_;
    ValueType element_;
    std::uint64_t count_;
    std::string payload_;
};

}  // namespace strata::gguf
