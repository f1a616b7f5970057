#include "spec/cost_curve.h"

#include <algorithm>

#include "base/check.h"

namespace strata::spec {
namespace {

// A size's mean is over about so many steps.
constexpr double kMemory = 12;
// What the others lose with every step: what was long ago gives way to the line.
constexpr double kAging = 0.98;
// A step that took longer than so many means was disturbed, and one as much shorter is as rare.
// Long steps are disturbed more often than short ones: were they to count in full, a busy machine
// would make wide windows look bad.
constexpr double kOutlier = 1.3;
// While a size was seen less often than this, what is expected of it says little.
constexpr double kKnown = 4;
constexpr double kFirstOutlier = 3;
// Of so many first steps of a size the fastest counts: caches are cold, and nothing says yet what
// is disturbed.
constexpr std::int64_t kFirstSteps = 3;
// Where the assumed slope counts as a step that was seen, and for how much.
constexpr double kSlopeAt = 9;
constexpr double kSlopeWeight = 0.5;

}  // namespace

void CostCurve::see(std::int64_t size, double milliseconds) {
    STRATA_CHECK(size >= 1 && size <= static_cast<std::int64_t>(kCostSizesMax));
    for (Mean& mean : means_) mean.weight *= kAging;
    Mean& mean = means_[static_cast<std::size_t>(size)];
    const double expected = seen_ ? at(size) : milliseconds;
    const bool first = mean.steps < kFirstSteps;
    const double least = first ? 0 : expected / kOutlier;
    const double most = !first && mean.weight < kKnown ? kFirstOutlier : kOutlier;
    const double taken = std::clamp(milliseconds, least, most * expected);
    mean.weight = std::min(mean.weight + 1, kMemory);
    const double step = (taken - mean.milliseconds) / mean.weight;
    mean.milliseconds =
        first && mean.steps > 0 ? std::min(mean.milliseconds, taken) : mean.milliseconds + step;
    ++mean.steps;
    seen_ = true;
    fit();
}

void CostCurve::begin(std::int64_t size, double milliseconds) {
    STRATA_CHECK(size >= 1 && size <= static_cast<std::int64_t>(kCostSizesMax));
    means_[static_cast<std::size_t>(size)] = {milliseconds, 1, kFirstSteps};
    seen_ = true;
    fit();
}

double CostCurve::assumed(double size) const { return 1 + slope_ * (size - 1); }

// The line of least squares.
void CostCurve::fit() {
    double weight = 0;
    double unit = 0;
    for (std::size_t n = 1; n <= kCostSizesMax; ++n) {
        weight += means_[n].weight;
        unit += means_[n].weight * means_[n].milliseconds / assumed(static_cast<double>(n));
    }
    unit_ = unit / weight;
    double w = kSlopeWeight;
    double x = w * kSlopeAt;
    double y = w * unit_ * assumed(kSlopeAt);
    double xx = x * kSlopeAt;
    double xy = y * kSlopeAt;
    for (std::size_t n = 1; n <= kCostSizesMax; ++n) {
        const auto size = static_cast<double>(n);
        w += means_[n].weight;
        x += means_[n].weight * size;
        y += means_[n].weight * means_[n].milliseconds;
        xx += means_[n].weight * size * size;
        xy += means_[n].weight * means_[n].milliseconds * size;
    }
    const double spread = w * xx - x * x;
    rise_ = spread > 0 ? std::max(0.0, (w * xy - x * y) / spread) : 0;
    start_ = (y - rise_ * x) / w;
}

double CostCurve::at(std::int64_t size) const { return at(size, first_); }

double CostCurve::at(std::int64_t size, double first) const {
    STRATA_CHECK(size >= 1 && size <= static_cast<std::int64_t>(kCostSizesMax));
    if (!seen_) return first * assumed(static_cast<double>(size));
    const double line = start_ + rise_ * static_cast<double>(size);
    const Mean& own = means_[static_cast<std::size_t>(size)];
    const double estimate = line + own.weight / (own.weight + 1) * (own.milliseconds - line);
    return std::max(estimate, unit_ / 16);
}

}  // namespace strata::spec
