// How caches of attention hold the keys or values of one position.
#pragma once

#include <cstdint>

namespace strata::op {

enum class CacheType : std::uint8_t { f16, f32, q8_0 };

// Neighbours of a head that share a scale in q8_0; the last group of a head may be shorter.
inline constexpr std::int64_t kCacheGroup = 32;

// A row of [G, d] values, head after head.
//
//   f32, f16   the values; in f16 rounded to the nearest, ties to even
//   q8_0       G*d signed bytes q; from the next even byte on the scales of G*ceil(d / 32) groups
//              in F16; zeros up to a multiple of 16 bytes. With m the largest magnitude of a group,
//              in F32 and each operation rounded:
//                s = m / 127, rounded to F16;   q_i = x_i * (127 / m), to the nearest, ties to even
//              and s * q_i is read. Where 127 / m is not finite: s = 0 and q = 0. Where x has a NaN
//              or an infinity: s = NaN and q = 0.
//
// Source    The block type Q8_0, its parts moved apart so that they lie aligned.
struct CacheRow {
    static constexpr std::int64_t kAlign = 16;  // of rows in q8_0

    CacheType type = CacheType::f16;
    std::int64_t heads = 0;  // G
    std::int64_t dim = 0;    // d

    // Of a head.
    constexpr std::int64_t groups() const { return (dim + kCacheGroup - 1) / kCacheGroup; }
    // Byte where the scales of q8_0 begin.
    constexpr std::int64_t scales_at() const { return (heads * dim + 1) / 2 * 2; }
    // Byte after them.
    constexpr std::int64_t scales_end() const { return scales_at() + 2 * heads * groups(); }
    constexpr std::int64_t bytes() const {
        if (type == CacheType::q8_0) return (scales_end() + kAlign - 1) / kAlign * kAlign;
        return heads * dim * (type == CacheType::f16 ? 2 : 4);
    }
};

}  // namespace strata::op
