// The grammar of a JSON object (RFC 8259), byte by byte: whether what was written so far can still
// become one, and whether it is one.
//
// Narrower than the RFC, so that every parser takes the text, and no white space or number goes on
// for ever: the value is an object; arrays and objects lie kJsonDepthMax deep at most; white space
// comes kJsonSpaceMax bytes at a time at most, kJsonLeadMax before the value and none after it; a
// number has kJsonDigitsMax digits at most before its point and after it, and kJsonExponentMax in
// its exponent, so that it is one in float64; strings are UTF-8 throughout, and escaped surrogates
// come in pairs. Keys may repeat, as the RFC has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "grammar/json_string.h"

namespace strata::grammar {

inline constexpr int kJsonDepthMax = 64;
// A line end of two bytes and an indentation by two a level.
inline constexpr int kJsonSpaceMax = 2 + 2 * kJsonDepthMax;
// The blank line that stands between thinking and an answer.
inline constexpr int kJsonLeadMax = 2;
inline constexpr int kJsonDigitsMax = 64;
inline constexpr int kJsonExponentMax = 2;

// A value of a few bytes: copied to try what may follow.
class Json {
  public:
    // False: no text goes on so, and the state is of no use any more.
    bool push(std::uint8_t byte);
    bool push(std::string_view bytes);

    // Whether the text is an object. Nothing follows it.
    bool complete() const { return place_ == Place::done; }

    // Equal states are followed by the same.
    friend bool operator==(const Json&, const Json&) = default;
    std::size_t hash() const;

  private:
    enum class Place : std::uint8_t {
        // Where white space may stand, by what may follow it.
        start,
        value,
        value_or_end,
        key,
        key_or_end,
        colon,
        comma_or_end,
        done,
        // Inside a value or key.
        string,
        literal,
        minus,
        zero,
        whole,
        point,
        fraction,
        exponent,
        exponent_sign,
        exponent_digits
    };

    bool in_object() const { return depth_ > 0 && (objects_ >> (depth_ - 1) & 1) != 0; }
    bool push_between(std::uint8_t byte);
    bool push_string(std::uint8_t byte);
    bool push_literal(std::uint8_t byte);
    bool push_number(std::uint8_t byte);
    bool end_number(std::uint8_t byte);
    bool begin_value(std::uint8_t byte);
    bool begin_string(bool key);
    bool begin_literal(std::uint8_t byte);
    bool begin_number(std::uint8_t byte);
    bool begin_digits(std::uint8_t byte, Place place);
    bool go_on_with_run(int most) {
        if (run_ >= most) return false;
        ++run_;
        return true;
    }
    bool open(bool object);
    bool close(std::uint8_t byte);
    bool go_to(Place place) {
        run_ = 0;
        place_ = place;
        return true;
    }

    std::uint64_t objects_ = 0;  // bit d: what was opened at depth d is an object
    std::uint8_t depth_ = 0;
    Place place_ = Place::start;
    std::uint8_t run_ = 0;      // of white space or digits that the text ends with, outside strings
    std::uint8_t literal_ = 0;  // its next letter; 0 outside
    bool is_key_ = false;       // the string
    JsonString string_;

    static_assert(kJsonDepthMax <= 64 && kJsonSpaceMax <= UINT8_MAX && kJsonDigitsMax <= UINT8_MAX);
};

}  // namespace strata::grammar
