#pragma once

#include <cstdint>

#include "device/tensor.h"

namespace strata::op {

struct Picked {
    std::int32_t token = 0;
    float confidence = 0;
};

// What a row of logits says of the next token.
//
//   token(r) = token_of_row[r], or r where there is no list
//   r* = the r of largest logits[t, r], the lowest of equal ones; a NaN is below all others
//   picked[t].token = token(r*)
//   picked[t].confidence = exp(logits[t, r*]) / (sum over r of exp(logits[t, r]))
//
// The confidence is NaN where a logit of the row is NaN or the largest is not finite, and nowhere
// else.
//
// Shapes    logits [T, N], N at least 1; token_of_row N; picked T; tokens T, where given, gets the
//           tokens alone.
// Effects   Writes picked and tokens.
// Numerics  Tokens are exact; confidence Tolerance::projection. Row t is bit-identical whatever T
//           is.
struct Pick {
    MatrixView<const float> logits;
    VectorView<const std::int64_t> token_of_row;
    VectorView<Picked> picked;
    VectorView<std::int32_t> tokens;
};

}  // namespace strata::op
