#include "tests/op/oracle/pick.h"

#include <cmath>
#include <limits>

namespace strata::test {

PickResult pick_oracle(const Rows& logits, const std::vector<std::int64_t>& token_of_row) {
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
    }
    return result;
}

}  // namespace strata::test
