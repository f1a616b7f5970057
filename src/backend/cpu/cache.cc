// Bounded by the loads of the cache's rows.
#include "backend/cpu/cache.h"

#include <algorithm>
#include <bit>
#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "backend/cpu/vector.h"
#include "quant/half.h"

namespace strata::cpu {
namespace {

constexpr std::uint32_t kInfinityBits = 0x7f800000u;
constexpr std::uint16_t kHalfNan = 0x7e00u;

// The bytes of a group, and its scale as F16.
std::uint16_t round_group(const float* from, std::int64_t n, std::int8_t* to) {
    std::uint32_t bits = 0;  // of magnitudes, which they order
    for (std::int64_t i = 0; i < n; ++i) {
        bits = std::max(bits, std::bit_cast<std::uint32_t>(from[i]) & 0x7fffffffu);
    }
    const float most = std::bit_cast<float>(bits);
    const float factor = 127.0f / most;
    if (bits >= kInfinityBits || !std::isfinite(factor)) {
        std::fill_n(to, n, std::int8_t{0});
        return bits >= kInfinityBits ? kHalfNan : std::uint16_t{0};
    }
    constexpr float kRounder = 0x1.8p23f;  // has no fraction bits left, nor after adding 127
    for (std::int64_t i = 0; i < n; ++i) {
        to[i] = static_cast<std::int8_t>((from[i] * factor + kRounder) - kRounder);
    }
    return quant::f32_to_f16(most / 127.0f);
}

void store_rounded(const op::CacheRow& shape, const float* from, std::byte* row) {
    auto* values = reinterpret_cast<std::int8_t*>(row);
    std::fill(row + shape.heads * shape.dim, row + shape.bytes(), std::byte{0});
    std::byte* scale_at = row + shape.scales_at();
    for (std::int64_t g = 0; g < shape.heads; ++g) {
        for (std::int64_t i = 0; i < shape.dim; i += op::kCacheGroup) {
            const std::int64_t at = g * shape.dim + i;
            const std::uint16_t scale =
                round_group(from + at, std::min(op::kCacheGroup, shape.dim - i), values + at);
            std::memcpy(scale_at, &scale, sizeof(scale));
            scale_at += sizeof(scale);
        }
    }
}

// A head of bytes and its scales.
struct WidenHead {
    template <typename V>
    STRATA_INLINE static void run(const std::int8_t* from, const std::uint16_t* scales,
                                  std::int64_t n, float* to) {
        std::int64_t i = 0;
        for (; i + op::kCacheGroup <= n; i += op::kCacheGroup) {
            const float scale = quant::f16_to_f32(*scales++);
            for (std::int64_t j = 0; j < op::kCacheGroup; ++j) {
                to[i + j] = scale * static_cast<float>(from[i + j]);
            }
        }
        if (i == n) return;
        const float scale = quant::f16_to_f32(*scales);
        for (; i < n; ++i) to[i] = scale * static_cast<float>(from[i]);
    }
};

// Without branches, so that it vectorizes: the product with 2^112 moves the exponent's bias, and
// makes normal numbers of subnormal ones.
void widen_plain(const std::uint16_t* from, std::int64_t n, float* to) {
    for (std::int64_t i = 0; i < n; ++i) {
        const std::uint32_t half = from[i];
        const std::uint32_t special = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
        const float magnitude = std::bit_cast<float>((half & 0x7fffu) << 13) * 0x1p112f;
        to[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | special |
                                     (half & 0x8000u) << 16);
    }
}

#if defined(__x86_64__)

[[gnu::target("avx2,f16c")]] void widen_avx2(const std::uint16_t* from, std::int64_t n, float* to) {
    constexpr std::int64_t kStep = 8;
    std::int64_t i = 0;
    for (; i + kStep <= n; i += kStep) {
        const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
    }
    widen_plain(from + i, n - i, to + i);
}

[[gnu::target("avx512f")]] void widen_avx512(const std::uint16_t* from, std::int64_t n, float* to) {
    constexpr std::int64_t kStep = 16;
    std::int64_t i = 0;
    for (; i + kStep <= n; i += kStep) {
        const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
        _mm512_storeu_ps(to + i, _mm512_maskz_cvtph_ps(0xffff, half));
    }
    widen_plain(from + i, n - i, to + i);
}

// A call a tile of rows: one a row would take longer than a short row.
[[gnu::target("avx512f")]] void widen_rows_avx512(const std::uint16_t* from, std::int64_t apart,
                                                  const std::int32_t* at, std::int64_t count,
                                                  std::int64_t n, float* to) {
    for (std::int64_t i = 0; i < count; ++i, to += n) {
        const std::uint16_t* row = from + at[i] * apart;
        std::int64_t c = 0;
        for (; c + 16 <= n; c += 16) {
            const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + c));
            _mm512_storeu_ps(to + c, _mm512_maskz_cvtph_ps(0xffff, half));
        }
        if (c < n) widen_plain(row + c, n - c, to + c);
    }
}

#endif

}  // namespace

void load_heads(Instructions instructions, const op::CacheRow& row, const void* cache,
                const std::int32_t* at, std::int64_t count, std::int64_t g, float* to) {
#if defined(__x86_64__)
    if (instructions == Instructions::avx512 && row.type == op::CacheType::f16) {
        const auto* from = static_cast<const std::uint16_t*>(cache) + g * row.dim;
        widen_rows_avx512(from, row.heads * row.dim, at, count, row.dim, to);
        return;
    }
#endif
    for (std::int64_t i = 0; i < count; ++i) {
        load_head(instructions, row, cache, at[i], g, to + i * row.dim);
    }
}

void store_row(const op::CacheRow& row, const float* from, void* cache, std::int64_t at) {
    std::byte* to = static_cast<std::byte*>(cache) + at * row.bytes();
    if (row.type == op::CacheType::q8_0) return store_rounded(row, from, to);
    const std::int64_t n = row.heads * row.dim;
    if (row.type == op::CacheType::f32) {
        std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
        return;
    }
    auto* halves = reinterpret_cast<std::uint16_t*>(to);
    for (std::int64_t i = 0; i < n; ++i) halves[i] = quant::f32_to_f16(from[i]);
}

void widen_head(Instructions instructions, const op::CacheRow& shape, const std::byte* row,
                std::int64_t g, float* to) {
    const auto* values = reinterpret_cast<const std::int8_t*>(row) + g * shape.dim;
    const auto* scales =
        reinterpret_cast<const std::uint16_t*>(row + shape.scales_at()) + g * shape.groups();
    run_kernel<WidenHead>(instructions, values, scales, shape.dim, to);
}

void widen(Instructions instructions, const std::uint16_t* from, std::int64_t n, float* to) {
#if defined(__x86_64__)
    if (instructions == Instructions::avx512) return widen_avx512(from, n, to);
    if (instructions == Instructions::avx2) return widen_avx2(from, n, to);
#endif
    widen_plain(from, n, to);
}

}  // namespace strata::cpu
