#include "tests/op/oracle/draw.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/philox.h"

namespace strata::test {

DrawnRow draw_oracle(const std::vector<float>& logits,
                     const std::vector<std::int64_t>& token_of_row, const op::DrawRule& rule,
                     const std::vector<op::Penalized>& penalized, std::int64_t t) {
    std::map<std::int64_t, std::int32_t> count_of;
    for (const op::Penalized& one : penalized) count_of[one.token] = one.count;
    for (std::int64_t i = 0; i < t; ++i) {
        if (rule.joins[i] >= 0) ++count_of[rule.joins[i]];
        if (rule.leaves[i] >= 0) --count_of[rule.leaves[i]];
    }
    DrawnRow row;
    Row values;
    double most = -std::numeric_limits<double>::infinity();
    bool nan = false;
    const auto token_at = [&](std::size_t r) {
        return token_of_row.empty() ? static_cast<std::int64_t>(r) : token_of_row[r];
    };
    for (std::size_t r = 0; r < logits.size(); ++r) {
        const auto found = count_of.find(token_at(r));
        row.counts.push_back(found == count_of.end() ? 0 : found->second);
        double value = logits[r];
        if (row.counts.back() > 0) {
            value = value > 0 ? value / rule.repeat_penalty : value * rule.repeat_penalty;
            value -= rule.presence_penalty;
            value -= rule.frequency_penalty * row.counts.back();
        }
        values.push_back(value);
        nan = nan || std::isnan(value);
        if (value > most) {
            most = value;
            row.largest = static_cast<std::int64_t>(r);
        }
    }
    if (nan || !std::isfinite(most)) row.largest = -1;
    if (row.largest < 0 || rule.temperature == 0) return row;
    std::vector<std::size_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    for (const double value : values) row.scaled.push_back((value - most) / rule.temperature);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return row.scaled[a] > row.scaled[b]; });
    const std::size_t first = rule.top_k == 0
                                  ? order.size()
                                  : std::min(order.size(), static_cast<std::size_t>(rule.top_k));
    double sum = 0;
    for (std::size_t i = 0; i < first; ++i) sum += std::exp(row.scaled[order[i]]);
    row.before.resize(order.size());
    std::vector<bool> filtered(order.size());
    double before = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
        row.before[order[i]] = before;
        filtered[order[i]] = i < first && (i == 0 || rule.top_p >= 1 || before < rule.top_p);
        before += std::exp(row.scaled[order[i]]) / sum;
    }
    for (std::size_t r = 0; r < logits.size(); ++r) {
        const double scaled = row.scaled[r];
        const bool kept = filtered[r] && scaled >= rule.lowest;
        const double u = uniform(rule.seed, static_cast<std::uint64_t>(rule.position + t),
                                 static_cast<std::uint32_t>(token_at(r)));
        row.scores.push_back(kept ? scaled - std::log(-std::log(u)) : std::nan(""));
    }
    return row;
}

}  // namespace strata::test
