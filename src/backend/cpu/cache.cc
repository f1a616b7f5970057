// Bounded by the loads of the cache's rows.
#include "backend/cpu/cache.h"

#include <bit>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace strata::cpu {
namespace {

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

#endif

}  // namespace

void widen(Instructions instructions, const std::uint16_t* from, std::int64_t n, float* to) {
#if defined(__x86_64__)
    if (instructions == Instructions::avx512) return widen_avx512(from, n, to);
    if (instructions == Instructions::avx2) return widen_avx2(from, n, to);
#endif
    widen_plain(from, n, to);
}

}  // namespace strata::cpu
