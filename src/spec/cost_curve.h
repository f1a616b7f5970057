// What a step of so many rows costs, learned from steps that were timed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace strata::spec {

inline constexpr std::size_t kCostSizesMax = 16;

// Milliseconds by size, of sizes 1 to kCostSizesMax. Each size has a mean that forgets; a straight
// line through all of them stands in where a size was seldom seen.
class CostCurve {
  public:
    // Before anything was seen, size n costs `first` * (1 + `slope` * (n - 1)).
    CostCurve(double first, double slope) : first_(first), slope_(slope) {}

    void see(std::int64_t size, double milliseconds);
    // What a size took where caches were warm and nothing else was done: where it begins.
    void begin(std::int64_t size, double milliseconds);
    bool seen() const { return seen_; }
    double at(std::int64_t size) const;
    // Before anything was seen, `first` is what the caller thinks now.
    double at(std::int64_t size, double first) const;

  private:
    struct Mean {
        double milliseconds = 0;
        double weight = 0;
        std::int64_t steps = 0;
    };

    double assumed(double size) const;
    void fit();

    double first_;
    double slope_;
    bool seen_ = false;
    // The line, and what a size of one costs if the assumed slope is right.
    double start_ = 0;
    double rise_ = 0;
    double unit_ = 0;
    std::array<Mean, kCostSizesMax + 1> means_;
};

}  // namespace strata::spec
