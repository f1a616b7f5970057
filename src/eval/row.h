// What is measured of one row of logits: in double precision, whatever its magnitude.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "strata/eval.h"

namespace strata::eval {

// Softmax of a row. The logarithm of its sum is kept relative to the largest value, so that nothing
// overflows and no digits go to the values' common magnitude. NaN or +infinity in the row makes
// log_probability NaN. The row is not empty.
class Softmax {
  public:
    explicit Softmax(std::span<const float> row);
    double log_probability(float value) const { return (value - largest_) - log_sum_; }

  private:
    double largest_;
    double log_sum_;
};

// -ln of the softmax probability of row[token].
double nats(std::span<const float> row, std::int32_t token);

// KL(softmax(q) || softmax(p)) in nats: 0 where they are equal, and never below it. As many values
// in both.
double divergence(std::span<const float> q, std::span<const float> p);

// The lowest index of the largest value.
std::size_t top(std::span<const float> row);

// Welford's running mean and variance, which lose nothing when the mean is large.
class MeanOf {
  public:
    void add(double value) {
        ++count_;
        const double before = value - mean_;
        mean_ += before / static_cast<double>(count_);
        squares_ += before * (value - mean_);
    }
    std::int64_t count() const { return count_; }
    double sum() const { return mean_ * static_cast<double>(count_); }
    // The standard error is that of the sample; 0 for fewer than 2 values.
    Mean mean() const;

  private:
    std::int64_t count_ = 0;
    double mean_ = 0;
    double squares_ = 0;
};

}  // namespace strata::eval
