// The K formats and IQ4_XS: 256 values, their packed fields four columns a lane.
#include "backend/cpu/quantized/unpack_avx512.h"

#if defined(__x86_64__)

namespace strata::cpu {
namespace {

// Eight dwords of 32 bytes of every row.
STRATA_AVX512_INLINE void load_32(const std::byte* rows, std::int64_t stride, __m512i to[8]) {
    load_columns(rows, stride, to);
    load_columns(rows + 16, stride, to + 4);
}

// Byte `i` of each lane.
STRATA_AVX512_INLINE __m512i byte_of(__m512i lanes, int i) {
    return _mm512_and_si512(_mm512_srli_epi32(lanes, static_cast<unsigned>(8 * i)),
                            _mm512_set1_epi32(255));
}

// Four parts' bytes, signed or of less than 128, from part `first` on.
STRATA_AVX512_INLINE void store_parts(Panel& panel, int first, __m512i bytes) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const __m512i top = _mm512_slli_epi32(bytes, static_cast<unsigned>(24 - 8 * i));
        _mm512_store_si512(panel.parts[first + i], _mm512_srai_epi32(top, 24));
    }
}

// Four parts' minima, as two pairs.
STRATA_AVX512_INLINE void store_minima(Panel& panel, int first, __m512i bytes) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
        const __m512i low = byte_of(bytes, 2 * i);
        const __m512i high = _mm512_slli_epi32(byte_of(bytes, 2 * i + 1), 16);
        _mm512_store_si512(panel.part_minima[first / 2 + i], _mm512_or_si512(low, high));
    }
}

STRATA_AVX512_INLINE __m512i repeat(int byte) { return _mm512_set1_epi8(static_cast<char>(byte)); }
STRATA_AVX512_INLINE __m512i field(__m512i bytes, int shift, int mask) {
    return _mm512_and_si512(_mm512_srli_epi16(bytes, static_cast<unsigned>(shift)), repeat(mask));
}
// Bits `mask` of each byte after a shift to the right, moved up by `up`.
STRATA_AVX512_INLINE __m512i field_up(__m512i bytes, int shift, int mask, int up) {
    return _mm512_slli_epi16(field(bytes, shift, mask), static_cast<unsigned>(up));
}

// Scale and minimum of the block, and the 12 bytes of quant/k_parts.h behind them.
STRATA_AVX512_INLINE void unpack_k_parts(const std::byte* rows, __m512i offsets, Panel& panel) {
    const __m512i halves = gather_rows(rows, offsets);
    _mm512_store_ps(panel.scales[0], widen_halves(halves));
    _mm512_store_ps(panel.minima[0], widen_halves(_mm512_srli_epi32(halves, 16)));
    const __m512i scales = gather_rows(rows + 4, offsets);
    const __m512i minima = gather_rows(rows + 8, offsets);
    const __m512i low = gather_rows(rows + 12, offsets);
    store_parts(panel, 0, _mm512_and_si512(scales, repeat(63)));
    store_minima(panel, 0, _mm512_and_si512(minima, repeat(63)));
    store_parts(panel, 4, _mm512_or_si512(field(low, 0, 15), field_up(scales, 6, 3, 4)));
    store_minima(panel, 4, _mm512_or_si512(field(low, 4, 15), field_up(minima, 6, 3, 4)));
}

}  // namespace

STRATA_AVX512 void unpack_q4_k(const quant::TypeInfo&, const std::byte* rows, std::int64_t stride,
                               int, const std::byte* ahead, Panel& panel) {
    unpack_k_parts(rows, row_offsets(stride), panel);
    for (int pair = 0; pair < 4; ++pair) {
        ahead = prefetch<144 / 4>(ahead);
        __m512i bytes[8];
        load_32(rows + 16 + 32 * pair, stride, bytes);
#pragma GCC unroll 8
        for (int d = 0; d < 8; ++d) {
            store(panel, 16 * pair + d, low_halves(bytes[d]));
            store(panel, 16 * pair + 8 + d, high_halves(bytes[d]));
        }
    }
}

STRATA_AVX512 void unpack_q5_k(const quant::TypeInfo&, const std::byte* rows, std::int64_t stride,
                               int, const std::byte* ahead, Panel& panel) {
    unpack_k_parts(rows, row_offsets(stride), panel);
    __m512i high[8];
    load_32(rows + 16, stride, high);
    for (int pair = 0; pair < 4; ++pair) {
        ahead = prefetch<176 / 4>(ahead);
        __m512i bytes[8];
        load_32(rows + 48 + 32 * pair, stride, bytes);
#pragma GCC unroll 8
        for (int d = 0; d < 8; ++d) {
            const __m512i first = field_up(high[d], 2 * pair, 1, 4);
            const __m512i second = field_up(high[d], 2 * pair + 1, 1, 4);
            store(panel, 16 * pair + d, _mm512_or_si512(low_halves(bytes[d]), first));
            store(panel, 16 * pair + 8 + d, _mm512_or_si512(high_halves(bytes[d]), second));
        }
    }
}

