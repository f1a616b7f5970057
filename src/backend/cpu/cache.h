// Keys and values as caches store them.
#pragma once

#include <cstdint>
#include <cstring>

#include "backend/cpu/instructions.h"
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

// The values of F16 numbers.
void widen(Instructions instructions, const std::uint16_t* from, std::int64_t n, float* to);

// `n` values from element `at` of a cache on.
inline void load_cache(Instructions instructions, const void* cache, op::CacheType type,
                       std::int64_t at, std::int64_t n, float* to) {
    if (type == op::CacheType::f16) {
        widen(instructions, static_cast<const std::uint16_t*>(cache) + at, n, to);
    } else {
        std::memcpy(to, static_cast<const float*>(cache) + at,
                    static_cast<std::size_t>(n) * sizeof(float));
    }
}

}  // namespace strata::cpu
