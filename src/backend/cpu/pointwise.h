// Scalar functions and the passes over rows that several ops use.
#pragma once

#include <cmath>
#include <cstdint>

#include "backend/cpu/instructions.h"
#include "backend/cpu/vector.h"
#include "base/exponential.h"

namespace strata::cpu {

// What one exp or a function made of it costs in a vectorized loop, in multiply-adds, for
// Queue::split.
inline constexpr std::int64_t kExpCost = 32;

STRATA_INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

STRATA_INLINE float silu(float x) { return x / (1.0f + exponential(-x)); }

// log(1 + e^x). Past the bound the difference from x is under half a unit in the last place.
inline float softplus(float x) {
    constexpr float kLinear = 20.0f;
    return x > kLinear ? x : std::log1p(exponential(x));
}

// out = x / sqrt(mean(x^2) + epsilon) * gain; out may be x.
void rms_norm(Instructions instructions, const float* x, const float* gain, std::int64_t n,
              float epsilon, float* out);

// x[i] = silu(x[i] * scale)
void silu_row(Instructions instructions, float* x, std::int64_t n, float scale);

// x[i] *= scale * sigmoid(gate[i])
void gate_row(Instructions instructions, float* x, const float* gate, std::int64_t n, float scale);

// x[i] = silu(x[i]) * factor[i]
void silu_product(Instructions instructions, float* x, const float* factor, std::int64_t n);

// Turns x into e^(x * scale - largest) and returns 1 / their sum; n >= 1.
float softmax_weights(Instructions instructions, float* x, std::int64_t n, float scale);

// out[c] = silu(sum over j < taps of weight[c * taps + j] * rows[j][c]), begin <= c < end.
void convolve_silu(Instructions instructions, const float* const* rows, int taps,
                   const float* weight, std::int64_t begin, std::int64_t end, float* out);

}  // namespace strata::cpu
