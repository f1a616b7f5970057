// The formats with codebooks.
#include "backend/cpu/quantized/unpack_avx512.h"

#include <algorithm>

#include "base/check.h"

#if defined(__x86_64__)

namespace strata::cpu {
namespace {

// The codebook's magnitudes are eight numbers: byte i of the first plane holds the places of the
// first two values of vector i among them, in three bits each, byte i of the second plane those of
// the others. The fourth bit of a half is for the sign.
struct Iq3XxsTables {
    alignas(64) std::uint8_t planes[2][256];
    alignas(16) std::int8_t magnitudes[8];
    alignas(64) std::uint8_t signs[128];  // of each number of seven bits
    // The same in another order: from the top of each half down, the signs of values 0, 2, 4, 6 in
    // the low half and of 1, 3, 5, 7 in the high one. So two signs at once are where a plane wants
    // them, and a shift brings the next two there.
    alignas(64) std::uint8_t paired_signs[128];
};

std::uint8_t pair_signs(std::uint32_t signs) {
    std::uint32_t paired = 0;
    for (std::uint32_t v = 0; v < 8; ++v) {
        paired |= (signs >> v & 1) << (3 - v / 2 + v % 2 * 4);
    }
    return static_cast<std::uint8_t>(paired);
}

const Iq3XxsTables& iq3_xxs_tables() {
    static const Iq3XxsTables tables = [] {
        Iq3XxsTables made{};
        int known = 0;
        const auto place_of = [&](std::int8_t value) {
            std::int8_t* end = made.magnitudes + known;
            std::int8_t* found = std::find(made.magnitudes, end, value);
            if (found == end) {
                STRATA_CHECK(known < 8);
                made.magnitudes[known++] = value;
            }
            return static_cast<unsigned>(found - made.magnitudes);
        };
        for (int i = 0; i < 256; ++i) {
            const auto& values = quant::kIq3XxsGrid[i].values;
            for (int half = 0; half < 2; ++half) {
                made.planes[half][i] = static_cast<std::uint8_t>(
                    place_of(values[2 * half]) | place_of(values[2 * half + 1]) << 4);
            }
        }
        for (std::uint32_t i = 0; i < 128; ++i) {
            made.signs[i] = static_cast<std::uint8_t>(quant::even_signs(i));
            made.paired_signs[i] = pair_signs(made.signs[i]);
        }
        return made;
    }();
    return tables;
}

// The codebook in registers.
struct Iq3XxsGrid {
    __m512i planes[2][4];
    __m512i codes;  // of the eight magnitudes, then of them negated

    STRATA_AVX512_INLINE __m512i look_up(int plane, __m512i numbers, __mmask64 upper) const {
        const __m512i* part = planes[plane];
        const __m512i low = _mm512_permutex2var_epi8(part[0], numbers, part[1]);
        const __m512i high = _mm512_permutex2var_epi8(part[2], numbers, part[3]);
        return _mm512_mask_blend_epi8(upper, low, high);
    }
};

STRATA_AVX512_INLINE Iq3XxsGrid load_grid(const Iq3XxsTables& tables, int offset) {
    Iq3XxsGrid grid;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        grid.planes[0][i] = _mm512_load_si512(tables.planes[0] + 64 * i);
        grid.planes[1][i] = _mm512_load_si512(tables.planes[1] + 64 * i);
    }
    const __m128i up = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(tables.magnitudes));
    const __m128i down = _mm_sub_epi8(_mm_setzero_si128(), up);
    const __m128i base = _mm_set1_epi8(static_cast<char>(offset));
    grid.codes = _mm512_broadcast_i32x4(_mm_add_epi8(_mm_unpacklo_epi64(up, down), base));
    return grid;
}

// a | (b & mask)
STRATA_AVX512_INLINE __m512i or_masked(__m512i a, __m512i b, int mask) {
    return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi8(static_cast<char>(mask)), 0xf8);
}

// Four numbers a lane (16 columns of a row) to four registers of codes, register b with value b of
// each number; `signs` has the paired signs of numbers 0, 0, 1, 1 pairwise.
STRATA_AVX512_INLINE void unpack_vectors(const Iq3XxsGrid& grid, __m512i numbers, __m512i signs,
                                         int step, Panel& panel) {
    const __mmask64 upper = _mm512_movepi8_mask(numbers);
    // The second number of each two has its signs two places further down.
    const __m512i own = _mm512_ternarylogic_epi32(signs, _mm512_slli_epi16(signs, 2),
                                                  _mm512_set1_epi16(0x00ff), 0xe4);
    const __m512i first = or_masked(grid.look_up(0, numbers, upper), own, 0x88);
    const __m512i second =
        or_masked(grid.look_up(1, numbers, upper), _mm512_slli_epi16(own, 1), 0x88);
    // The table's 16 codes come four times, so that bits above the low four change nothing.
    store(panel, step, _mm512_permutexvar_epi8(first, grid.codes));
    store(panel, step + 1, _mm512_permutexvar_epi8(_mm512_srli_epi16(first, 4), grid.codes));
    store(panel, step + 2, _mm512_permutexvar_epi8(second, grid.codes));
    store(panel, step + 3, _mm512_permutexvar_epi8(_mm512_srli_epi16(second, 4), grid.codes));
}

