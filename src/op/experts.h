#pragma once

#include <cstdint>

#include "device/tensor.h"
#include "op/weight.h"

namespace strata::op {

inline constexpr int kExpertsMax = 4096;
inline constexpr int kExpertsActiveMax = 64;

// Where each expert's matrices lie: expert e's are gate_at[e], up_at[e] [F, D] and down_at[e]
// [D, F] in the given types. Tables of E addresses, and of E factors (op/weight.h) where there are
// any, in memory that the op's device reads.
struct ExpertTable {
    const std::byte* const* gate_at = nullptr;
    const std::byte* const* up_at = nullptr;
    const std::byte* const* down_at = nullptr;
    quant::Type gate_type = quant::Type::f32;
    quant::Type up_type = quant::Type::f32;
    quant::Type down_type = quant::Type::f32;
    std::int64_t count = 0;               // E
    std::int64_t hidden = 0;              // F
    const float* gate_factors = nullptr;  // null: none
    const float* up_factors = nullptr;
    const float* down_factors = nullptr;
};

// The k routed experts of every row and the shared one.
//
//   l = router . x;   p = softmax(l) over all E
//   A = the k experts of largest l (equal: the lower e);   w_e = p_e / sum of p over A
//   y = sum over e in A, largest first, of w_e * down_e . (silu(gate_e . x) * (up_e . x))
//     + sigmoid(shared_scale . x) * shared_down . (silu(shared_gate . x) * (shared_up . x))
//
// Where renormalize is false, w_e = p_e.
//
// Source    model.md 2.7.
// Shapes    x, y [T, D]; router [E, D]; shared_scale [1, D]; shared_gate, shared_up [FS, D];
//           shared_down [D, FS]; chosen [T, k] and share [T, k] (each may be empty) get A and w.
//           1 <= k <= min(E, kExpertsActiveMax); E <= kExpertsMax.
// Effects   Writes y, chosen, share. Nothing overlaps.
// Numerics  router . x and shared_scale . x are exact (op/weight.h), F32 sums;
//           Tolerance::projection. Row t is bit-identical whatever T
//           is. With NaN logits the choice stays k different experts in [0, E).
struct Experts {
    MatrixView<const float> x;
    Weight router;
    ExpertTable experts;
    Weight shared_scale;
    Weight shared_gate;
    Weight shared_up;
    Weight shared_down;
    int active = 0;  // k
    bool renormalize = true;
    MatrixView<float> y;
    MatrixView<std::int32_t> chosen;
    MatrixView<float> share;
};

}  // namespace strata::op
