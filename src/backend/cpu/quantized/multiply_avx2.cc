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

STRATA_AVX2_INLINE __m256i load(const void* from) {
    return _mm256_load_si256(static_cast<const __m256i*>(from));
}

// Where a kernel works: half a panel's rows, from `first` on, and rows of a tile from `t` on.
struct Place {
    const Panel& panel;
    const Tile& tile;
    int first;
    int t;

    std::int32_t sum(int i, int row) const { return tile.sums[i * tile.rows + t + row]; }
};

// The codes of `steps` * 4 columns of eight weight rows, from column 4 * `step` on, times T rows.
template <int T>
STRATA_AVX2_INLINE void sum_steps(const Place& place, int step, int steps, __m256i sums[T]) {
    const int apart = 4 * place.tile.rows;
    const std::uint8_t* weight = place.panel.codes[step][place.first];
    const std::int8_t* x = place.tile.codes + step * apart + 4 * place.t;
    Pairs sum[T];
#pragma GCC unroll 3
    for (int t = 0; t < T; ++t) sum[t] = no_pairs();
    for (int k = 0; k < steps; ++k, weight += 4 * kPanelRows, x += apart) {
        const auto* codes = reinterpret_cast<const __m128i*>(weight);
        const __m256i low = _mm256_cvtepu8_epi16(_mm_load_si128(codes));
        const __m256i high = _mm256_cvtepu8_epi16(_mm_load_si128(codes + 1));
#pragma GCC unroll 3
        for (int t = 0; t < T; ++t) {
            std::int32_t four = 0;
            __builtin_memcpy(&four, x + 4 * t, sizeof(four));
            const __m256i own = _mm256_broadcastq_epi64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(four)));
            sum[t].low = _mm256_add_epi32(sum[t].low, _mm256_madd_epi16(low, own));
            sum[t].high = _mm256_add_epi32(sum[t].high, _mm256_madd_epi16(high, own));
        }
    }
#pragma GCC unroll 3
    for (int t = 0; t < T; ++t) sums[t] = add_pairs(sum[t]);
}

template <int T>
STRATA_AVX2_INLINE void sum_part(const Place& place, int part, int columns, bool minima,
                                 __m256i sums[T]) {
    sum_steps<T>(place, part * columns / 4, columns / 4, sums);
    if (minima) return;
#pragma GCC unroll 3
    for (int t = 0; t < T; ++t) {
        sums[t] = _mm256_add_epi32(sums[t], _mm256_set1_epi32(place.sum(part, t)));
    }
}

template <int T>
STRATA_AVX2_INLINE void sum_parts(const quant::IntegerForm& form, const Place& place,
                                  __m256i sums[T]) {
#pragma GCC unroll 3
    for (int t = 0; t < T; ++t) sums[t] = _mm256_setzero_si256();
    for (int p = 0; p < form.group / form.part; ++p) {
        const __m256i factor = load(place.panel.parts[p] + place.first);
        __m256i own[T];
        sum_part<T>(place, p, form.part, form.minima, own);
#pragma GCC unroll 3
        for (int t = 0; t < T; ++t) {
            sums[t] = _mm256_add_epi32(sums[t], _mm256_mullo_epi32(own[t], factor));
        }
    }
}

STRATA_AVX2_INLINE __m256i sum_minima(const quant::IntegerForm& form, const Place& place, int g,
                                      int t) {
    if (!form.has_parts()) return _mm256_set1_epi32(place.sum(g, t));
    __m256i all = _mm256_setzero_si256();
    for (int pair = 0; pair < form.group / form.part / 2; ++pair) {
        const __m256i minima = load(place.panel.part_minima[pair][place.first]);
        const __m256i own = _mm256_set1_epi32(place.sum(pair, t));
        all = _mm256_add_epi32(all, _mm256_madd_epi16(minima, own));
    }
    return all;
}

template <int T>
STRATA_AVX2 void multiply_half(const quant::IntegerForm& form, int groups, const Place& place,
                               const Sums& sums) {
    __m256 sum[T];
    float* const to = sums.data + place.first;
    for (int t = 0; t < T; ++t) {
        sum[t] = sums.fresh ? _mm256_setzero_ps() : _mm256_loadu_ps(to + t * sums.stride);
    }
    for (int g = 0; g < groups; ++g) {
        __m256i product[T];
        if (form.has_parts()) {
            sum_parts<T>(form, place, product);
        } else {
            sum_part<T>(place, g, form.group, form.minima, product);
        }
        const __m256 scale = _mm256_load_ps(place.panel.scales[g] + place.first);
        for (int t = 0; t < T; ++t) {
            const __m256 own = _mm256_set1_ps(place.tile.scales[g * place.tile.rows + place.t + t]);
            sum[t] =
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(product[t]), _mm256_mul_ps(scale, own), sum[t]);
            if (!form.minima) continue;
            const __m256 minimum = _mm256_load_ps(place.panel.minima[g] + place.first);
            sum[t] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(sum_minima(form, place, g, t)),
                                      _mm256_mul_ps(minimum, own), sum[t]);
        }
    }
    for (int t = 0; t < T; ++t) _mm256_storeu_ps(to + t * sums.stride, sum[t]);
}

template <int T>
void multiply_rows(const quant::IntegerForm& form, const Panel& panel, int columns,
                   const Tile& tile, int t, const Sums& sums) {
    for (int first = 0; first < kPanelRows; first += kPanelRows / 2) {
        multiply_half<T>(form, columns / form.group, {panel, tile, first, t}, sums);
    }
}

}  // namespace

void multiply_avx2(const quant::IntegerForm& form, const Panel* panels, int count, int columns,
                   const Tile& tile, const Sums& sums, Ahead) {
    for (int p = 0; p < count; ++p) {
        for (int t = 0; t < tile.rows;) {
            const int left = tile.rows - t;
            const Sums to = sums.panel(p).row(t);
            if (left >= 3) {
                multiply_rows<3>(form, panels[p], columns, tile, t, to);
            } else if (left == 2) {
                multiply_rows<2>(form, panels[p], columns, tile, t, to);
            } else {
                multiply_rows<1>(form, panels[p], columns, tile, t, to);
            }
            t += left >= 3 ? 3 : left;
        }
    }
}

}  // namespace strata::cpu

#endif
