// What the AVX-512 kernels share. Each function carries the instruction set itself, so that nothing
// else of the build may use it.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define STRATA_AVX512 \
    [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,fma")]]
#define STRATA_AVX512_INLINE STRATA_AVX512 [[gnu::always_inline]] inline

namespace strata::cpu {

// Asks for kBytes of each of kPanelRows rows, which lie one after another, or for the first kAsked
// bytes; returns what follows.
template <int kBytes, int kAsked = 16 * kBytes>
STRATA_AVX512_INLINE const std::byte* prefetch(const std::byte* from) {
#pragma GCC unroll 40
    for (int at = 0; at < kAsked; at += 64) __builtin_prefetch(from + at, 0, 2);
    return from + kAsked;
}

// Byte offsets of kPanelRows rows.
STRATA_AVX512_INLINE __m512i row_offsets(std::int64_t stride) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_mullo_epi32(lane, _mm512_set1_epi32(static_cast<int>(stride)));
}

// Lane r: the four bytes at row r's offset.
STRATA_AVX512_INLINE __m512i gather_rows(const std::byte* from, __m512i offsets) {
    return _mm512_i32gather_epi32(offsets, from, 1);
}

// Lane r: the f16 in the low half of lane r.
STRATA_AVX512_INLINE __m512 widen_halves(__m512i lanes) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(lanes));
}

// The rows' 16 bytes at `from`: to[d] lane r has bytes 4 d .. 4 d + 3 of row r.
STRATA_AVX512_INLINE void load_columns(const std::byte* from, std::int64_t stride, __m512i to[4]) {
    __m512i quarter[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
        const std::byte* row = from + r * stride;
        const auto* at = reinterpret_cast<const __m128i*>(row);
        __m512i all = _mm512_castsi128_si512(_mm_loadu_si128(at));
        at = reinterpret_cast<const __m128i*>(row + 4 * stride);
        all = _mm512_inserti32x4(all, _mm_loadu_si128(at), 1);
        at = reinterpret_cast<const __m128i*>(row + 8 * stride);
        all = _mm512_inserti32x4(all, _mm_loadu_si128(at), 2);
        at = reinterpret_cast<const __m128i*>(row + 12 * stride);
        quarter[r] = _mm512_inserti32x4(all, _mm_loadu_si128(at), 3);
    }
    const __m512i low0 = _mm512_unpacklo_epi32(quarter[0], quarter[1]);
    const __m512i high0 = _mm512_unpackhi_epi32(quarter[0], quarter[1]);
    const __m512i low1 = _mm512_unpacklo_epi32(quarter[2], quarter[3]);
    const __m512i high1 = _mm512_unpackhi_epi32(quarter[2], quarter[3]);
    to[0] = _mm512_unpacklo_epi64(low0, low1);
    to[1] = _mm512_unpackhi_epi64(low0, low1);
    to[2] = _mm512_unpacklo_epi64(high0, high1);
    to[3] = _mm512_unpackhi_epi64(high0, high1);
}

}  // namespace strata::cpu

#endif
