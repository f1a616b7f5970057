#pragma once

#include <cstdint>
#include <span>

#include "device/tensor.h"
#include "op/kept_rows.h"
#include "op/weight.h"

namespace strata::op {

// Starts the residual streams: residual[t, s, :] = table[tokens[t]] for every stream s.
//
// Shapes    tokens [T], each in [0, V); table [V, D]; residual [T, S*D].
// Effects   Writes residual. Exact.
struct Embed {
    VectorView<const std::int32_t> tokens;
    Weight table;
    int streams = 0;
    MatrixView<float> residual;
};

// mean[t, :] = (1/S) sum over s of residual[t, s, :], after adding
// block_inject[t, s] * block_out[t, :] to each stream where block_out is given (the residual itself
// is not written).
//
// Shapes    residual [T, S*D]; block_out [T, D]; block_inject [T, S]; mean [T, D], whose rows are
//           mean_stride values apart where that is given, and lie mean_row_at[0] >= 0 such rows
//           further on where that is, which is read when the op runs.
// Effects   Writes mean. Nothing overlaps.
// Numerics  F32; Tolerance::rounding. Row t is bit-identical whatever T is.
struct StreamMean {
    MatrixView<const float> residual;
    MatrixView<const float> block_out;
    MatrixView<const float> block_inject;
    int streams = 0;
    MatrixView<float> mean;
    std::int64_t mean_stride = 0;               // 0: D
    const std::int64_t* mean_row_at = nullptr;  // null: 0

    constexpr std::int64_t stride() const { return mean_stride == 0 ? mean.cols : mean_stride; }
};

// logits[t, :] = weight . hidden[t, :].
//
// Shapes    hidden [T, D]; weight [V, D]; logits [T, V].
// Effects   Writes logits.
// Numerics  F32 sums; Tolerance::projection. Row t is bit-identical whatever T is.
struct OutputHead {
    MatrixView<const float> hidden;
    Weight weight;
    MatrixView<float> logits;
};

// The residual streams that a multi-token-prediction layer starts from.
//
//   e  = fuse[:, 0:D] . N(table[tokens[t]]; norm_embedding)
//   Hn = N(residual[t]; norm_hidden), one statistic over all S*D values
//   out[t, s, :] = fuse[:, D:2D] . Hn[s, :] + e
//
// Source    model.md 2.9 and 4.5; N(v; w) = v / sqrt(mean(v^2) + eps) * w.
// Shapes    tokens [T]; table [V, D]; residual, out [T, S*D] (may be the same memory);
//           fuse [D, 2D]; norm_embedding D; norm_hidden S*D.
// Effects   Writes out, which may be residual.
// Numerics  F32 sums; Tolerance::projection. Row t is bit-identical whatever T is.
struct MtpFuse {
    VectorView<const std::int32_t> tokens;
    Weight table;
    MatrixView<const float> residual;
    Weight fuse;
    Gain norm_embedding = nullptr;
    Gain norm_hidden = nullptr;
    int streams = 0;
    float epsilon = 0;
    MatrixView<float> out;
};

// One history of ShiftHistory.
struct ShiftedHistory {
    const float* from = nullptr;
    MatrixView<float> to;
    MatrixView<const float> window;
};

// Moves histories on by the kept rows of their windows: to = the last n rows of
// (from ++ window[0 .. kept)), n the rows of `to`.
//
// Shapes    from, to [n, C]; window [T, C], the same T in all; 1 <= kept.rows <= T. With kept.told,
//           T = kept.rows and 1 <= *kept.told <= T.
// Effects   Writes each `to`, which is disjoint from its `from` or the same memory. With kept.told
//           it is disjoint, holds what all T rows leave before, and stays as it is where
//           *kept.told = T. Nothing else overlaps. Exact.
struct ShiftHistory {
    std::span<const ShiftedHistory> histories;
    KeptRows kept;
};

}  // namespace strata::op
