#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "op/draw.h"
#include "op/pick.h"

namespace strata::op {

// Rows of a window that are counted together.
inline constexpr int kAcceptRowsMax = 32;
// End tokens that are minded: of more, the text goes on for all that a device knows.
inline constexpr int kEndTokensMax = 16;

// The token that follows a row, as far as what was picked tells; -1: it does not.
constexpr std::int32_t told_token(const Picked& picked) {
    // Without a confidence there is no largest.
    return picked.confidence == picked.confidence ? picked.token : -1;
}
// Of the list of a row, [1 + K]: the best of what may be drawn, or the largest where nothing is.
constexpr std::int32_t told_token(const Drawn* drawn, std::int64_t listed) {
    return listed > 1 && drawn[1].token >= 0 ? drawn[1].token : drawn[0].token;
}

// How many rows of a window the text takes in, as far as what was picked tells.
//
//   told_token(row t) of picked: picked[t].token, or -1 where picked[t].confidence is NaN
//                     of drawn:  drawn[t, 1].token where there is one not below 0, else
//                                drawn[t, 0].token
//   rows = 1 + the largest n < T with, for all t < n:
//          told_token(row t) = window[t + 1], and is not in `ends`
//
// Shapes    window [T], 1 <= T <= kAcceptRowsMax: the rows' own tokens, none below 0; picked [T] or
//           drawn [T, 1 + K], one of the two; ends at most kEndTokensMax, filled up with -1.
// Effects   Writes rows[0]. Exact.
struct Accept {
    VectorView<const std::int32_t> window;
    VectorView<const Picked> picked;
    MatrixView<const Drawn> drawn;
    VectorView<const std::int32_t> ends;
    std::int64_t* rows = nullptr;

    // Whether the shapes are as above.
    constexpr bool fits() const {
        return window.size >= 1 && window.size <= kAcceptRowsMax &&
               picked.empty() != drawn.empty() && ends.size <= kEndTokensMax &&
               (drawn.empty() ? picked.size : drawn.rows) == window.size;
    }
    constexpr std::int32_t told(std::int64_t t) const {
        return drawn.empty() ? told_token(picked[t]) : told_token(drawn.row(t), drawn.cols);
    }
    // Whether row t + 1 stays if row t does.
    constexpr bool goes_on(std::int64_t t) const {
        const std::int32_t token = told(t);
        bool on = token == window[t + 1];
        for (std::int64_t i = 0; i < ends.size; ++i) on = on && token != ends[i];
        return on;
    }
    // What the op writes.
    constexpr std::int64_t count() const {
        std::int64_t kept = 1;
        while (kept < window.size && goes_on(kept - 1)) ++kept;
        return kept;
    }
};

}  // namespace strata::op
