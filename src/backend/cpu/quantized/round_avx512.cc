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

// Four groups of 32 at once: one alone waits for its largest value, then for its quotients.
constexpr int kGroupsAtOnce = 4;

// Half as many lanes of each, the larger ones.
STRATA_AVX512_INLINE __m512i fold(__m512i a, __m512i b) {
    return _mm512_max_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

// The largest lane of each of four registers.
STRATA_AVX512_INLINE __m128i largest_of(const __m512i four[kGroupsAtOnce]) {
    __m512i all = fold(fold(four[0], four[1]), fold(four[2], four[3]));
    all = _mm512_max_epi32(all, _mm512_shuffle_epi32(all, _MM_PERM_BADC));
    all = _mm512_max_epi32(all, _mm512_shuffle_epi32(all, _MM_PERM_CDAB));
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castsi512_si128(_mm512_permutexvar_epi32(firsts, all));
}

STRATA_AVX512_INLINE void round_four(const float* x, int factor, std::int8_t* codes, float* scales,
                                     std::int32_t* sums) {
    const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
    __m512i largest[kGroupsAtOnce];
#pragma GCC unroll 4
    for (int g = 0; g < kGroupsAtOnce; ++g) {
        const __m512i low = _mm512_castps_si512(_mm512_loadu_ps(x + 32 * g));
        const __m512i high = _mm512_castps_si512(_mm512_loadu_ps(x + 32 * g + 16));
        largest[g] = _mm512_max_epi32(_mm512_and_si512(low, magnitude_bits),
                                      _mm512_and_si512(high, magnitude_bits));
    }
    const __m128i bits = largest_of(largest);
    const __m128 magnitude = _mm_castsi128_ps(bits);
    const __m128 limit = _mm_set1_ps(kLargestCode);
    const __m128 quotient = _mm_div_ps(limit, magnitude);
    const __m128 most = _mm_set1_ps(std::numeric_limits<float>::max());
    const __mmask8 usual = _mm_cmp_ps_mask(quotient, most, _CMP_LE_OQ);
    const __mmask8 infinite = _mm_cmpge_epi32_mask(bits, _mm_set1_epi32(0x7f800000));
    const __mmask8 used = static_cast<__mmask8>(usual & ~infinite);
    const __m128 nan = _mm_set1_ps(std::numeric_limits<float>::quiet_NaN());
    const __m128 scale = _mm_maskz_div_ps(used, magnitude, limit);
    _mm_storeu_ps(scales, _mm_mask_mov_ps(scale, infinite, nan));
    alignas(16) float inverse[kGroupsAtOnce];
    _mm_store_ps(inverse, _mm_maskz_mov_ps(used, quotient));
    __m128i sum[kGroupsAtOnce];
#pragma GCC unroll 4
    for (int g = 0; g < kGroupsAtOnce; ++g) {
        const __m512 own = _mm512_set1_ps(inverse[g]);
        const __m512 low = _mm512_mul_ps(_mm512_loadu_ps(x + 32 * g), own);
        const __m512 high = _mm512_mul_ps(_mm512_loadu_ps(x + 32 * g + 16), own);
        const __m128i first = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(low));
        const __m128i second = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(high));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 32 * g), first);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 32 * g + 16), second);
        const __m128i ones = _mm_set1_epi8(1);
        sum[g] = _mm_dpbusd_epi32(_mm_dpbusd_epi32(_mm_setzero_si128(), ones, first), ones, second);
    }
    const __m128i all =
        _mm_hadd_epi32(_mm_hadd_epi32(sum[0], sum[1]), _mm_hadd_epi32(sum[2], sum[3]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(sums),
                     _mm_mullo_epi32(all, _mm_set1_epi32(factor)));
}

// The first columns of a row in groups of 32 without parts or minima; returns how many.
STRATA_AVX512 std::int64_t round_plain_groups(const quant::IntegerForm& form, const RowParts& row) {
    if (form.group != 32 || form.has_parts() || form.minima || row.transposed) return 0;
    std::int64_t i = 0;
    for (; i + 32 * kGroupsAtOnce <= row.n; i += 32 * kGroupsAtOnce) {
        round_four(row.x + i, -form.offset, row.codes + i, row.scales + i / 32, row.sums + i / 32);
    }
    return i;
}

}  // namespace

STRATA_AVX512 void round_row_avx512(const quant::IntegerForm& form, const RowParts& row) {
    const int together = form.group > 32 ? form.group : 32;
    const bool pairs = form.minima && form.has_parts();
    const int factor = form.minima ? 1 : -form.offset;
    const std::int64_t done = round_plain_groups(form, row);
    float* scales = row.scales + done / 32;
    std::int32_t* sums = row.sums + done / 32;
    int wide = 0;  // of a part of 64
    for (std::int64_t i = done; i < row.n; i += together) {
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
