// Bounded by the multiply-adds: a register of weights meets kTileRows broadcast inputs, sums stay
// in registers for a group.
#include "backend/cpu/quantized/avx512.h"
#include "backend/cpu/quantized/panel.h"

#if defined(__x86_64__)

namespace strata::cpu {
namespace {

STRATA_AVX512_INLINE __m512i load(const void* from) { return _mm512_load_si512(from); }

// sum[t] += the codes of kSteps * 4 columns.
template <int T, int kSteps>
STRATA_AVX512_INLINE void add_steps(const std::uint8_t* weight, const std::int8_t* x,
                                    __m512i sum[T]) {
#pragma GCC unroll 16
    for (int k = 0; k < kSteps; ++k) {
        const __m512i codes = load(weight + k * 64);
#pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            std::int32_t four = 0;
            __builtin_memcpy(&four, x + (k * T + t) * 4, sizeof(four));
            sum[t] = _mm512_dpbusd_epi32(sum[t], codes, _mm512_set1_epi32(four));
        }
    }
}

// Groups of kSteps * 4 columns, without parts.
template <int T, int kSteps, bool kMinima>
STRATA_AVX512 void multiply_groups(const Panel& panel, int groups, const Tile& tile, float* out) {
    __m512 sum[T];
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) sum[t] = _mm512_loadu_ps(out + t * kPanelRows);
    const std::uint8_t* weight = panel.codes[0][0];
    const std::int8_t* x = tile.codes;
    for (int g = 0; g < groups; ++g, weight += kSteps * 64, x += kSteps * 4 * T) {
        __m512i product[T];
#pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            product[t] = kMinima ? _mm512_setzero_si512() : _mm512_set1_epi32(tile.sums[g * T + t]);
        }
        add_steps<T, kSteps>(weight, x, product);
        const __m512 scale = _mm512_load_ps(panel.scales[g]);
        const __m512 minimum = kMinima ? _mm512_load_ps(panel.minima[g]) : _mm512_setzero_ps();
#pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            const __m512 own = _mm512_set1_ps(tile.scales[g * T + t]);
            sum[t] =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(product[t]), _mm512_mul_ps(scale, own), sum[t]);
            if (!kMinima) continue;
            const __m512i base = _mm512_set1_epi32(tile.sums[g * T + t]);
            sum[t] =
                _mm512_fnmadd_ps(_mm512_cvtepi32_ps(base), _mm512_mul_ps(minimum, own), sum[t]);
        }
    }
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) _mm512_storeu_ps(out + t * kPanelRows, sum[t]);
}

// The minima of one group of kPairs * 2 parts.
template <int T, int kPairs>
STRATA_AVX512_INLINE void subtract_minima(const Panel& panel, const Tile& tile, float* out) {
    __m512i product[T];
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) product[t] = _mm512_setzero_si512();
    for (int p = 0; p < kPairs; ++p) {
        const __m512i part = load(panel.part_minima[p]);
#pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            product[t] =
                _mm512_dpwssd_epi32(product[t], part, _mm512_set1_epi32(tile.sums[p * T + t]));
        }
    }
    const __m512 minimum = _mm512_load_ps(panel.minima[0]);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
        const __m512 scale = _mm512_mul_ps(minimum, _mm512_set1_ps(tile.scales[t]));
        const __m512 sum = _mm512_loadu_ps(out + t * kPanelRows);
        _mm512_storeu_ps(out + t * kPanelRows,
                         _mm512_fnmadd_ps(_mm512_cvtepi32_ps(product[t]), scale, sum));
    }
}

// One group of kPanelCols columns in parts of kSteps * 4.
template <int T, int kSteps, bool kMinima>
STRATA_AVX512 void multiply_parts(const Panel& panel, int, const Tile& tile, float* out) {
    constexpr int kParts = kPanelCols / (kSteps * 4);
    __m512i product[T];
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) product[t] = _mm512_setzero_si512();
    const std::uint8_t* weight = panel.codes[0][0];
    const std::int8_t* x = tile.codes;
    for (int p = 0; p < kParts; ++p, weight += kSteps * 64, x += kSteps * 4 * T) {
        __m512i part[T];
#pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            part[t] = kMinima ? _mm512_setzero_si512() : _mm512_set1_epi32(tile.sums[p * T + t]);
        }
        add_steps<T, kSteps>(weight, x, part);
        const __m512i factor = load(panel.parts[p]);
#pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
            product[t] = _mm512_add_epi32(product[t], _mm512_mullo_epi32(part[t], factor));
        }
    }
    const __m512 weight_scale = _mm512_load_ps(panel.scales[0]);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
        const __m512 scale = _mm512_mul_ps(weight_scale, _mm512_set1_ps(tile.scales[t]));
        const __m512 sum = _mm512_loadu_ps(out + t * kPanelRows);
        _mm512_storeu_ps(out + t * kPanelRows,
                         _mm512_fmadd_ps(_mm512_cvtepi32_ps(product[t]), scale, sum));
    }
    if (kMinima) subtract_minima<T, kParts / 2>(panel, tile, out);
}

using Multiply = void (*)(const Panel&, int, const Tile&, float*);

template <int T>
Multiply choose(const quant::IntegerForm& form) {
    if (form.has_parts()) {
        if (form.part == 32) {
            return form.minima ? multiply_parts<T, 8, true> : multiply_parts<T, 8, false>;
        }
        return form.minima ? multiply_parts<T, 4, true> : multiply_parts<T, 4, false>;
    }
    if (form.group == 64) return multiply_groups<T, 16, false>;
    if (form.group == 16) return multiply_groups<T, 4, false>;
    return form.minima ? multiply_groups<T, 8, true> : multiply_groups<T, 8, false>;
}

Multiply choose(const quant::IntegerForm& form, int rows) {
    switch (rows) {
        case 12:
            return choose<12>(form);
        case 8:
            return choose<8>(form);
        case 6:
            return choose<6>(form);
        case 4:
            return choose<4>(form);
        case 3:
            return choose<3>(form);
        case 2:
            return choose<2>(form);
        default:
            return choose<1>(form);
    }
}

}  // namespace

void multiply_avx512(const quant::IntegerForm& form, const Panel& panel, int columns,
                     const Tile& tile, float* sum) {
    choose(form, tile.rows)(panel, columns / form.group, tile, sum);
}

}  // namespace strata::cpu

#endif