// The signs of eight values, one bit each, from a number of seven bits in each lane.
struct SignTable {
    __m512i low;
    __m512i high;

    STRATA_AVX512_INLINE __m512i of(__m512i numbers) const {
        return _mm512_permutex2var_epi8(low, numbers, high);
    }
};

STRATA_AVX512_INLINE SignTable load_signs() {
    const std::uint8_t* signs = iq3_xxs_tables().signs;
    return {_mm512_load_si512(signs), _mm512_load_si512(signs + 64)};
}

STRATA_AVX512_INLINE __m512i bits_of(__m512i lanes, int shift, int mask) {
    return _mm512_and_si512(_mm512_srli_epi32(lanes, static_cast<unsigned>(shift)),
                            _mm512_set1_epi32(mask));
}

// base plus or minus each byte of `magnitudes`; the signs are the low four bits of the lane.
STRATA_AVX512_INLINE __m512i with_signs(__m512i magnitudes, __m512i signs, __m512i base) {
    const __m512i bits = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x2322212003020100), signs);
    const __mmask64 negative = _mm512_test_epi8_mask(bits, _mm512_set1_epi8(1));
    const __m512i code = _mm512_add_epi8(base, magnitudes);
    return _mm512_mask_sub_epi8(code, negative, base, magnitudes);
}

// Half `half` of the vectors of eight with these numbers.
STRATA_AVX512_INLINE __m512i look_up(const void* grid, __m512i numbers, int half) {
    return _mm512_i32gather_epi32(numbers, static_cast<const std::byte*>(grid) + 4 * half, 8);
}

// A vector of eight: its number, and its signs in the low byte of the lane.
STRATA_AVX512_INLINE void unpack_eight(const void* grid, __m512i number, __m512i signs,
                                       __m512i base, int step, Panel& panel) {
    store(panel, step, with_signs(look_up(grid, number, 0), signs, base));
    store(panel, step + 1, with_signs(look_up(grid, number, 1), _mm512_srli_epi32(signs, 4), base));
}

// parts[p] = 2 * the nibble `nibble` of the lanes + 1.
STRATA_AVX512_INLINE void store_part(Panel& panel, int p, __m512i lanes, int nibble) {
    const __m512i part = bits_of(lanes, 4 * nibble, 15);
    _mm512_store_si512(panel.parts[p],
                       _mm512_add_epi32(_mm512_add_epi32(part, part), _mm512_set1_epi32(1)));
}

STRATA_AVX512_INLINE void store_scale(Panel& panel, __m512i halves, float factor) {
    _mm512_store_ps(panel.scales[0], _mm512_mul_ps(widen_halves(halves), _mm512_set1_ps(factor)));
}

STRATA_AVX512_INLINE __m512i spread_offset(const quant::TypeInfo& type) {
    return _mm512_set1_epi8(static_cast<char>(type.integers->offset));
}

}  // namespace

STRATA_AVX512 void unpack_iq2_xxs(const quant::TypeInfo& type, const std::byte* rows,
                                  std::int64_t stride, int, const std::byte* ahead, Panel& panel) {
    const SignTable table = load_signs();
    const __m512i base = spread_offset(type);
    store_scale(panel, gather_rows(rows, row_offsets(stride)), 0.125f);
    for (int pair = 0; pair < 4; ++pair) {
        ahead = prefetch<66 / 4 + 1>(ahead);
        __m512i parts[4];
        load_columns(rows + 2 + 16 * pair, stride, parts);
        for (int i = 0; i < 2; ++i) {
            const __m512i rest = parts[2 * i + 1];
            store_part(panel, 2 * pair + i, rest, 7);
            for (int v = 0; v < 4; ++v) {
                const __m512i number = bits_of(parts[2 * i], 8 * v, 255);
                const __m512i signs = table.of(bits_of(rest, 7 * v, 127));
                unpack_eight(quant::kIq2XxsGrid.data(), number, signs, base,
                             8 * (2 * pair + i) + 2 * v, panel);
            }
        }
    }
}

