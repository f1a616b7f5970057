#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "op/dflash_context.h"
#include "op/weight.h"

namespace strata::op {

// The convolutions before and after one sublayer.
struct DflashConv {
    const float* base = nullptr;  // [2, taps, D]
    Weight projection;            // [2 * taps * (D / group), D]
};

struct DflashLayer {
    Gain attention_norm = nullptr;
    DflashConv attention_conv;
    Weight query;
    Weight key;
    Weight value;
    Weight out;
    Gain query_norm = nullptr;
    Gain key_norm = nullptr;
    DflashCells cells;
    std::int64_t window = 0;  // positions that a row sees up to itself; 0: all
    Gain feed_norm = nullptr;
    DflashConv feed_conv;
    Weight gate;
    Weight up;
    Weight down;
};

// The rows of one block of a draft: row i stands at position first + i.
//
//   h_i = table[tokens[i]]
//   each layer:  h += around(h; attention_norm, attention_conv, attend)
//                h += around(h; feed_norm, feed_conv, feed)
//   hidden_i = rms_norm(h_i; norm)
//
//   around(h; norm, conv, f) = post where
//     a_i = rms_norm(h_i; norm);   delta_i = projection . a_i
//     C(side, x)_i[ch] = sum over t < taps, t <= i, of (base[side][t][ch]
//                        + delta_i[(side * taps + t) * (D / group) + ch div group]) * x_{i-t}[ch]
//     post = C(1, f(C(0, a)))
//   attend(u)_i: q_h = rope(rms_norm((query . u_i)_h; query_norm)), k_g likewise with key_norm,
//     v = value . u_i; o_h = sum over what row i sees of softmax(q_h . k / sqrt(d)) v, with
//     k, v of head h div (H / G); the result is out . concat over h of o_h
//     row i sees every cell of a position p < first with first + i - p < window, and every block
//     row j with |i - j| < window, later rows included (without a window: all)
//   feed(u)_i = down . (silu(gate . u_i) * (up . u_i))
//
// Source    The DFlash2 draft model; gains multiply as they are.
// Shapes    tokens [B]; table [V, D]; norms D; query [H*d, D]; key, value [G*d, D]; out [D, H*d];
//           query_norm, key_norm d; gate, up [I, D]; down [D, I]; hidden [B, D]. group divides D.
// Effects   Writes hidden. Cells are read alone: the block leaves none.
// Numerics  F32 residual and sums: the residual can exceed what F16 holds. Tolerance::attention for
//           one layer. Keys and values that are no numbers may show in any row, also in one that
//           does not see them.
struct DflashBlock {
    VectorView<const std::int32_t> tokens;
    std::int64_t first = 0;
    const std::int64_t* first_at = nullptr;  // as SparseAttention's
    Weight table;
    VectorView<const DflashLayer> layers;
    Gain norm = nullptr;
    const double* inverse_frequency = nullptr;
    DflashShape shape;
    int taps = 0;
    int group = 0;
    float epsilon = 0;
    MatrixView<float> hidden;
};

}  // namespace strata::op
