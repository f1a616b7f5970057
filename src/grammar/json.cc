#include "grammar/json.h"

#include <algorithm>

namespace strata::grammar {
namespace {

// Each with a mark after its last letter.
constexpr std::string_view kLiterals = "true,false,null,";

constexpr bool is_space(std::uint8_t byte) {
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

constexpr bool is_digit(std::uint8_t byte) { return byte >= '0' && byte <= '9'; }

}  // namespace

bool Json::push(std::string_view bytes) {
    return std::all_of(bytes.begin(), bytes.end(),
                       [this](char byte) { return push(static_cast<std::uint8_t>(byte)); });
}

bool Json::push(std::uint8_t byte) {
    if (place_ <= Place::done) return push_between(byte);
    if (place_ == Place::string) return push_string(byte);
    return place_ == Place::literal ? push_literal(byte) : push_number(byte);
}

bool Json::push_between(std::uint8_t byte) {
    if (is_space(byte)) {
        const int most = place_ == Place::start ? kJsonLeadMax : kJsonSpaceMax;
        return !complete() && go_on_with_run(most);
    }
    switch (place_) {
        case Place::start:
            return byte == '{' && open(true);
        case Place::value:
            return begin_value(byte);
        case Place::value_or_end:
            return byte == ']' ? close(byte) : begin_value(byte);
        case Place::key:
            return byte == '"' && begin_string(true);
        case Place::key_or_end:
            return byte == '}' ? close(byte) : byte == '"' && begin_string(true);
        case Place::colon:
            return byte == ':' && go_to(Place::value);
        case Place::comma_or_end:
            if (byte == ',') return go_to(in_object() ? Place::key : Place::value);
            return close(byte);
        default:
            return false;
    }
}

bool Json::begin_value(std::uint8_t byte) {
    switch (byte) {
        case '{':
            return open(true);
        case '[':
            return open(false);
        case '"':
            return begin_string(false);
        case 't':
        case 'f':
        case 'n':
            return begin_literal(byte);
        default:
            return begin_number(byte);
    }
}

bool Json::open(bool object) {
    if (depth_ == kJsonDepthMax) return false;
    objects_ |= std::uint64_t{object} << depth_++;
    return go_to(object ? Place::key_or_end : Place::value_or_end);
}

bool Json::close(std::uint8_t byte) {
    if (byte != (in_object() ? '}' : ']')) return false;
    objects_ &= ~(std::uint64_t{1} << --depth_);
    return go_to(depth_ == 0 ? Place::done : Place::comma_or_end);
}

bool Json::begin_string(bool key) {
    is_key_ = key;
    return go_to(Place::string);
}

bool Json::push_string(std::uint8_t byte) {
    const JsonString::Step step = string_.push(byte);
    if (step != JsonString::Step::ended) return step == JsonString::Step::inside;
    const bool key = is_key_;
    is_key_ = false;
    return go_to(key ? Place::colon : Place::comma_or_end);
}

bool Json::begin_literal(std::uint8_t byte) {
    literal_ = static_cast<std::uint8_t>(kLiterals.find(static_cast<char>(byte)) + 1);
    return go_to(Place::literal);
}

bool Json::push_literal(std::uint8_t byte) {
    if (byte != static_cast<std::uint8_t>(kLiterals[literal_])) return false;
    ++literal_;
    if (kLiterals[literal_] != ',') return true;
    literal_ = 0;
    return go_to(Place::comma_or_end);
}

bool Json::begin_number(std::uint8_t byte) {
    if (byte == '-') return go_to(Place::minus);
    return byte == '0' ? go_to(Place::zero) : begin_digits(byte, Place::whole);
}

bool Json::begin_digits(std::uint8_t byte, Place place) {
    return is_digit(byte) && go_to(place) && go_on_with_run(1);
}

bool Json::push_number(std::uint8_t byte) {
    const bool is_exponent = byte == 'e' || byte == 'E';
    switch (place_) {
        case Place::minus:
            return is_digit(byte) && begin_number(byte);
        case Place::zero:
        case Place::whole:
            if (is_digit(byte) && place_ == Place::whole) return go_on_with_run(kJsonDigitsMax);
            if (byte == '.') return go_to(Place::point);
            return is_exponent ? go_to(Place::exponent) : end_number(byte);
        case Place::point:
            return begin_digits(byte, Place::fraction);
        case Place::fraction:
            if (is_digit(byte)) return go_on_with_run(kJsonDigitsMax);
            return is_exponent ? go_to(Place::exponent) : end_number(byte);
        case Place::exponent:
            if (byte == '+' || byte == '-') return go_to(Place::exponent_sign);
            return begin_digits(byte, Place::exponent_digits);
        case Place::exponent_sign:
            return begin_digits(byte, Place::exponent_digits);
        default:
            return is_digit(byte) ? go_on_with_run(kJsonExponentMax) : end_number(byte);
    }
}

// A number ends where something else follows.
bool Json::end_number(std::uint8_t byte) {
    go_to(Place::comma_or_end);
    return push_between(byte);
}

std::size_t Json::hash() const {
    std::uint64_t mixed = objects_ * 0x9e3779b97f4a7c15;
    for (const std::uint64_t part :
         {std::uint64_t{depth_}, static_cast<std::uint64_t>(place_), std::uint64_t{run_},
          std::uint64_t{literal_}, std::uint64_t{is_key_}, std::uint64_t{string_.number()}}) {
        mixed = (mixed ^ part) * 0x100000001b3;
    }
    return mixed ^ mixed >> 32;
}

}  // namespace strata::grammar
