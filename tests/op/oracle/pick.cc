#include "tests/op/oracle/pick.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace strata::test {

PickResult pick_oracle(const Rows& logits, const std::vector<std::int64_t>& token_of_row,
                       std::int64_t candidates) {
    PickResult result{.confidence = Rows(1)};
    for (const Row& row : logits) {
        std::size_t best = 0;
        double largest = -std::numeric_limits<double>::infinity();
        bool sound = true;
        for (std::size_t r = 0; r < row.size(); ++r) {
            sound = sound && !std::isnan(row[r]);
            if (row[r] > largest) {
                best = r;
                largest = row[r];
            }
        }
        double sum = 0;
        for (const double logit : row) sum += std::exp(logit - largest);
        sound = sound && std::isfinite(largest);
        const auto at = static_cast<std::int64_t>(best);
        result.tokens.push_back(
            static_cast<std::int32_t>(token_of_row.empty() ? at : token_of_row[best]));
        result.confidence[0].push_back(sound ? 1 / sum : std::nan(""));
        std::vector<std::size_t> order;
        for (std::size_t r = 0; r < row.size(); ++r) {
            if (std::isfinite(row[r])) order.push_back(r);
        }
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return row[a] > row[b]; });
        for (std::size_t c = 0; c < static_cast<std::size_t>(candidates); ++c) {
            const bool some = c < order.size();
            const std::int64_t token = token_of_row.empty() || !some
                                           ? static_cast<std::int64_t>(some ? order[c] : 0)
                                           : token_of_row[order[c]];
            result.best_tokens.push_back(some ? static_cast<std::int32_t>(token) : -1);
            result.best_logits.push_back(some ? static_cast<float>(row[order[c]]) : 0.0f);
        }
    }
    return result;
}

}  // namespace strata::test
