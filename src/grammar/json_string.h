// A string of JSON after its first quote, byte by byte (RFC 8259, section 7).
//
// Narrower than the RFC in one thing: an escaped surrogate stands in a pair, the high one first, as
// it has to where the string is to become UTF-8.
#pragma once

#include <cstdint>

namespace strata::grammar {

class JsonString {
  public:
    enum class Step : std::uint8_t { inside, ended, refused };

    // After `ended` the string may begin anew; after `refused` it is of no use.
    Step push(std::uint8_t byte);

    friend bool operator==(const JsonString&, const JsonString&) = default;
    // Of the state, for a hash.
    std::uint8_t number() const { return static_cast<std::uint8_t>(place_); }

  private:
    enum class Place : std::uint8_t {
        plain,   // between characters
        escape,  // after a backslash
        // Inside a character of UTF-8, by the bytes that may follow (Unicode, table 3-7).
        tail_1,
        tail_2,
        tail_3,
        after_e0,
        after_ed,
        after_f0,
        after_f4,
        // After \u and some of its digits: so many are left, or what they have to be.
        hex_4,
        hex_after_d,
        hex_3,
        hex_2,
        hex_1,
        // Of a high surrogate, and of the low one that has to follow.
        high_2,
        high_1,
        low_backslash,
        low_u,
        low_d,
        low_c_to_f
    };

    // Where one character leads to; false: it is none.
    bool begin(std::uint8_t byte);
    bool unescape(std::uint8_t byte);
    bool go_on(std::uint8_t byte);
    bool take_digit(std::uint8_t byte);
    bool go_to(bool allowed, Place next) {
        place_ = next;
        return allowed;
    }

    Place place_ = Place::plain;
};

}  // namespace strata::grammar
