// Bounded by shuffles. The packed bytes of 16 rows are brought side by side first, four bytes a
// lane, so that every later step works on all rows at once and the panel needs no second
// transposition.
#include <cstring>

#include "backend/cpu/quantized/avx512.h"
#include "backend/cpu/quantized/panel.h"
#include "quant/codebooks.h"
#include "quant/e2m1.h"

#if defined(__x86_64__)

namespace strata::cpu {
namespace {

STRATA_AVX512_INLINE void store(Panel& panel, int step, __m512i codes) {
    _mm512_store_si512(panel.codes[step], codes);
}

// 16 values in each 128 bits, for a shuffle by codes.
STRATA_AVX512_INLINE __m512i spread_table(const std::int8_t* values, int offset) {
    __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
    table = _mm_add_epi8(table, _mm_set1_epi8(static_cast<char>(offset)));
    return _mm512_broadcast_i32x4(table);
}

STRATA_AVX512_INLINE __m512i low_halves(__m512i bytes) {
    return _mm512_and_si512(bytes, _mm512_set1_epi8(15));
}
STRATA_AVX512_INLINE __m512i high_halves(__m512i bytes) {
    return _mm512_and_si512(_mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(15));
}

STRATA_AVX512 void unpack_q8_0(const quant::TypeInfo&, const std::byte* rows, std::int64_t stride,
                               int columns, const std::byte* ahead, Panel& panel) {
    constexpr int kBlockBytes = 34;
    const __m512i offsets = row_offsets(stride);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    for (int g = 0; g < columns / 32; ++g, rows += kBlockBytes) {
        ahead = prefetch<kBlockBytes>(ahead);
        _mm512_store_ps(panel.scales[g], widen_halves(gather_rows(rows, offsets)));
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            __m512i codes[4];
            load_columns(rows + 2 + 16 * half, stride, codes);
#pragma GCC unroll 4
            for (int d = 0; d < 4; ++d) {
                store(panel, 8 * g + 4 * half + d, _mm512_xor_si512(codes[d], sign));
            }
        }
    }
}

// 16 bytes of halves: the low ones are the first 16 values of a group, the high ones the others.
STRATA_AVX512_INLINE void unpack_halves(const std::byte* rows, std::int64_t stride, int step,
                                        Panel& panel) {
    __m512i bytes[4];
    load_columns(rows, stride, bytes);
#pragma GCC unroll 4
    for (int d = 0; d < 4; ++d) {
        store(panel, step + d, low_halves(bytes[d]));
        store(panel, step + 4 + d, high_halves(bytes[d]));
    }
}

STRATA_AVX512_INLINE void unpack_halves(const std::byte* rows, std::int64_t stride, int step,
                                        __m512i table, Panel& panel) {
    __m512i bytes[4];
    load_columns(rows, stride, bytes);
#pragma GCC unroll 4
    for (int d = 0; d < 4; ++d) {
        store(panel, step + d, _mm512_shuffle_epi8(table, low_halves(bytes[d])));
        store(panel, step + 4 + d, _mm512_shuffle_epi8(table, high_halves(bytes[d])));
    }
}

STRATA_AVX512 void unpack_q4_0(const quant::TypeInfo&, const std::byte* rows, std::int64_t stride,
                               int columns, const std::byte* ahead, Panel& panel) {
    constexpr int kBlockBytes = 18;
    const __m512i offsets = row_offsets(stride);
    for (int g = 0; g < columns / 32; ++g, rows += kBlockBytes) {
        ahead = prefetch<kBlockBytes>(ahead);
        _mm512_store_ps(panel.scales[g], widen_halves(gather_rows(rows, offsets)));
        unpack_halves(rows + 2, stride, 8 * g, panel);
    }
}

STRATA_AVX512 void unpack_iq4_nl(const quant::TypeInfo& type, const std::byte* rows,
                                 std::int64_t stride, int columns, const std::byte* ahead,
                                 Panel& panel) {
    constexpr int kBlockBytes = 18;
    const __m512i offsets = row_offsets(stride);
    const __m512i table = spread_table(quant::kIq4Values.data(), type.integers->offset);
    for (int g = 0; g < columns / 32; ++g, rows += kBlockBytes) {
        ahead = prefetch<kBlockBytes>(ahead);
        _mm512_store_ps(panel.scales[g], widen_halves(gather_rows(rows, offsets)));
        unpack_halves(rows + 2, stride, 8 * g, table, panel);
    }
}

// Eight bytes a lane pair give 32 codes of two bits: each result byte is a field of them.
STRATA_AVX512 void unpack_q2_0(const quant::TypeInfo&, const std::byte* rows, std::int64_t stride,
                               int columns, const std::byte* ahead, Panel& panel) {
    constexpr int kBlockBytes = 18;
    const __m512i offsets = row_offsets(stride);
    const __m512i mask = _mm512_set1_epi8(3);
    for (int g = 0; g < columns / 64; ++g, rows += kBlockBytes) {
        ahead = prefetch<kBlockBytes>(ahead);
        _mm512_store_ps(panel.scales[g], widen_halves(gather_rows(rows, offsets)));
        __m512i bytes[4];
        load_columns(rows + 2, stride, bytes);
        // Bit positions for byte 0 of both rows of a lane pair: 6 4 2 0 in each.
        __m512i shift = _mm512_set1_epi64(0x2624222006040200);
#pragma GCC unroll 4
        for (int b = 0; b < 4; ++b) {
#pragma GCC unroll 4
            for (int d = 0; d < 4; ++d) {
                const __m512i fields = _mm512_multishift_epi64_epi8(shift, bytes[d]);
                store(panel, 16 * g + 4 * d + b, _mm512_and_si512(fields, mask));
            }
            shift = _mm512_add_epi8(shift, _mm512_set1_epi8(8));
        }
    }
}

// Byte b of every vector of a codebook of 256 vectors of four, in registers.
struct BytePlane {
    __m512i part[4];
};

STRATA_AVX512_INLINE __m512i look_up(const BytePlane& plane, __m512i numbers, __mmask64 upper) {
    const __m512i low = _mm512_permutex2var_epi8(plane.part[0], numbers, plane.part[1]);
    const __m512i high = _mm512_permutex2var_epi8(plane.part[2], numbers, plane.part[3]);
    return _mm512_mask_blend_epi8(upper, low, high);
}

// The codebook's bytes, plane by plane, and the signs of each number of seven bits.
struct Iq3XxsTables {
    alignas(64) std::uint8_t planes[4][256];
    alignas(64) std::uint8_t signs[128];
};

const Iq3XxsTables& iq3_xxs_tables() {
    static const Iq3XxsTables tables = [] {
        Iq3XxsTables made{};
        for (int i = 0; i < 256; ++i) {
            for (int b = 0; b < 4; ++b) {
                made.planes[b][i] = static_cast<std::uint8_t>(quant::kIq3XxsGrid[i].values[b]);
            }
        }
        for (std::uint32_t i = 0; i < 128; ++i) {
            made.signs[i] = static_cast<std::uint8_t>(quant::even_signs(i));
        }
        return made;
    }();
    return tables;
}

// Four numbers a lane (16 columns of a row) to four registers of codes, register b with value b of
// each number; `signs` has the signs of numbers 0, 0, 1, 1 pairwise.
STRATA_AVX512_INLINE void unpack_vectors(const Iq3XxsTables& tables, __m512i numbers, __m512i signs,
                                         int offset, int step, Panel& panel) {
    const __mmask64 upper = _mm512_movepi8_mask(numbers);
    const __m512i base = _mm512_set1_epi8(static_cast<char>(offset));
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
        BytePlane plane;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) plane.part[i] = _mm512_load_si512(tables.planes[b] + 64 * i);
        const __m512i magnitude = look_up(plane, numbers, upper);
        const __m512i bit = _mm512_set1_epi16(static_cast<short>((1 << b) | (16 << b) << 8));
        const __mmask64 negative = _mm512_test_epi8_mask(signs, bit);
        const __m512i code = _mm512_add_epi8(base, magnitude);
        store(panel, step + b, _mm512_mask_sub_epi8(code, negative, base, magnitude));
    }
}

