#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "op/weight.h"

namespace strata::op {

// Gathers table rows: e[t, h*W .. h*W+W-1] = table[rows[t, h]].
//
// Shapes    table [N, W]; rows [T, NH], each in [0, N); e [T, NH*W].
// Effects   Writes e. Values are those of the table's type, exactly.
struct NgramGather {
    Weight table;
    MatrixView<const std::int64_t> rows;
    MatrixView<float> e;
};

// Adds what the n-gram table says of the recent tokens to the residual streams, and may first write
// the output of the block before into them.
//
//   if block_out:  R[t,s,:] += block_inject[t,s] * block_out[t,:]
//   Kj = N(key . e; norm_key) per stream;   val = value . e;   Q = N(R; norm_query) per stream
//   s_j = (K_j . Q_j) / sqrt(D);   g_j = sigmoid(sign(s_j) * sqrt(max(|s_j|, 1e-6))), sign(0) = 0
//   Y[j] = g_j * val;   X = N(Y; norm_conv) per stream
//   Z_t[ch] = silu(sum over j < K of conv[ch][j] * X_{t - dilation*(K-1-j)}[ch])
//   R += Y + Z
//
// N(v; w) = v / sqrt(mean(v^2) + eps) * w over the D values of each stream.
//
// Source    model.md 2.8; gains stored as 1 + w.
// Shapes    e [T, DE]; residual [T, S*D]; block_out [T, D]; block_inject
//           [T, S]; key [S*D, DE]; value [D, DE]; norms S*D; conv S*D rows of K.
// History   [(K-1)*dilation, S*D]: the last rows of X, oldest first, zeros before the start.
//           history_to is written whole (after T rows) and may be history_from. trace [T, S*D],
//           where given, gets the rows X.
// Effects   Writes residual, history_to, trace.
// Numerics  F32 sums; Tolerance::projection. Row t is bit-identical whatever T is.
struct NgramMix {
    MatrixView<const float> e;
    MatrixView<float> residual;
    MatrixView<const float> block_out;
    MatrixView<const float> block_inject;
    Weight key;
    Weight value;
    Gain norm_key = nullptr;
    Gain norm_query = nullptr;
    Gain norm_conv = nullptr;
    const float* conv = nullptr;
    int kernel = 0;
    int dilation = 0;
    int streams = 0;
    float epsilon = 0;
    const float* history_from = nullptr;
    float* history_to = nullptr;
    MatrixView<float> trace;
};

}  // namespace strata::op
