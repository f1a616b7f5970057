// op/pick.h in float64.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/compare.h"

namespace strata::test {

struct PickResult {
    std::vector<std::int32_t> tokens;
    Rows confidence;  // one row
    // Of each row the `candidates` largest finite logits.
    std::vector<std::int32_t> best_tokens;
    std::vector<float> best_logits;
};

// `token_of_row` may be empty.
PickResult pick_oracle(const Rows& logits, const std::vector<std::int64_t>& token_of_row,
                       std::int64_t candidates);

}  // namespace strata::test
