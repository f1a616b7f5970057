// The scalar functions and norms that several ops use.
#pragma once

#include <cmath>
#include <cstdint>

#include "backend/cpu/product.h"

namespace strata::cpu {

// What one exp costs, in multiply-adds, for Queue::split.
inline constexpr std::int64_t kExpCost = 16;

inline float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

inline float silu(float x) { return x / (1.0f + std::exp(-x)); }

// log(1 + e^x). Past the bound the difference from x is under half a unit in the last place.
inline float softplus(float x) {
    constexpr float kLinear = 20.0f;
    return x > kLinear ? x : std::log1p(std::exp(x));
}

// 1 / sqrt(mean(x^2) + epsilon)
inline float inverse_rms(const float* x, std::int64_t n, float epsilon) {
    return 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + epsilon);
}

// out = x / sqrt(mean(x^2) + epsilon) * gain; out may be x.
inline void rms_norm(const float* x, const float* gain, std::int64_t n, float epsilon, float* out) {
    const float scale = inverse_rms(x, n, epsilon);
    for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * gain[i];
}

}  // namespace strata::cpu
