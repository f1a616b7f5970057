#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "op/draw.h"
#include "op/weight.h"

namespace strata::op {

inline constexpr int kDflashCandidatesMax = 64;

// The walk through the candidates of a block's rows, each row given the token before it.
//
//   token(r) = token_of_row[r], or r where there is no list
//   row i: C_i = token(r) of the K largest logits[i, r], largest first (equal: the lower r)
//   h_i = projection . hidden_i
//   score_i(b) = logits[i, row of b] + sum over m < R of predecessor[a][m] * h_i[m] *
//                successor[b][m], b in C_i, with a the pick of row i - 1, in row 0 the anchor
//   pick_i = the b of largest score_i(b), the first in C_i of equal ones
//   confidence_i = softmax of score_i over C_i at the pick
//
// With a rule pick_i is what that draws (op/draw.h) as row i of a window from C_i alone, by rising
// token, with score_i as logits: the one of largest score of those kept, or where the temperature
// is 0 the one of largest p; of equal ones the lowest. What joins after row j is pick_j, and what
// leaves below -1 is the pick of row -2 - leaves[j], at most j.
//
// A row with a logit or score that is not finite ends the walk before it.
//
// Source    The candidate selector of the DFlash2 draft model.
// Shapes    hidden [n, D]; logits [n, N]; token_of_row N, ascending, each in [0, V); projection
//           [R, D]; predecessor, successor [V, R]; candidates, scores [n, K]; path, confidence n;
//           1 <= K <= min(N, kDflashCandidatesMax); anchor in [0, V); rule 1 value, then n at most
//           kDrawRowsMax; penalized at least rule.penalized, each token once.
// Effects   Writes the outputs whole: rows, 1 number, is how many were walked; of the others
//           tokens are -1 and numbers 0.
// Numerics  F32 sums; Tolerance::projection, picks wherever scores differ by more. What a rule
//           makes of the scores is float64.
struct DflashSelect {
    MatrixView<const float> hidden;
    MatrixView<const float> logits;
    std::int32_t anchor = 0;
    // Where given, the anchor stands here when the op runs: for calls that a queue records.
    const std::int32_t* anchor_at = nullptr;
    VectorView<const std::int64_t> token_of_row;
    // Where given, it stands here when the op runs.
    const DrawRule* rule = nullptr;
    VectorView<const Penalized> penalized;
    Weight projection;
    Weight predecessor;  // this and the next are tables
    Weight successor;
    MatrixView<std::int32_t> candidates;
    MatrixView<float> scores;
    VectorView<std::int32_t> path;
    VectorView<float> confidence;
    std::int32_t* rows = nullptr;
};

}  // namespace strata::op
