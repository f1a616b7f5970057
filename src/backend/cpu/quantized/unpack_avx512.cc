// The formats of blocks of 32 and 64 values.
#include "backend/cpu/quantized/unpack_avx512.h"

#include <array>

#include "quant/e2m1.h"

#if defined(__x86_64__)

namespace strata::cpu {
namespace {

// Of the memory ahead: these come slower than they are unpacked, and while they do there are few
// places for more that is under way. Multiply asks for the rest.
constexpr int kAskedQ8 = 320;  // bytes a block of all rows

STRATA_AVX512 void unpack_q8_0(const quant::TypeInfo&, const std::byte* rows, std::int64_t stride,
                               int columns, const std::byte* ahead, Panel& panel) {
    constexpr int kBlockBytes = 34;
    const __m512i offsets = row_offsets(stride);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    for (int g = 0; g < columns / 32; ++g, rows += kBlockBytes) {
        ahead = prefetch<kBlockBytes, kAskedQ8>(ahead);
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

STRATA_AVX512_INLINE __m512i four_columns(const std::int8_t* x) {
    std::int32_t four = 0;
    __builtin_memcpy(&four, x, sizeof(four));
    return _mm512_set1_epi32(four);
}

// One panel.
STRATA_AVX512_INLINE __m512 multiply_panel_q4_0(const std::byte* rows, std::int64_t stride,
                                                __m512i offsets, std::int64_t groups,
                                                const std::byte* ahead, const Tile& tile) {
    constexpr int kBlockBytes = 18;
    const std::int8_t* x = tile.codes;
    __m512 total = _mm512_setzero_ps();
    for (std::int64_t g = 0; g < groups; ++g, rows += kBlockBytes, x += 32) {
        ahead = prefetch<kBlockBytes>(ahead);
        const __m512 weight_scale = widen_halves(gather_rows(rows, offsets));
        __m512i bytes[4];
        load_columns(rows + 2, stride, bytes);
        __m512i low = _mm512_set1_epi32(tile.sums[g]);
        __m512i high = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int d = 0; d < 4; ++d) {
            low = _mm512_dpbusd_epi32(low, low_halves(bytes[d]), four_columns(x + 4 * d));
            high = _mm512_dpbusd_epi32(high, high_halves(bytes[d]), four_columns(x + 16 + 4 * d));
        }
        const __m512 product = _mm512_cvtepi32_ps(_mm512_add_epi32(low, high));
        const __m512 scale = _mm512_mul_ps(weight_scale, _mm512_set1_ps(tile.scales[g]));
        total = _mm512_fmadd_ps(product, scale, total);
    }
    return total;
}

STRATA_AVX512 void multiply_one_q4_0(const std::byte* rows, std::int64_t stride,
                                     std::int64_t columns, std::int64_t panels,
                                     const std::byte* ahead, const Tile& tile, const Sums& sums) {
    constexpr std::int64_t kGroupBytes = kPanelRows * 18;
    const __m512i offsets = row_offsets(stride);
    const std::int64_t groups = columns / 32;
    for (std::int64_t p = 0; p < panels; ++p) {
        const __m512 sum = multiply_panel_q4_0(rows, stride, offsets, groups, ahead, tile);
        _mm512_storeu_ps(sums.data + p * sums.apart, sum);
        rows += kPanelRows * stride;
        ahead += groups * kGroupBytes;
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

// Byte i of a lane holds columns 4 i .. 4 i + 3, two bits each: transposed, a register is a shift
// of all bytes.
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
#pragma GCC unroll 4
        for (int d = 0; d < 4; ++d) {
#pragma GCC unroll 4
            for (unsigned b = 0; b < 4; ++b) {
                const __m512i fields = _mm512_srli_epi16(bytes[d], 2 * b);
                store(panel, 16 * g + 4 * d + static_cast<int>(b), _mm512_and_si512(fields, mask));
            }
        }
    }
}

// 16 values of table `values` an E2M1 code; the exponent is a byte (quant/mxfp4.cc).
STRATA_AVX512 void unpack_mxfp4(const quant::TypeInfo& type, const std::byte* rows,
                                std::int64_t stride, int columns, const std::byte* ahead,
                                Panel& panel) {
    constexpr int kBlockBytes = 17;
    const __m512i offsets = row_offsets(stride);
    const __m512i table = spread_table(quant::kE2m1Doubled.data(), type.integers->offset);
    const __m512i one = _mm512_set1_epi32(1);
    for (int g = 0; g < columns / 32; ++g, rows += kBlockBytes) {
        ahead = prefetch<kBlockBytes>(ahead);
        const __m512i exponent =
            _mm512_and_si512(gather_rows(rows, offsets), _mm512_set1_epi32(255));
        const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(exponent, one), 23);
        const __m512i subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), exponent);
        const __mmask16 small = _mm512_cmple_epu32_mask(exponent, one);
        _mm512_store_si512(panel.scales[g], _mm512_mask_mov_epi32(normal, small, subnormal));
        unpack_halves(rows + 1, stride, 8 * g, table, panel);
    }
}

