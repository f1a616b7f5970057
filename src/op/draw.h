#pragma once

#include <cstdint>

#include "device/tensor.h"

namespace strata::op {

// Rows of a window that are drawn from together.
inline constexpr int kDrawRowsMax = 16;
// Tokens that are listed of a row at most.
inline constexpr int kDrawnMax = 8;
// Tokens whose logits penalties change.
inline constexpr int kPenalizedMax = 16384;

// So far below the largest no noise (base/philox.h) lifts a token above it.
inline constexpr double kLowestDrawn = -64;

// How often a token is among those that are penalized for, before row 0.
struct Penalized {
    std::int32_t token = 0;
    std::int32_t count = 0;
};

// What the draws of a window are told, where the op finds it when it runs.
struct alignas(64) DrawRule {
    double temperature = 0;        // 0: no list
    double lowest = kLowestDrawn;  // of what is kept, from there to 0
    double top_p = 1;
    std::int64_t top_k = 0;  // 0: all
    double repeat_penalty = 1;
    double presence_penalty = 0;
    double frequency_penalty = 0;
    std::uint64_t seed = 0;
    std::int64_t position = 0;   // of the token that row 0 is for
    std::int64_t penalized = 0;  // tokens
    // Before row t + 1, after row t: the token that joins those that are penalized for, and the one
    // that leaves them, if any; -1: none. Whoever makes a rule with penalties sets all of them.
    std::int32_t joins[kDrawRowsMax] = {};
    std::int32_t leaves[kDrawRowsMax] = {};
};

struct Drawn {
    std::int32_t token = -1;  // -1: none
    std::int32_t count = 0;   // how often it is penalized for
    float logit = 0;
    float score = 0;
    std::int32_t sure = 0;  // 1: it is kept; 0: it may be
};

// Which filters a call minds: others must be those of a rule that keeps all.
inline constexpr int kFilterTopK = 1;
inline constexpr int kFilterTopP = 2;

// Of a sum of exponentials that top-p goes by, relative: what a backend may be off by. In F32 an
// exponential is off by half a unit of its argument, at most 2e-6, and a little: ten times that.
inline constexpr double kFilterError = 2e-5;

// The penalized logit of a token that is penalized for `count` times, at least once. Float64, each
// operation rounded: every backend has the same bits.
constexpr double penalized_logit(const DrawRule& rule, double logit, std::int64_t count) {
    logit = logit > 0 ? logit / rule.repeat_penalty : logit * rule.repeat_penalty;
    logit -= rule.presence_penalty;
    return logit - rule.frequency_penalty * static_cast<double>(count);
}

// What rows of logits say of the tokens that sampling by the Gumbel-max rule gives.
//
//   token(r) = token_of_row[r], or r where there is no list
//   n[t, r] = the count of token(r) in `penalized`, 0 where it is not, plus how often it is among
//             joins[0 .. t-1], minus how often among leaves[0 .. t-1]
//   p[t, r] = penalized_logit(logits[t, r], n[t, r]) where n[t, r] > 0, else logits[t, r]
//   r* = the r of largest p[t, r], the lowest of equal ones
//   s[t, r] = (p[t, r] - p[t, r*]) / temperature
//   score[t, r] = s[t, r] - log(-log(u)), u = uniform(seed, position + t, token(r)) (base/philox.h)
//
// Kept are, by falling s and of equal ones by rising r: the first top_k; of those as many as it
// takes for their sum of exp(s) to reach top_p times the sum of all of them, at least one; of those
// the ones with s >= lowest.
//
//   drawn[t, 0] = token(r*), its logit and count; its score is 0, and it is sure
//   drawn[t, 1 ..] = of what is kept those of largest score, largest first; where there are fewer,
//                    or the temperature is 0, token -1
//
// Some that are not kept may be listed as not sure, and so may some that are: of equal s in F32 at
// the end of what a filter keeps, or where the sum before one is within kFilterError of top_p's.
//
// Where a logit of the row is NaN or p[t, r*] not finite, all of drawn[t] is token -1.
//
// The draw is the first of the list as far as scores tell: they are in F32. Who wants it to the bit
// computes the scores of the list in float64, and has it where the best is above the last of a full
// list by more than score_error() of that.
//
// Shapes    logits [T, N], T at most kDrawRowsMax, N at least 1; token_of_row N, ascending; rule 1
//           value; penalized at least rule.penalized, each token once, of joins every one; drawn
//           [T, 1 + K], K at most kDrawnMax.
// Effects   Writes drawn.
// Numerics  All exact but `sure`, as said, and the scores, each within score_error() of its own.
//           Row t has the bits that it has alone under a rule of its own.
struct Draw {
    MatrixView<const float> logits;
    VectorView<const std::int64_t> token_of_row;
    const DrawRule* rule = nullptr;
    VectorView<const Penalized> penalized;
    int filters = 0;
    MatrixView<Drawn> drawn;
};

// How far a score of about this size may be off.
constexpr double score_error(double score) {
    // Noise is below 37 and s above -64, where a unit in the last place of F32 is 4e-6: two
    // logarithms and three roundings of a few units each have room.
    constexpr double kNoise = 5e-5;
    // Eight units in the last place.
    constexpr double kRounding = 1e-6;
    return kNoise + kRounding * (score < 0 ? -score : score);
}

}  // namespace strata::op
