// Time since a start, and what repeats of one time say together.
#pragma once

#include <chrono>
#include <vector>

#include "strata/bench.h"

namespace strata::bench {

class Clock {
  public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }
    double ms() const { return 1e3 * seconds(); }

  private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The faster figure of each kind.
MachineRates better(const MachineRates& a, const MachineRates& b);

// What a caller that wants no more gets.
Error ended();

// Of at least one value; of an even number the upper of the two in the middle.
Spread spread(std::vector<double> values);

}  // namespace strata::bench