STRATA_AVX512 void unpack_iq2_xs(const quant::TypeInfo& type, const std::byte* rows,
                                 std::int64_t stride, int, const std::byte* ahead, Panel& panel) {
    const SignTable table = load_signs();
    const __m512i base = spread_offset(type);
    const __m512i offsets = row_offsets(stride);
    store_scale(panel, gather_rows(rows, offsets), 0.125f);
    for (int quarter = 0; quarter < 4; ++quarter) {
        ahead = prefetch<74 / 4 + 1>(ahead);
        __m512i vectors[4];
        load_columns(rows + 2 + 16 * quarter, stride, vectors);
        const __m512i parts = gather_rows(rows + 66 + quarter / 2 * 4, offsets);
        for (int v = 0; v < 8; ++v) {
            const __m512i vector =
                _mm512_srli_epi32(vectors[v / 2], static_cast<unsigned>(v % 2 * 16));
            const __m512i signs = table.of(bits_of(vector, 9, 127));
            unpack_eight(quant::kIq2XsGrid.data(), bits_of(vector, 0, 511), signs, base,
                         16 * quarter + 2 * v, panel);
            if (v % 2 == 0) {
                store_part(panel, 4 * quarter + v / 2, parts, quarter % 2 * 4 + v / 2);
            }
        }
    }
}

STRATA_AVX512 void unpack_iq2_s(const quant::TypeInfo& type, const std::byte* rows,
                                std::int64_t stride, int, const std::byte* ahead, Panel& panel) {
    const __m512i base = spread_offset(type);
    const __m512i offsets = row_offsets(stride);
    store_scale(panel, gather_rows(rows, offsets), 0.125f);
    for (int half = 0; half < 2; ++half) {
        ahead = prefetch<82 / 2>(ahead);
        __m512i low[4];
        __m512i signs[4];
        load_columns(rows + 2 + 16 * half, stride, low);
        load_columns(rows + 34 + 16 * half, stride, signs);
        const __m512i high = gather_rows(rows + 66 + 4 * half, offsets);
        const __m512i parts = gather_rows(rows + 74 + 4 * half, offsets);
        for (int v = 0; v < 16; ++v) {
            const __m512i upper = _mm512_slli_epi32(bits_of(high, 2 * v, 3), 8);
            const __m512i number = _mm512_or_si512(bits_of(low[v / 4], v % 4 * 8, 255), upper);
            unpack_eight(quant::kIq2SGrid.data(), number, bits_of(signs[v / 4], v % 4 * 8, 255),
                         base, 32 * half + 2 * v, panel);
            if (v % 2 == 0) store_part(panel, 8 * half + v / 2, parts, v / 2);
        }
    }
}

STRATA_AVX512 void unpack_iq3_s(const quant::TypeInfo& type, const std::byte* rows,
                                std::int64_t stride, int, const std::byte* ahead, Panel& panel) {
    const __m512i base = spread_offset(type);
    const __m512i offsets = row_offsets(stride);
    store_scale(panel, gather_rows(rows, offsets), 1.0f);
    const __m512i parts = gather_rows(rows + 106, offsets);
    for (int quarter = 0; quarter < 4; ++quarter) {
        ahead = prefetch<110 / 4 + 1>(ahead);
        __m512i low[4];
        load_columns(rows + 2 + 16 * quarter, stride, low);
        // Of the 16 vectors of a quarter: a bit each of `high`, four bits each of signs.
        const __m512i high = _mm512_srli_epi32(gather_rows(rows + 66 + quarter / 2 * 4, offsets),
                                               static_cast<unsigned>(quarter % 2 * 16));
        const __m512i signs[2] = {gather_rows(rows + 74 + 8 * quarter, offsets),
                                  gather_rows(rows + 78 + 8 * quarter, offsets)};
        store_part(panel, 2 * quarter, parts, 2 * quarter);
        store_part(panel, 2 * quarter + 1, parts, 2 * quarter + 1);
        for (int v = 0; v < 16; ++v) {
            const __m512i upper = _mm512_slli_epi32(bits_of(high, v, 1), 8);
            const __m512i number = _mm512_or_si512(bits_of(low[v / 4], v % 4 * 8, 255), upper);
            const __m512i magnitudes = _mm512_i32gather_epi32(number, quant::kIq3SGrid.data(), 4);
            store(panel, 16 * quarter + v,
                  with_signs(magnitudes, bits_of(signs[v / 8], v % 8 * 4, 15), base));
        }
    }
}

