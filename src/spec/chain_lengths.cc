#include "spec/chain_lengths.h"

#include <algorithm>

namespace strata::spec {
namespace {

// A guess takes several times what fetching one does: of so many chains that judge a guess, this
// share has to come to the next one for that to be computed with it.
constexpr double kWorth = 0.85;
// Before anything is known chains go on, and so many cases that counts as.
constexpr double kPrior = 0.9;
constexpr double kPriorCases = 8;

}  // namespace

std::int64_t ChainLengths::at_once(std::int64_t count) const {
    double reached = 1;
    std::int64_t n = 1;
    for (const Share& share : went_on_) {
        reached *= share.value(kPrior, kPriorCases);
        if (n >= count || reached < kWorth) break;
        ++n;
    }
    return n;
}

void ChainLengths::see(std::int64_t judged, std::int64_t count) {
    const auto places = static_cast<std::int64_t>(went_on_.size());
    for (std::int64_t i = 0; i < std::min(judged, places) && i + 1 < count; ++i) {
        went_on_[static_cast<std::size_t>(i)].see(i + 1 < judged);
    }
}

}  // namespace strata::spec
