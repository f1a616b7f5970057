#pragma once

#include <cstdint>

#include "device/tensor.h"

namespace strata::op {

struct Picked {
    std::int32_t token = 0;
    float confidence = 0;
};

struct Candidate {
    float logit = 0;
    std::int32_t token = -1;  // -1: none
};

inline constexpr int kCandidatesMax = 64;

// What a row of logits says of the next token.
//
//   token(r) = token_of_row[r], or r where there is no list
//   r* = the r of largest logits[t, r], the lowest of equal ones; a NaN is below all others
//   picked[t].token = token(r*)
//   picked[t].confidence = exp(logits[t, r*]) / (sum over r of exp(logits[t, r]))
//
//   best[t] = logit and token(r) of the K largest finite logits of the row, largest first, of equal
//   ones the lower r; where there are fewer, token -1 and logit 0
//
// Confidence is NaN where a logit of the row is NaN or the largest is not finite, and nowhere else.
//
// Shapes    logits [T, N], N at least 1; token_of_row N; picked T; tokens T, where given, gets the
//           tokens alone; best [T, K], where given, K at most kCandidatesMax.
// Effects   Writes picked, tokens and best.
// Numerics  Tokens and logits are exact; confidence Tolerance::projection. Row t is bit-identical
//           whatever T is.
struct Pick {
    MatrixView<const float> logits;
    VectorView<const std::int64_t> token_of_row;
    VectorView<Picked> picked;
    VectorView<std::int32_t> tokens;
    MatrixView<Candidate> best;
};

}  // namespace strata::op
