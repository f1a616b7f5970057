#include "quant/fit.h"

#include <algorithm>
#include <limits>

#include "quant/half.h"

namespace strata::quant {
namespace {

constexpr float kHalfMax = 65504.0f;
// What the least important value keeps of the mean weight, so that no value is left to chance.
constexpr float kWeightFloor = 1e-3f;

void prepare_weights(const float* importance, std::span<float> w) {
    double sum = 0.0;
    for (std::size_t i = 0; i < w.size(); ++i) {
        const float weight = importance == nullptr ? 1.0f : importance[i];
        w[i] = weight > 0.0f && std::isfinite(weight) ? weight : 0.0f;
        sum += static_cast<double>(w[i]);
    }
    if (importance == nullptr) return;
    const double mean = sum / static_cast<double>(w.size());
    for (float& weight : w) {
        weight = mean > 0.0 ? static_cast<float>(static_cast<double>(weight) / mean) : 1.0f;
        weight = std::max(weight, kWeightFloor);
    }
}

struct AffineFit {
    Affine affine;
    float error;
};

// Least squares of scale and base for the codes that a first guess of them gives.
AffineFit refit(std::span<const float> x, std::span<const float> w, int levels, bool below_zero,
                const Affine& guess) {
    const float inverse = inverse_of(guess.scale);
    float sum_w = 0, sum_x = 0, sum_q = 0, sum_xq = 0, sum_qq = 0, sum_xx = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const auto q = static_cast<float>(nearest_in((x[i] - guess.base) * inverse, 0, levels));
        sum_w += w[i];
        sum_x += w[i] * x[i];
        sum_q += w[i] * q;
        sum_xq += w[i] * x[i] * q;
        sum_qq += w[i] * q * q;
        sum_xx += w[i] * x[i] * x[i];
    }
    const float spread = sum_w * sum_qq - sum_q * sum_q;
    Affine fit;
    if (spread > 0.0f) {
        fit.scale = (sum_w * sum_xq - sum_x * sum_q) / spread;
        fit.base = (sum_qq * sum_x - sum_q * sum_xq) / spread;
    } else {
        fit.base = sum_x / sum_w;
    }
    if (below_zero && fit.base > 0.0f) {
        fit.base = 0.0f;
        fit.scale = sum_qq > 0.0f ? sum_xq / sum_qq : 0.0f;
    }
    if (fit.scale < 0.0f) return {guess, std::numeric_limits<float>::infinity()};
    const float error = sum_xx + fit.scale * (fit.scale * sum_qq - 2.0f * sum_xq) +
                        fit.base * (fit.base * sum_w - 2.0f * sum_x + 2.0f * fit.scale * sum_q);
    return {fit, error};
}

}  // namespace

float prepare(const float* in, const float* importance, std::span<float> x, std::span<float> w) {
    prepare_weights(importance, w);
    float largest = 0.0f;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const float magnitude = std::fabs(in[i]);
        if (magnitude > largest || !std::isfinite(magnitude)) largest = magnitude;
        if (!std::isfinite(largest)) break;
    }
    const bool usable = largest > 0.0f && std::isfinite(largest);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = usable ? in[i] / largest : 0.0f;
    return largest;
}

std::uint16_t stored_scale(float scale, float largest) {
    if (!std::isfinite(largest)) return f32_to_f16(std::numeric_limits<float>::quiet_NaN());
    return f32_to_f16(std::clamp(scale * largest, -kHalfMax, kHalfMax));
}

float effective_scale(std::uint16_t half, float largest) {
    const float scale = f16_to_f32(half) / largest;
    return std::isfinite(scale) ? scale : 0.0f;
}

Affine fit_affine(std::span<const float> x, std::span<const float> w, int levels, bool below_zero) {
    constexpr int kSteps = 9;         // tries of how many codes the range of the values spans,
    constexpr float kStep = 0.25f;    // a step apart,
    constexpr float kFirst = -1.25f;  // from the number of levels plus this
    const auto [low, high] = std::ranges::minmax(x);
    const float base = below_zero ? std::min(low, 0.0f) : low;
    Affine best{0.0f, base};
    if (!(high > base)) return best;
    float best_error = std::numeric_limits<float>::infinity();
    const auto attempt = [&](const Affine& guess) {
        const AffineFit fit = refit(x, w, levels, below_zero, guess);
        if (!(fit.error < best_error)) return;
        best = fit.affine;
        best_error = fit.error;
    };
    for (int i = 0; i < kSteps; ++i) {
        const float codes = static_cast<float>(levels) + kFirst + kStep * static_cast<float>(i);
        attempt({(high - base) / codes, base});
    }
    for (int i = 0; i < 2; ++i) attempt(best);
    return best;
}

}  // namespace strata::quant
