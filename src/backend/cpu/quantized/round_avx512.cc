// The rounding of rounded.cc, bit for bit.
#include <limits>

#include "backend/cpu/quantized/avx512.h"
#include "backend/cpu/quantized/rounded.h"

#if defined(__x86_64__)

namespace strata::cpu {
namespace {

constexpr float kLargestCode = 127.0f;

struct Scales {
    float scale;
    float inverse;  // 0 where all codes are
};

STRATA_AVX512_INLINE Scales find_scales(const float* x, int n) {
    const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
    __m512i largest = _mm512_setzero_si512();
    for (int i = 0; i < n; i += 16) {
        const __m512i bits = _mm512_castps_si512(_mm512_loadu_ps(x + i));
        largest = _mm512_max_epi32(largest, _mm512_and_si512(bits, magnitude_bits));
    }
    const int bits = _mm512_reduce_max_epi32(largest);
    constexpr int kInfinity = 0x7f800000;
    if (bits >= kInfinity) return {std::numeric_limits<float>::quiet_NaN(), 0.0f};
    const float magnitude = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
    const float inverse = kLargestCode / magnitude;
    if (!(inverse <= std::numeric_limits<float>::max())) return {0.0f, 0.0f};
    return {magnitude / kLargestCode, inverse};
}

// Sums of the lanes' quarters, each quarter's in all of its four lanes.
STRATA_AVX512_INLINE __m512i sum_quarters(__m512i lanes) {
    lanes = _mm512_add_epi32(lanes, _mm512_shuffle_epi32(lanes, _MM_PERM_BADC));
    return _mm512_add_epi32(lanes, _mm512_shuffle_epi32(lanes, _MM_PERM_CDAB));
}

// 32 values: their codes, and the sums of both halves.
STRATA_AVX512_INLINE void round_32(const float* x, float inverse, bool transposed,
                                   std::int8_t* codes, int sums[2]) {
    const __m512 factor = _mm512_set1_ps(inverse);
    __m256i all;
    {
        const __m512i first = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), factor));
        const __m512i second = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16), factor));
        all = _mm256_set_m128i(_mm512_cvtepi32_epi8(second), _mm512_cvtepi32_epi8(first));
    }
    const __m256i fours = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), all);
    const __m512i halves = sum_quarters(_mm512_castsi256_si512(fours));
    sums[0] = _mm_cvtsi128_si32(_mm512_castsi512_si128(halves));
    sums[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(_mm512_castsi512_si256(halves), 1));
    if (transposed) {
        const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        all = _mm256_shuffle_epi8(all, _mm256_broadcastsi128_si256(order));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), all);
}

}  // namespace

STRATA_AVX512 void round_row_avx512(const quant::IntegerForm& form, const RowParts& row) {
    const int together = form.group > 32 ? form.group : 32;
    const bool pairs = form.minima && form.has_parts();
    const int factor = form.minima ? 1 : -form.offset;
    float* scales = row.scales;
    std::int32_t* sums = row.sums;
    int wide = 0;  // of a part of 64
    for (std::int64_t i = 0; i < row.n; i += together) {
        const Scales group = find_scales(row.x + i, together);
        for (int g = 0; g < together; g += form.group) *scales++ = group.scale;
        for (int j = 0; j < together; j += 32) {
            int halves[2];
            round_32(row.x + i + j, group.inverse, row.transposed, row.codes + i + j, halves);
            if (pairs && form.part == 16) {
                *sums++ = (halves[0] & 0xffff) | halves[1] << 16;
            } else if (pairs) {
                const int both = halves[0] + halves[1];
                if (j % 64 == 0) {
                    wide = both & 0xffff;
                } else {
                    *sums++ = wide | both << 16;
                }
            } else if (form.part == 16) {
                *sums++ = factor * halves[0];
                *sums++ = factor * halves[1];
            } else if (form.part == 32) {
                *sums++ = factor * (halves[0] + halves[1]);
            } else {
                wide = (j % 64 == 0 ? 0 : wide) + halves[0] + halves[1];
                if (j % 64 != 0) *sums++ = factor * wide;
            }
        }
    }
}

}  // namespace strata::cpu

#endif
