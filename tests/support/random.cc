#include "tests/support/random.h"

namespace strata::test {

// FNV-1a of the name; Random then steps SplitMix64.
Random::Random(std::string_view seed, std::uint64_t number) : state_(0xcbf29ce484222325u) {
    for (const char c : seed) {
        state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    }
    state_ += number * 0xd1342543de82ef95u;
}

std::uint64_t Random::bits() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double Random::uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(bits() >> 11) * 0x1p-53);
}

std::int64_t Random::integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
}

std::vector<float> Random::floats(std::int64_t n, double low, double high) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = static_cast<float>(uniform(low, high));
    return values;
}

}  // namespace strata::test