STRATA_AVX512 void unpack_q6_k(const quant::TypeInfo&, const std::byte* rows, std::int64_t stride,
                               int, const std::byte* ahead, Panel& panel) {
    const __m512i offsets = row_offsets(stride);
    const __m512i scale = _mm512_srli_epi32(gather_rows(rows + 206, offsets), 16);
    _mm512_store_ps(panel.scales[0], widen_halves(scale));
    __m512i parts[4];
    load_columns(rows + 192, stride, parts);
    for (int i = 0; i < 4; ++i) store_parts(panel, 4 * i, parts[i]);
    for (int half = 0; half < 2; ++half) {
        ahead = prefetch<210 / 2>(ahead);
        __m512i high[8];
        load_32(rows + 128 + 32 * half, stride, high);
        for (int part = 0; part < 2; ++part) {
            __m512i low[8];
            load_32(rows + 64 * half + 32 * part, stride, low);
            const int step = 32 * half + 8 * part;
#pragma GCC unroll 8
            for (int d = 0; d < 8; ++d) {
                const __m512i first = field_up(high[d], 2 * part, 3, 4);
                const __m512i second = field_up(high[d], 2 * part + 4, 3, 4);
                store(panel, step + d, _mm512_or_si512(low_halves(low[d]), first));
                store(panel, step + 16 + d, _mm512_or_si512(high_halves(low[d]), second));
            }
        }
    }
}

STRATA_AVX512 void unpack_q2_k(const quant::TypeInfo&, const std::byte* rows, std::int64_t stride,
                               int, const std::byte* ahead, Panel& panel) {
    const __m512i halves = gather_rows(rows + 80, row_offsets(stride));
    _mm512_store_ps(panel.scales[0], widen_halves(halves));
    _mm512_store_ps(panel.minima[0], widen_halves(_mm512_srli_epi32(halves, 16)));
    __m512i parts[4];
    load_columns(rows, stride, parts);
    for (int i = 0; i < 4; ++i) {
        store_parts(panel, 4 * i, low_halves(parts[i]));
        store_minima(panel, 4 * i, high_halves(parts[i]));
    }
    for (int half = 0; half < 2; ++half) {
        ahead = prefetch<84 / 2>(ahead);
        __m512i codes[8];
        load_32(rows + 16 + 32 * half, stride, codes);
        for (int quarter = 0; quarter < 4; ++quarter) {
#pragma GCC unroll 8
            for (int d = 0; d < 8; ++d) {
                store(panel, 32 * half + 8 * quarter + d, field(codes[d], 2 * quarter, 3));
            }
        }
    }
}

STRATA_AVX512 void unpack_q3_k(const quant::TypeInfo&, const std::byte* rows, std::int64_t stride,
                               int, const std::byte* ahead, Panel& panel) {
    const __m512i offsets = row_offsets(stride);
    const __m512i scale = _mm512_srli_epi32(gather_rows(rows + 106, offsets), 16);
    _mm512_store_ps(panel.scales[0], widen_halves(scale));
    const __m512i low[2] = {gather_rows(rows + 96, offsets), gather_rows(rows + 100, offsets)};
    const __m512i upper = gather_rows(rows + 104, offsets);
    for (int i = 0; i < 4; ++i) {
        const __m512i parts =
            _mm512_or_si512(field(low[i % 2], i / 2 * 4, 15), field_up(upper, 2 * i, 3, 4));
        store_parts(panel, 4 * i, _mm512_sub_epi8(parts, repeat(32)));
    }
    __m512i high[8];
    load_32(rows, stride, high);
    for (int half = 0; half < 2; ++half) {
        ahead = prefetch<110 / 2>(ahead);
        __m512i codes[8];
        load_32(rows + 32 + 32 * half, stride, codes);
        for (int quarter = 0; quarter < 4; ++quarter) {
#pragma GCC unroll 8
            for (int d = 0; d < 8; ++d) {
                const __m512i third = field_up(high[d], 4 * half + quarter, 1, 2);
                store(panel, 32 * half + 8 * quarter + d,
                      _mm512_or_si512(field(codes[d], 2 * quarter, 3), third));
            }
        }
    }
}

STRATA_AVX512 void unpack_iq4_xs(const quant::TypeInfo& type, const std::byte* rows,
                                 std::int64_t stride, int, const std::byte* ahead, Panel& panel) {
    const __m512i offsets = row_offsets(stride);
    const __m512i table = spread_table(quant::kIq4Values.data(), type.integers->offset);
    const __m512i first = gather_rows(rows, offsets);
    _mm512_store_ps(panel.scales[0], widen_halves(first));
    const __m512i high = _mm512_srli_epi32(first, 16);
    const __m512i low = gather_rows(rows + 4, offsets);
    for (int part = 0; part < 8; ++part) {
        ahead = prefetch<136 / 8>(ahead);
        const __m512i lower = _mm512_srli_epi32(low, static_cast<unsigned>(4 * part));
        const __m512i upper = _mm512_srli_epi32(high, static_cast<unsigned>(2 * part));
        const __m512i code =
            _mm512_or_si512(_mm512_and_si512(lower, _mm512_set1_epi32(15)),
                            _mm512_slli_epi32(_mm512_and_si512(upper, _mm512_set1_epi32(3)), 4));
        _mm512_store_si512(panel.parts[part], _mm512_sub_epi32(code, _mm512_set1_epi32(32)));
        unpack_halves(rows + 8 + 16 * part, stride, 8 * part, table, panel);
    }
}

}  // namespace strata::cpu

#endif