// Half the number that each E4M3 code stands for (quant/nvfp4.cc).
struct alignas(64) Nvfp4Scales {
    float of[256];
};

const Nvfp4Scales& nvfp4_scales(const quant::TypeInfo& type) {
    static const Nvfp4Scales scales = [&] {
        Nvfp4Scales made{};
        for (int code = 0; code < 256; ++code) {
            std::byte block[36] = {std::byte(code)};
            quant::Integers integers;
            type.integers->unpack(block, integers);
            made.of[code] = integers.scales[0];
        }
        return made;
    }();
    return scales;
}

STRATA_AVX512 void unpack_nvfp4(const quant::TypeInfo& type, const std::byte* rows,
                                std::int64_t stride, int columns, const std::byte* ahead,
                                Panel& panel) {
    constexpr int kBlockBytes = 36;
    const __m512i offsets = row_offsets(stride);
    const __m512i table = spread_table(quant::kE2m1Doubled.data(), type.integers->offset);
    const float* scales = nvfp4_scales(type).of;
    for (int b = 0; b < columns / 64; ++b, rows += kBlockBytes) {
        ahead = prefetch<kBlockBytes>(ahead);
        const __m512i codes = gather_rows(rows, offsets);
        __m512i bytes[8];
        load_columns(rows + 4, stride, bytes);
        load_columns(rows + 20, stride, bytes + 4);
#pragma GCC unroll 4
        for (int part = 0; part < 4; ++part) {
            const __m512i code = _mm512_and_si512(
                _mm512_srli_epi32(codes, static_cast<unsigned>(8 * part)), _mm512_set1_epi32(255));
            _mm512_store_ps(panel.scales[4 * b + part], _mm512_i32gather_ps(code, scales, 4));
#pragma GCC unroll 2
            for (int d = 0; d < 2; ++d) {
                const __m512i both = bytes[2 * part + d];
                const int step = 16 * b + 4 * part + d;
                store(panel, step, _mm512_shuffle_epi8(table, low_halves(both)));
                store(panel, step + 2, _mm512_shuffle_epi8(table, high_halves(both)));
            }
        }
    }
}

// 16 bytes of halves and four bytes of fifth bits, in `high`.
STRATA_AVX512_INLINE void unpack_fives(const std::byte* rows, std::int64_t stride, __m512i high,
                                       int step, Panel& panel) {
    __m512i bytes[4];
    load_columns(rows, stride, bytes);
    const __m512i one = _mm512_set1_epi8(1);
    // Bit positions of the first four values in both rows of a lane pair.
    __m512i shift = _mm512_set1_epi64(0x2322212003020100);
#pragma GCC unroll 8
    for (int d = 0; d < 8; ++d) {
        const __m512i bits = _mm512_and_si512(_mm512_multishift_epi64_epi8(shift, high), one);
        const __m512i low = d < 4 ? low_halves(bytes[d % 4]) : high_halves(bytes[d % 4]);
        store(panel, step + d, _mm512_or_si512(low, _mm512_slli_epi16(bits, 4)));
        shift = _mm512_add_epi8(shift, _mm512_set1_epi8(4));
    }
}