STRATA_AVX512 void unpack_iq3_xxs(const quant::TypeInfo& type, const std::byte* rows,
                                  std::int64_t stride, int, const std::byte* ahead, Panel& panel) {
    constexpr int kBlockBytes = 98;
    const Iq3XxsTables& tables = iq3_xxs_tables();
    const __m512i offsets = row_offsets(stride);
    const __m512 scale = widen_halves(gather_rows(rows, offsets));
    _mm512_store_ps(panel.scales[0], _mm512_mul_ps(scale, _mm512_set1_ps(0.25f)));
    const __m512i signs_low = _mm512_load_si512(tables.signs);
    const __m512i signs_high = _mm512_load_si512(tables.signs + 64);
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
                unpack_vectors(tables, numbers[2 * j], a, type.integers->offset, 8 * part, panel);
                const __m512i b = _mm512_permutex2var_epi8(
                    signs_low, _mm512_multishift_epi64_epi8(second, rest[i + j]), signs_high);
                unpack_vectors(tables, numbers[2 * j + 1], b, type.integers->offset, 8 * part + 4,
                               panel);
            }
        }
    }
}

}  // namespace

void multiply_avx512(const quant::IntegerForm& form, const Panel* panels, int count, int columns,
                     const Tile& tile, float* sum, std::int64_t apart);

Routine avx512_routine(quant::Type type) {
    Routine routine{.multiply = multiply_avx512};
    switch (type) {
        case quant::Type::q8_0:
            routine.unpack = unpack_q8_0;
            break;
        case quant::Type::q4_0:
            routine.unpack = unpack_q4_0;
            break;
        case quant::Type::iq4_nl:
            routine.unpack = unpack_iq4_nl;
            break;
        case quant::Type::q2_0:
            routine.unpack = unpack_q2_0;
            break;
        case quant::Type::iq3_xxs:
            routine.unpack = unpack_iq3_xxs;
            routine.transposed = true;
            break;
        default:
            break;
    }
    return routine;
}

}  // namespace strata::cpu

#endif
