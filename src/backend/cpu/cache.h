// Keys and values as caches store them, and the softmax over their scores.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "op/sparse_attention.h"
#include "quant/half.h"

namespace strata::cpu {

// Rounds `n` values to the cache's type, at element `at` of the cache.
inline void store_cache(const float* from, std::int64_t n, op::CacheType type, void* cache,
                        std::int64_t at) {
    if (type == op::CacheType::f32) {
        std::memcpy(static_cast<float*>(cache) + at, from,
                    static_cast<std::size_t>(n) * sizeof(float));
        return;
    }
    auto* to = static_cast<std::uint16_t*>(cache) + at;
    for (std::int64_t i = 0; i < n; ++i) to[i] = quant::f32_to_f16(from[i]);
}

// Without branches, so that it vectorizes: the product with 2^112 moves the exponent's bias, and
// makes normal numbers of subnormal ones.
inline void widen(const std::uint16_t* from, std::int64_t n, float* to) {
    for (std::int64_t i = 0; i < n; ++i) {
        const std::uint32_t half = from[i];
        const std::uint32_t special = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
        const float magnitude = std::bit_cast<float>((half & 0x7fffu) << 13) * 0x1p112f;
        to[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | special |
                                     (half & 0x8000u) << 16);
    }
}

// `n` values from element `at` of a cache on.
inline void load_cache(const void* cache, op::CacheType type, std::int64_t at, std::int64_t n,
                       float* to) {
    if (type == op::CacheType::f16) {
        widen(static_cast<const std::uint16_t*>(cache) + at, n, to);
    } else {
        std::memcpy(to, static_cast<const float*>(cache) + at,
                    static_cast<std::size_t>(n) * sizeof(float));
    }
}

// Turns scores into e^(score * scale - largest) and returns 1 / their sum.
inline float exponentials(float* scores, std::int64_t n, float scale) {
    for (std::int64_t i = 0; i < n; ++i) scores[i] *= scale;
    const float largest = *std::max_element(scores, scores + n);
    float sum = 0.0f;
    for (std::int64_t i = 0; i < n; ++i) {
        scores[i] = std::exp(scores[i] - largest);
        sum += scores[i];
    }
    return 1.0f / sum;
}

}  // namespace strata::cpu
