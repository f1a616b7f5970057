// op/draw.h in float64.
#pragma once

#include <cstdint>
#include <vector>

#include "op/draw.h"
#include "tests/support/compare.h"

namespace strata::test {

// What one row of logits makes of each token.
struct DrawnRow {
    std::int64_t largest = -1;         // r*; -1: not finite, or a NaN
    std::vector<std::int32_t> counts;  // n
    Row scaled;                        // s
    Row before;  // of all rows before, the sum of exp(s) as a part of that of the first top_k
    Row scores;  // of what is kept; NaN: it is not
};

// Row t of a window. `token_of_row` may be empty.
DrawnRow draw_oracle(const std::vector<float>& logits,
                     const std::vector<std::int64_t>& token_of_row, const op::DrawRule& rule,
                     const std::vector<op::Penalized>& penalized, std::int64_t t);

}  // namespace strata::test