STRATA_AVX512 void unpack_iq1_m(const quant::TypeInfo& type, const std::byte* rows,
                                std::int64_t stride, int, const std::byte* ahead, Panel& panel) {
    const __m512i offsets = row_offsets(stride);
    const __m512i words[2] = {gather_rows(rows + 48, offsets), gather_rows(rows + 52, offsets)};
    __m512i scale = bits_of(words[0], 12, 15);
    scale = _mm512_or_si512(scale, _mm512_slli_epi32(bits_of(words[0], 28, 15), 4));
    scale = _mm512_or_si512(scale, _mm512_slli_epi32(bits_of(words[1], 12, 15), 8));
    scale = _mm512_or_si512(scale, _mm512_slli_epi32(bits_of(words[1], 28, 15), 12));
    store_scale(panel, scale, 0.125f);
    for (int p = 0; p < 16; ++p) {
        const __m512i part = bits_of(words[p / 8], p % 8 / 4 * 16 + p % 4 * 3, 7);
        _mm512_store_si512(panel.parts[p],
                           _mm512_add_epi32(_mm512_add_epi32(part, part), _mm512_set1_epi32(1)));
    }
    const __m512i spread =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    for (int half = 0; half < 2; ++half) {
        ahead = prefetch<56 / 2>(ahead);
        __m512i low[4];
        load_columns(rows + 16 * half, stride, low);
        const __m512i high[2] = {gather_rows(rows + 32 + 8 * half, offsets),
                                 gather_rows(rows + 36 + 8 * half, offsets)};
        for (int v = 0; v < 16; ++v) {
            const __m512i four = bits_of(high[v / 8], v % 8 * 4, 15);
            const __m512i upper = _mm512_slli_epi32(bits_of(four, 0, 7), 8);
            const __m512i number = _mm512_or_si512(bits_of(low[v / 4], v % 4 * 8, 255), upper);
            // Offset + 1, or - 1 where the vector is shifted down.
            const __m512i shift = _mm512_sub_epi32(_mm512_set1_epi32(type.integers->offset + 1),
                                                   _mm512_srli_epi32(bits_of(four, 0, 8), 2));
            const __m512i base = _mm512_shuffle_epi8(shift, spread);
            for (int i = 0; i < 2; ++i) {
                // Times eight, in bytes.
                __m512i codes = look_up(quant::kIq1Grid.data(), number, i);
                codes = _mm512_add_epi8(codes, codes);
                codes = _mm512_add_epi8(codes, codes);
                codes = _mm512_add_epi8(codes, codes);
                store(panel, 32 * half + 2 * v + i, _mm512_add_epi8(codes, base));
            }
        }
    }
}

STRATA_AVX512 void unpack_iq3_xxs(const quant::TypeInfo& type, const std::byte* rows,
                                  std::int64_t stride, int, const std::byte* ahead, Panel& panel) {
    constexpr int kBlockBytes = 98;
    const Iq3XxsTables& tables = iq3_xxs_tables();
    const __m512i offsets = row_offsets(stride);
    const __m512 scale = widen_halves(gather_rows(rows, offsets));
    _mm512_store_ps(panel.scales[0], _mm512_mul_ps(scale, _mm512_set1_ps(0.25f)));
    const Iq3XxsGrid grid = load_grid(tables, type.integers->offset);
    const __m512i signs_low = _mm512_load_si512(tables.paired_signs);
    const __m512i signs_high = _mm512_load_si512(tables.paired_signs + 64);
    // Where the seven bits of each sign lie in the parts of both rows of a lane pair.
    const __m512i first = _mm512_set1_epi64(0x2727202007070000);
    const __m512i second = _mm512_set1_epi64(0x35352e2e15150e0e);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
        __m512i rest[4];
        load_columns(rows + 66 + 16 * half, stride, rest);
        for (int i = 0; i < 4; i += 2) {
            ahead = prefetch<kBlockBytes / 4 + 1>(ahead);
            __m512i numbers[4];
            load_columns(rows + 2 + 32 * half + 8 * i, stride, numbers);
#pragma GCC unroll 2
            for (int j = 0; j < 2; ++j) {
                const int part = 4 * half + i + j;
                const __m512i factor = _mm512_srli_epi32(rest[i + j], 28);
                _mm512_store_si512(
                    panel.parts[part],
                    _mm512_add_epi32(_mm512_add_epi32(factor, factor), _mm512_set1_epi32(1)));
                const __m512i a = _mm512_permutex2var_epi8(
                    signs_low, _mm512_multishift_epi64_epi8(first, rest[i + j]), signs_high);
                unpack_vectors(grid, numbers[2 * j], a, 8 * part, panel);
                const __m512i b = _mm512_permutex2var_epi8(
                    signs_low, _mm512_multishift_epi64_epi8(second, rest[i + j]), signs_high);
                unpack_vectors(grid, numbers[2 * j + 1], b, 8 * part + 4, panel);
            }
        }
    }
}

}  // namespace strata::cpu

#endif
