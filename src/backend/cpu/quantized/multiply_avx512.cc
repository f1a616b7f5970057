// Bounded by the multiply-adds: registers of weights of two panels meet kTileRows broadcast
// inputs, sums stay in registers for a group.
#include "backend/cpu/quantized/avx512.h"
#include "backend/cpu/quantized/panel.h"
#include "backend/cpu/quantized/rounded.h"

#if defined(__x86_64__)

namespace strata::cpu {
namespace {

STRATA_AVX512_INLINE __m512i load(const void* from) { return _mm512_load_si512(from); }

// kPanels panels of weights and their sums.
template <int kPanels>
struct Panels {
    const Panel* panel;
    const Sums& sums;

    STRATA_AVX512_INLINE __m512 sum(int p, int t) const {
        if (sums.fresh) return _mm512_setzero_ps();
        return stored(p, t);
    }
    STRATA_AVX512_INLINE __m512 stored(int p, int t) const {
        return _mm512_loadu_ps(sums.data + p * sums.apart + t * sums.stride);
    }
    STRATA_AVX512_INLINE void store(int p, int t, __m512 sum) const {
        _mm512_storeu_ps(sums.data + p * sums.apart + t * sums.stride, sum);
    }
};

// sum[p][t] += the codes of kSteps * 4 columns, from column 4 * `step` on.
template <int P, int T, int kSteps>
STRATA_AVX512_INLINE void add_steps(const Panel* panel, int step, const std::int8_t* x,
                                    __m512i sum[P][T]) {
#pragma GCC unroll 16
    for (int k = 0; k < kSteps; ++k) {
        __m512i codes[P];
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) codes[p] = load(panel[p].codes[step + k]);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            std::int32_t four = 0;
            __builtin_memcpy(&four, x + (k * T + t) * 4, sizeof(four));
            const __m512i own = _mm512_set1_epi32(four);
#pragma GCC unroll 2
            for (int p = 0; p < P; ++p) {
                sum[p][t] = _mm512_dpbusd_epi32(sum[p][t], codes[p], own);
            }
        }
    }
}

// What products of a part start from: the inputs' sums, where codes have an offset.
template <int P, int T, bool kMinima>
STRATA_AVX512_INLINE void start(const std::int32_t* sums, __m512i product[P][T]) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
        const __m512i base = kMinima ? _mm512_setzero_si512() : _mm512_set1_epi32(sums[t]);
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) product[p][t] = base;
    }
}

// Groups of kSteps * 4 columns, without parts.
template <int P, int T, int kSteps, bool kMinima>
STRATA_AVX512 void multiply_groups(const Panels<P>& panels, int groups, const Tile& tile,
                                   Ahead ahead) {
    __m512 sum[P][T];
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) sum[p][t] = panels.sum(p, t);
    }
    const std::int8_t* x = tile.codes;
    for (int g = 0; g < groups; ++g, x += kSteps * 4 * T) {
        ahead.ask();
        __m512i product[P][T];
        start<P, T, kMinima>(tile.sums + g * T, product);
        add_steps<P, T, kSteps>(panels.panel, g * kSteps, x, product);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            const __m512 own = _mm512_set1_ps(tile.scales[g * T + t]);
#pragma GCC unroll 2
            for (int p = 0; p < P; ++p) {
                const __m512 scale = _mm512_load_ps(panels.panel[p].scales[g]);
                sum[p][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(product[p][t]),
                                            _mm512_mul_ps(scale, own), sum[p][t]);
                if (!kMinima) continue;
                const __m512 minimum = _mm512_load_ps(panels.panel[p].minima[g]);
                const __m512i base = _mm512_set1_epi32(tile.sums[g * T + t]);
                sum[p][t] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(base), _mm512_mul_ps(minimum, own),
                                             sum[p][t]);
            }
        }
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) panels.store(p, t, sum[p][t]);
    }
}

