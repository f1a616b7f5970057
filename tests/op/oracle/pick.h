// op/pick.h in float64.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/compare.h"

namespace strata::test {

struct PickResult {
    std::vector<std::int32_t> tokens;
    Rows confidence;  // one row
};

// `token_of_row` may be empty.
PickResult pick_oracle(const Rows& logits, const std::vector<std::int64_t>& token_of_row);

}  // namespace strata::test