STRATA_AVX512 void unpack_q5_0(const quant::TypeInfo&, const std::byte* rows, std::int64_t stride,
                               int columns, const std::byte* ahead, Panel& panel) {
    constexpr int kBlockBytes = 22;
    const __m512i offsets = row_offsets(stride);
    for (int g = 0; g < columns / 32; ++g, rows += kBlockBytes) {
        ahead = prefetch<kBlockBytes>(ahead);
        _mm512_store_ps(panel.scales[g], widen_halves(gather_rows(rows, offsets)));
        unpack_fives(rows + 6, stride, gather_rows(rows + 2, offsets), 8 * g, panel);
    }
}

STRATA_AVX512 void unpack_q5_1(const quant::TypeInfo&, const std::byte* rows, std::int64_t stride,
                               int columns, const std::byte* ahead, Panel& panel) {
    constexpr int kBlockBytes = 24;
    const __m512i offsets = row_offsets(stride);
    const __m512 sign = _mm512_set1_ps(-0.0f);
    for (int g = 0; g < columns / 32; ++g, rows += kBlockBytes) {
        ahead = prefetch<kBlockBytes>(ahead);
        const __m512i halves = gather_rows(rows, offsets);
        const __m512 offset = widen_halves(_mm512_srli_epi32(halves, 16));
        _mm512_store_ps(panel.scales[g], widen_halves(halves));
        _mm512_store_ps(panel.minima[g], _mm512_xor_ps(offset, sign));
        unpack_fives(rows + 8, stride, gather_rows(rows + 4, offsets), 8 * g, panel);
    }
}

}  // namespace

void multiply_avx512(const quant::IntegerForm& form, const Panel* panels, int count, int columns,
                     const Tile& tile, const Sums& sums, Ahead ahead);

Routine avx512_routine(quant::Type type) {
    using quant::Type;
    using Unpack = decltype(Routine::unpack);
    static constexpr auto kUnpack = [] {
        std::array<Unpack, quant::kTypesMax> by_type{};
        const auto set = [&](Type one, Unpack unpack) {
            by_type[static_cast<std::size_t>(one)] = unpack;
        };
        set(Type::q8_0, unpack_q8_0);
        set(Type::q4_0, unpack_q4_0);
        set(Type::q5_0, unpack_q5_0);
        set(Type::q5_1, unpack_q5_1);
        set(Type::q2_0, unpack_q2_0);
        set(Type::iq4_nl, unpack_iq4_nl);
        set(Type::mxfp4, unpack_mxfp4);
        set(Type::nvfp4, unpack_nvfp4);
        set(Type::q2_k, unpack_q2_k);
        set(Type::q3_k, unpack_q3_k);
        set(Type::q4_k, unpack_q4_k);
        set(Type::q5_k, unpack_q5_k);
        set(Type::q6_k, unpack_q6_k);
        set(Type::iq1_m, unpack_iq1_m);
        set(Type::iq2_xxs, unpack_iq2_xxs);
        set(Type::iq2_xs, unpack_iq2_xs);
        set(Type::iq2_s, unpack_iq2_s);
        set(Type::iq3_xxs, unpack_iq3_xxs);
        set(Type::iq3_s, unpack_iq3_s);
        set(Type::iq4_xs, unpack_iq4_xs);
        return by_type;
    }();
    return {.unpack = kUnpack[static_cast<std::size_t>(type)],
            .multiply = multiply_avx512,
            .multiply_one = type == Type::q4_0 ? multiply_one_q4_0 : nullptr,
            .transposed = type == Type::iq3_xxs || type == Type::q2_0,
            .asked = type == Type::q8_0 ? kAskedQ8 : 0};
}

}  // namespace strata::cpu

#endif
