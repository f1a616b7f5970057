// Keys and values as caches store them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/instructions.h"
#include "op/cache_row.h"

namespace strata::cpu {

// Puts the [G, d] values of row `at` into a cache.
void store_row(const op::CacheRow& row, const float* from, void* cache, std::int64_t at);

// Head g of rows at[0] .. at[count-1] of a cache, to `to` [count, d] as F32.
void load_heads(Instructions instructions, const op::CacheRow& row, const void* cache,
                const std::int32_t* at, std::int64_t count, std::int64_t g, float* to);

// The values of F16 numbers.
void widen(Instructions instructions, const std::uint16_t* from, std::int64_t n, float* to);

// Head g of a row in q8_0.
void widen_head(Instructions instructions, const op::CacheRow& shape, const std::byte* row,
                std::int64_t g, float* to);

// Head g of row `at` of a cache.
inline void load_head(Instructions instructions, const op::CacheRow& row, const void* cache,
                      std::int64_t at, std::int64_t g, float* to) {
    const std::byte* from = static_cast<const std::byte*>(cache) + at * row.bytes();
    const std::int64_t first = g * row.dim;
    if (row.type == op::CacheType::f16) {
        widen(instructions, reinterpret_cast<const std::uint16_t*>(from) + first, row.dim, to);
    } else if (row.type == op::CacheType::q8_0) {
        widen_head(instructions, row, from, g, to);
    } else {
        std::memcpy(to, from + first * static_cast<std::int64_t>(sizeof(float)),
                    static_cast<std::size_t>(row.dim) * sizeof(float));
    }
}

}  // namespace strata::cpu
