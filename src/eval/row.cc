#include "eval/row.h"

#include <algorithm>
#include <cmath>

namespace strata::eval {

Softmax::Softmax(std::span<const float> row) : largest_(*std::ranges::max_element(row)) {
    double sum = 0;
    for (const float value : row) sum += std::exp(value - largest_);
    log_sum_ = std::log(sum);
}

double nats(std::span<const float> row, std::int32_t token) {
    return -Softmax(row).log_probability(row[static_cast<std::size_t>(token)]);
}

double divergence(std::span<const float> q, std::span<const float> p) {
    const Softmax q_softmax(q);
    const Softmax p_softmax(p);
    double total = 0;
    for (std::size_t i = 0; i < q.size(); ++i) {
        const double log_q = q_softmax.log_probability(q[i]);
        total += std::exp(log_q) * (log_q - p_softmax.log_probability(p[i]));
    }
    // Rounding can leave a sum of nothing just below 0; a NaN stays one.
    return total < 0 ? 0 : total;
}

std::size_t top(std::span<const float> row) {
    return static_cast<std::size_t>(std::ranges::max_element(row) - row.begin());
}

Mean MeanOf::mean() const {
    if (count_ < 2) return {mean_, 0};
    const auto n = static_cast<double>(count_);
    return {mean_, std::sqrt(squares_ / (n - 1) / n)};
}

}  // namespace strata::eval
