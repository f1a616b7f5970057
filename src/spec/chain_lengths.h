// How many guesses of a chain that may end early are worth computing before the first is judged.
//
// To fetch a guess, and to go on after it, takes a while in which a device has nothing to do; a
// guess after the chain's end is computed for nothing. So as many are computed at once as chains
// lately came to judge nearly always. Pure: the same calls give the same numbers.
#pragma once

#include <array>
#include <cstdint>

#include "model/step_memory.h"
#include "spec/policy.h"

namespace strata::spec {

class ChainLengths {
  public:
    // Of a chain of at most `count`: 1 to count.
    std::int64_t at_once(std::int64_t count) const;
    // A chain of at most `count` came to judge `judged` guesses.
    void see(std::int64_t judged, std::int64_t count);

  private:
    // Of chains that judged guess i and could go on: whether they judged the next one.
    std::array<Share, static_cast<std::size_t>(model::kMtpChainMax)> went_on_;
};

}  // namespace strata::spec
