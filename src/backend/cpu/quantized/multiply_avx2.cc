// Bounded by the multiply-adds: codes are widened to 16 bits, since products of bytes would not fit
// the sums of pairs that AVX2 makes of them.
#include "backend/cpu/quantized/panel.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define STRATA_AVX2 [[gnu::target("avx2,fma")]]
#define STRATA_AVX2_INLINE STRATA_AVX2 [[gnu::always_inline]] inline

namespace strata::cpu {
namespace {

// Sums of eight rows: even columns and odd ones of four rows in each register.
struct Pairs {
    __m256i low;
    __m256i high;
};

STRATA_AVX2_INLINE Pairs no_pairs() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }

// One sum a row, rows in order.
STRATA_AVX2_INLINE __m256i add_pairs(const Pairs& pairs) {
    const __m256i sums = _mm256_hadd_epi32(pairs.low, pairs.high);
    return _mm256_permute4x64_epi64(sums, _MM_SHUFFLE(3, 1, 2, 0));
}

// The codes of `steps` * 4 columns of eight rows, from `weight` on, times a tile's row.
STRATA_AVX2_INLINE __m256i sum_steps(const std::uint8_t* weight, const std::int8_t* x, int apart,
                                     int steps) {
    Pairs sum = no_pairs();
    for (int k = 0; k < steps; ++k, weight += 4 * kPanelRows, x += 4 * apart) {
        std::int32_t four = 0;
        __builtin_memcpy(&four, x, sizeof(four));
        const __m256i own = _mm256_broadcastq_epi64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(four)));
        const auto* codes = reinterpret_cast<const __m128i*>(weight);
        const __m256i low = _mm256_cvtepu8_epi16(_mm_load_si128(codes));
        const __m256i high = _mm256_cvtepu8_epi16(_mm_load_si128(codes + 1));
        sum.low = _mm256_add_epi32(sum.low, _mm256_madd_epi16(low, own));
        sum.high = _mm256_add_epi32(sum.high, _mm256_madd_epi16(high, own));
    }
    return add_pairs(sum);
}

STRATA_AVX2_INLINE __m256i load(const void* from) {
    return _mm256_load_si256(static_cast<const __m256i*>(from));
}

// Where a kernel works: half a panel's rows, from `first` on, and row t of a tile.
struct Place {
    const Panel& panel;
    const Tile& tile;
    int first;
    int t;

    const std::uint8_t* codes(int step) const { return panel.codes[step][first]; }
    const std::int8_t* x(int step) const { return tile.codes + (step * tile.rows + t) * 4; }
    std::int32_t sum(int i) const { return tile.sums[i * tile.rows + t]; }
};

STRATA_AVX2_INLINE __m256i sum_part(const Place& place, int part, int columns, bool minima) {
    const int step = part * columns / 4;
    const __m256i sums = sum_steps(place.codes(step), place.x(step), place.tile.rows, columns / 4);
    return minima ? sums : _mm256_add_epi32(sums, _mm256_set1_epi32(place.sum(part)));
}

STRATA_AVX2_INLINE __m256i sum_parts(const quant::IntegerForm& form, const Place& place) {
    __m256i all = _mm256_setzero_si256();
    for (int p = 0; p < form.group / form.part; ++p) {
        const __m256i factor = load(place.panel.parts[p] + place.first);
        all = _mm256_add_epi32(
            all, _mm256_mullo_epi32(sum_part(place, p, form.part, form.minima), factor));
    }
    return all;
}

STRATA_AVX2_INLINE __m256i sum_minima(const quant::IntegerForm& form, const Place& place, int g) {
    if (!form.has_parts()) return _mm256_set1_epi32(place.sum(g));
    __m256i all = _mm256_setzero_si256();
    for (int pair = 0; pair < form.group / form.part / 2; ++pair) {
        const __m256i minima = load(place.panel.part_minima[pair][place.first]);
        all = _mm256_add_epi32(all, _mm256_madd_epi16(minima, _mm256_set1_epi32(place.sum(pair))));
    }
    return all;
}

STRATA_AVX2 void multiply_half(const quant::IntegerForm& form, int groups, const Place& place,
                               float* to) {
    __m256 sum = _mm256_loadu_ps(to);
    for (int g = 0; g < groups; ++g) {
        const __m256i product =
            form.has_parts() ? sum_parts(form, place) : sum_part(place, g, form.group, form.minima);
        const __m256 own = _mm256_set1_ps(place.tile.scales[g * place.tile.rows + place.t]);
        const __m256 scale = _mm256_load_ps(place.panel.scales[g] + place.first);
        sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(product), _mm256_mul_ps(scale, own), sum);
        if (!form.minima) continue;
        const __m256 minimum = _mm256_load_ps(place.panel.minima[g] + place.first);
        sum = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(sum_minima(form, place, g)),
                               _mm256_mul_ps(minimum, own), sum);
    }
    _mm256_storeu_ps(to, sum);
}

}  // namespace

void multiply_avx2(const quant::IntegerForm& form, const Panel* panels, int count, int columns,
                   const Tile& tile, float* sum, std::int64_t apart) {
    for (int p = 0; p < count; ++p) {
        for (int t = 0; t < tile.rows; ++t) {
            for (int first = 0; first < kPanelRows; first += kPanelRows / 2) {
                multiply_half(form, columns / form.group, {panels[p], tile, first, t},
                              sum + p * apart + t * kPanelRows + first);
            }
        }
    }
}

}  // namespace strata::cpu

#endif
