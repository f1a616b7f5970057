#pragma once

#include <cstdint>
#include <span>

#include "device/tensor.h"
#include "op/kept_rows.h"
#include "op/weight.h"

namespace strata::op {

// Which key head serves value head h of Hv, with Hk key heads.
enum class HeadOrder : std::uint8_t {
    grouped,  // h div (Hv / Hk): the order of public checkpoints
    tiled,    // h mod Hk: the order of GGUF files
};

// How the recurrence is evaluated; the two agree up to rounding.
enum class DeltaForm : std::uint8_t {
    recurrent,  // one row after another: row t rounds as it would alone
    chunked,    // kDeltaChunk rows at a time through triangular solves
};
inline constexpr int kDeltaChunk = 64;

// What one sequence keeps of one gated delta net.
struct DeltaState {
    float* memory = nullptr;   // [Hv, dk, dv]
    float* history = nullptr;  // [K-1, C]: the last rows of u, oldest first; zeros before the start
};

struct DeltaShape {
    int key_heads = 0;    // Hk
    int value_heads = 0;  // Hv, a multiple of Hk
    int key_dim = 0;      // dk
    int value_dim = 0;    // dv
    int kernel = 0;       // K

    // C: queries, keys, then values.
    constexpr int channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
    constexpr int value_width() const { return value_heads * value_dim; }
};

// What DeltaReplay needs to advance a state by fewer rows than a window held.
struct DeltaTrace {
    MatrixView<float> projected;  // [T, C]: u
    MatrixView<float> convolved;  // [T, C]: c
    MatrixView<float> beta;       // [T, Hv]
    MatrixView<float> decay;      // [T, Hv]: alpha

    // Whether it is of one window of a net of this shape.
    constexpr bool fits(const DeltaShape& shape) const {
        const std::int64_t rows = projected.rows;
        return projected.cols == shape.channels() && convolved.rows == rows &&
               convolved.cols == shape.channels() && beta.rows == rows &&
               beta.cols == shape.value_heads && decay.rows == rows &&
               decay.cols == shape.value_heads;
    }
    constexpr DeltaTrace first_rows(std::int64_t n) const {
        return {projected.first_rows(n), convolved.first_rows(n), beta.first_rows(n),
                decay.first_rows(n)};
    }
};

// A gated delta net over T rows that follow the state `from`.
//
//   u = qkv . x   (C values: q [Hk, dk] | k [Hk, dk] | v [Hv, dv])
//   z = gate . x;   b = beta . x;   a = alpha . x
//   c_t[ch] = silu(sum over j < K of conv[ch][j] * u_{t-K+1+j}[ch])
//             with u before the window from the history
//   q^ = q / sqrt(sum q^2 + 1e-6) / sqrt(dk);   k^ = k / sqrt(sum k^2 + 1e-6)
//             per key head, from c
//   beta_h = sigmoid(b_h);   alpha_h = exp(decay_rate_h * softplus(a_h + decay_bias_h))
//   per value head h with key head g(h), memory M [dk, dv]:
//     M <- alpha M;   d = beta (v - M^T k^);   M <- M + k^ d^T;   o = M^T q^
//   n_h = o_h / sqrt(mean(o_h^2) + eps) * norm * sigmoid(z_h)
//   y = out . concat over h of n_h
//
// Source    model.md 2.5; decay_rate = -exp(A_log).
// Shapes    x [T, D]; qkv [C, D]; gate [Hv*dv, D]; beta_weight, alpha_weight [Hv, D]; conv C rows
//           of K F32 values, the last multiplying the current row; decay_rate, decay_bias Hv;
//           norm dv; out [D, Hv*dv]; y [T, D].
// Effects   Writes y, the whole state `to` (after all T rows) and, where it is given, the trace.
//           `from` and `to` are disjoint or the same memory; nothing else overlaps.
// Numerics  F32 sums, F32 state; Tolerance::recurrence. Recurrent form: row t and the state after
//           it are bit-identical whatever T is. Chunked form: chunks begin with row 0, so calls of
//           whole chunks, one after another, are bit-identical to one call; a kernel without this
//           form for a shape or a device takes the recurrent one.
struct DeltaNet {
    MatrixView<const float> x;
    Weight qkv;
    Weight gate;
    Weight beta_weight;
    Weight alpha_weight;
    const float* conv = nullptr;
    const float* decay_rate = nullptr;
    const float* decay_bias = nullptr;
    Gain norm = nullptr;
    Weight out;
    DeltaShape shape;
    HeadOrder order = HeadOrder::tiled;
    DeltaForm form = DeltaForm::recurrent;
    float epsilon = 0;
    DeltaState from;
    DeltaState to;
    DeltaTrace trace;
    MatrixView<float> y;
};

// One layer of DeltaReplay.
struct ReplayedLayer {
    DeltaTrace trace;  // of a window of T rows that followed `from`
    DeltaState from;
    DeltaState to;
};

// to = the state that DeltaNet in recurrent form leaves after exactly the kept rows, of several
// layers, which share nothing.
//
// Shapes    trace of T rows, the same T in all; 1 <= kept.rows <= T. With kept.told, T = kept.rows
//           and 1 <= *kept.told <= T.
// Effects   Writes each `to`, which is disjoint from its `from` or the same memory. With kept.told
//           it is disjoint, holds the state after all T rows before, and stays as it is where
//           *kept.told = T.
// Numerics  Bit for bit where the memories of `from` and `to` lie as those of DeltaNet did: both
//           from multiples of 16 bytes on, or not. Else Tolerance::recurrence.
struct DeltaReplay {
    std::span<const ReplayedLayer> layers;
    KeptRows kept;
    DeltaShape shape;
    HeadOrder order = HeadOrder::tiled;
};

}  // namespace strata::op
