// Random numbers that are the same on every machine: a test names its seed by what it is for.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace strata::test {

class Random {
  public:
    explicit Random(std::string_view seed, std::uint64_t number = 0);

    std::uint64_t bits();
    double uniform(double low, double high);                    // in [low, high)
    std::int64_t integer(std::int64_t low, std::int64_t high);  // in [low, high]
    std::vector<float> floats(std::int64_t n, double low, double high);

    template <typename T>
    void shuffle(std::vector<T>& values) {
        for (std::size_t i = values.size(); i > 1; --i) {
            std::swap(values[i - 1], values[bits() % i]);
        }
    }

  private:
    std::uint64_t state_;
};

}  // namespace strata::test
