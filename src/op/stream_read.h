#pragma once

#include "device/tensor.h"
#include "op/weight.h"

namespace strata::op {

// Reads the S residual streams into one vector (hyper-connections), and may first write the output
// of the block before into them.
//
//   if block_out:  R[t,s,:] += block_inject[t,s] * block_out[t,:]
//   X[t,s,:] = R[t,s,:] / sqrt(mean(R[t,s,:]^2) + eps) * norm[s,:]
//   l[t,:]   = silu((down . X[t]) / S)                          X[t] taken as one row of S*D
//   G[t]     = sigmoid(up . l[t])                               S*D values
//   x[t,:]   = (1/S) * sum over s of G[t,s,:] * X[t,s,:]
//   inject[t,s] = 2 * sigmoid((inject_weight[s] . X[t]) / S)    where inject_weight is given
//
// Source    model.md 2.3, with gains stored as 1 + w.
// Shapes    residual [T, S*D] stream-major; block_out [T, D]; block_inject [T, S]; norm S*D;
//           down [L, S*D]; up [S*D, L]; inject_weight [S, S*D]; x [T, D]; inject [T, S].
// Effects   Writes x, inject where inject_weight is given, and residual where block_out is given.
//           block_inject may be the same memory as inject; no other outputs overlap inputs.
// Numerics  F32 sums; Tolerance::projection. Row t depends on row t alone, bit for bit.
//           down and inject_weight may multiply R * norm, with the rest of X a factor of each
//           stream's sum: what op/weight.h rounds is R * norm then, which may have the code beside
//           that of X near a tie, is 0 where it is too small for an inverse, and where it is past
//           F32 makes the row NaN.
struct StreamRead {
    MatrixView<float> residual;
    MatrixView<const float> block_out;
    MatrixView<const float> block_inject;
    Gain norm = nullptr;
    Weight down;
    Weight up;
    Weight inject_weight;
    int streams = 0;
    float epsilon = 0;
    MatrixView<float> x;
    MatrixView<float> inject;
};

}  // namespace strata::op
