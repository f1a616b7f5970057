// Rotary positions: model.md 2.6.
#pragma once

#include <cmath>
#include <cstdint>

namespace strata::cpu {

// The turns of one position, `pairs` of each.
inline void set_turns(std::int64_t position, const double* inverse_frequency, std::int64_t pairs,
                      float* cosine, float* sine) {
    for (std::int64_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(position) * inverse_frequency[i];
        cosine[i] = static_cast<float>(std::cos(angle));
        sine[i] = static_cast<float>(std::sin(angle));
    }
}

// Turns (x[i], x[i + pairs]) for every pair.
inline void turn(float* x, const float* cosine, const float* sine, std::int64_t pairs) {
    for (std::int64_t i = 0; i < pairs; ++i) {
        const float a = x[i];
        const float b = x[i + pairs];
        x[i] = a * cosine[i] - b * sine[i];
        x[i + pairs] = b * cosine[i] + a * sine[i];
    }
}

}  // namespace strata::cpu