// The minima of one group of kPairs * 2 parts.
template <int P, int T, int kPairs>
STRATA_AVX512_INLINE void subtract_minima(const Panels<P>& panels, const Tile& tile) {
    __m512i product[P][T];
    start<P, T, true>(tile.sums, product);
    for (int pair = 0; pair < kPairs; ++pair) {
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            const __m512i own = _mm512_set1_epi32(tile.sums[pair * T + t]);
#pragma GCC unroll 2
            for (int p = 0; p < P; ++p) {
                product[p][t] = _mm512_dpwssd_epi32(product[p][t],
                                                    load(panels.panel[p].part_minima[pair]), own);
            }
        }
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
        const __m512 minimum = _mm512_load_ps(panels.panel[p].minima[0]);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            const __m512 scale = _mm512_mul_ps(minimum, _mm512_set1_ps(tile.scales[t]));
            panels.store(
                p, t,
                _mm512_fnmadd_ps(_mm512_cvtepi32_ps(product[p][t]), scale, panels.stored(p, t)));
        }
    }
}

// One group of kPanelCols columns in parts of kSteps * 4.
template <int P, int T, int kSteps, bool kMinima>
STRATA_AVX512 void multiply_parts(const Panels<P>& panels, int, const Tile& tile, Ahead) {
    constexpr int kParts = kPanelCols / (kSteps * 4);
    __m512i product[P][T];
    start<P, T, true>(tile.sums, product);
    const std::int8_t* x = tile.codes;
    for (int part = 0; part < kParts; ++part, x += kSteps * 4 * T) {
        __m512i own[P][T];
        start<P, T, kMinima>(tile.sums + part * T, own);
        add_steps<P, T, kSteps>(panels.panel, part * kSteps, x, own);
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) {
            const __m512i factor = load(panels.panel[p].parts[part]);
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                product[p][t] =
                    _mm512_add_epi32(product[p][t], _mm512_mullo_epi32(own[p][t], factor));
            }
        }
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
        const __m512 weight_scale = _mm512_load_ps(panels.panel[p].scales[0]);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            const __m512 scale = _mm512_mul_ps(weight_scale, _mm512_set1_ps(tile.scales[t]));
            panels.store(
                p, t, _mm512_fmadd_ps(_mm512_cvtepi32_ps(product[p][t]), scale, panels.sum(p, t)));
        }
    }
    if (kMinima) subtract_minima<P, T, kParts / 2>(panels, tile);
}

template <int P>
using Multiply = void (*)(const Panels<P>&, int, const Tile&, Ahead);

template <int P, int T>
Multiply<P> choose(const quant::IntegerForm& form) {
    if (form.has_parts()) {
        if (form.part == 32) {
            return form.minima ? multiply_parts<P, T, 8, true> : multiply_parts<P, T, 8, false>;
        }
        return form.minima ? multiply_parts<P, T, 4, true> : multiply_parts<P, T, 4, false>;
    }
    if (form.group == 64) return multiply_groups<P, T, 16, false>;
    if (form.group == 16) return multiply_groups<P, T, 4, false>;
    return form.minima ? multiply_groups<P, T, 8, true> : multiply_groups<P, T, 8, false>;
}

template <int P>
Multiply<P> choose(const quant::IntegerForm& form, int rows) {
    static_assert(kTileRows == 6);
    switch (rows) {
        case 6:
            return choose<P, 6>(form);
        case 4:
            return choose<P, 4>(form);
        case 3:
            return choose<P, 3>(form);
        case 2:
            return choose<P, 2>(form);
        default:
            return choose<P, 1>(form);
    }
}

}  // namespace

void multiply_avx512(const quant::IntegerForm& form, const Panel* panels, int count, int columns,
                     const Tile& tile, const Sums& sums, Ahead ahead) {
    const auto groups = static_cast<int>(groups_in(columns, form.group));
    if (count == 2) {
        choose<2>(form, tile.rows)({panels, sums}, groups, tile, ahead);
    } else {
        choose<1>(form, tile.rows)({panels, sums}, groups, tile, ahead);
    }
}

}  // namespace strata::cpu

#endif
