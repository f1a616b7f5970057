// For every type on every machine; the sets of instructions have faster ones for common types.
#include "backend/cpu/quantized/panel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace strata::cpu {
namespace {

// Scales of one row's block from group `first` on, `groups` of them, and its parts.
void place_scales(const quant::IntegerForm& form, const quant::Integers& block, int first,
                  int groups, int row, Panel& panel) {
    for (int g = 0; g < groups; ++g) {
        panel.scales[first + g][row] = block.scales[g];
        if (form.minima) panel.minima[first + g][row] = block.minimum;
    }
    if (!form.has_parts()) return;
    for (int p = 0; p < (form.part == 16 ? 16 : 8); ++p) {
        panel.parts[p][row] = block.parts[p];
        if (form.minima) panel.part_minima[p / 2][row][p % 2] = block.minima[p];
    }
}

// Codes of four rows, kPanelCols apart, to rows row .. row+3 of the panel.
void place_codes(const std::int8_t* codes, int columns, int offset, int row, Panel& panel) {
#if defined(__x86_64__)
    const __m128i base = _mm_set1_epi8(static_cast<char>(offset));
    for (int col = 0; col + 16 <= columns; col += 16) {
        __m128i rows[4];
        for (int r = 0; r < 4; ++r) {
            const auto* from = reinterpret_cast<const __m128i*>(codes + r * kPanelCols + col);
            rows[r] = _mm_add_epi8(_mm_loadu_si128(from), base);
        }
        const __m128i low0 = _mm_unpacklo_epi32(rows[0], rows[1]);
        const __m128i low1 = _mm_unpacklo_epi32(rows[2], rows[3]);
        const __m128i high0 = _mm_unpackhi_epi32(rows[0], rows[1]);
        const __m128i high1 = _mm_unpackhi_epi32(rows[2], rows[3]);
        const auto store = [&](int step, __m128i four) {
            _mm_store_si128(reinterpret_cast<__m128i*>(panel.codes[col / 4 + step][row]), four);
        };
        store(0, _mm_unpacklo_epi64(low0, low1));
        store(1, _mm_unpackhi_epi64(low0, low1));
        store(2, _mm_unpacklo_epi64(high0, high1));
        store(3, _mm_unpackhi_epi64(high0, high1));
    }
#else
    for (int r = 0; r < 4; ++r) {
        for (int col = 0; col < columns; ++col) {
            panel.codes[col / 4][row + r][col % 4] =
                static_cast<std::uint8_t>(codes[r * kPanelCols + col] + offset);
        }
    }
#endif
}

int sum_part(const Panel& panel, const Tile& tile, int col, int columns, int t, int row) {
    int sum = 0;
    for (int k = col / 4; k < (col + columns) / 4; ++k) {
        const std::uint8_t* weight = panel.codes[k][row];
        const std::int8_t* x = tile.codes + (k * tile.rows + t) * 4;
        for (int j = 0; j < 4; ++j) sum += weight[j] * x[j];
    }
    return sum;
}

int sum_minima(const Panel& panel, const Tile& tile, int pairs, int t, int row) {
    int sum = 0;
    for (int p = 0; p < pairs; ++p) {
        std::int16_t half[2];
        std::memcpy(half, tile.sums + p * tile.rows + t, sizeof(half));
        for (int j = 0; j < 2; ++j) sum += panel.part_minima[p][row][j] * half[j];
    }
    return sum;
}

// A group without parts, and with them.
int sum_group(const quant::IntegerForm& form, const Panel& panel, const Tile& tile, int g, int t,
              int row) {
    if (!form.has_parts()) {
        const int base = form.minima ? 0 : tile.sums[g * tile.rows + t];
        return base + sum_part(panel, tile, g * form.group, form.group, t, row);
    }
    int sum = 0;
    for (int p = 0; p < form.group / form.part; ++p) {
        const int base = form.minima ? 0 : tile.sums[p * tile.rows + t];
        sum +=
            panel.parts[p][row] * (base + sum_part(panel, tile, p * form.part, form.part, t, row));
    }
    return sum;
}

void multiply_panel(const quant::IntegerForm& form, const Panel& panel, int columns,
                    const Tile& tile, const Sums& sums) {
    for (int t = 0; t < tile.rows; ++t) {
        for (int row = 0; row < kPanelRows; ++row) {
            float& to = sums.data[t * sums.stride + row];
            if (sums.fresh) to = 0.0f;
            for (int g = 0; g < columns / form.group; ++g) {
                const float scale = tile.scales[g * tile.rows + t];
                const int product = sum_group(form, panel, tile, g, t, row);
                to = std::fma(static_cast<float>(product), panel.scales[g][row] * scale, to);
                if (!form.minima) continue;
                const int base = form.has_parts()
                                     ? sum_minima(panel, tile, form.group / form.part / 2, t, row)
                                     : tile.sums[g * tile.rows + t];
                to = std::fma(-static_cast<float>(base), panel.minima[g][row] * scale, to);
            }
        }
    }
}

}  // namespace

void unpack_any(const quant::TypeInfo& type, const std::byte* rows, std::int64_t stride,
                int columns, const std::byte* ahead, Panel& panel) {
    const int bytes = columns / type.block * type.block_bytes;
    const int groups = type.block / type.integers->group;
    quant::Integers integers;
    alignas(16) std::int8_t codes[4][kPanelCols];
    for (int row = 0; row < kPanelRows; ++row, ahead += bytes) {
        for (int at = 0; at < bytes; at += 64) __builtin_prefetch(ahead + at, 0, 2);
        const std::byte* block = rows + row * stride;
        int group = 0;
        for (int col = 0; col < columns; col += type.block, group += groups) {
            type.integers->unpack(block, integers);
            std::copy_n(integers.codes.data(), type.block, codes[row % 4] + col);
            place_scales(*type.integers, integers, group, groups, row, panel);
            block += type.block_bytes;
        }
        if (row % 4 == 3) place_codes(codes[0], columns, type.integers->offset, row - 3, panel);
    }
}

void multiply_scalar(const quant::IntegerForm& form, const Panel* panels, int count, int columns,
                     const Tile& tile, const Sums& sums, Ahead) {
    for (int p = 0; p < count; ++p) {
        multiply_panel(form, panels[p], columns, tile, sums.panel(p));
    }
}

namespace {

Routine make_routine(quant::Type type, Instructions instructions) {
    Routine made;
#if defined(__x86_64__)
    if (instructions == Instructions::avx512) made = avx512_routine(type);
    if (instructions == Instructions::avx2) made.multiply = multiply_avx2;
#endif
    static_cast<void>(instructions);
    if (made.unpack == nullptr) made.unpack = unpack_any;
    if (made.multiply == nullptr) made.multiply = multiply_scalar;
    return made;
}

}  // namespace

// From a table: kernels ask for every few rows.
const Routine& find_routine(quant::Type type, Instructions instructions) {
    using Routines = std::array<std::array<Routine, quant::kTypesMax>, kInstructionsCount>;
    static const Routines all = [] {
        Routines made;
        for (std::size_t i = 0; i < made.size(); ++i) {
            for (std::size_t t = 0; t < made[i].size(); ++t) {
                made[i][t] = make_routine(static_cast<quant::Type>(t), Instructions(i));
            }
        }
        return made;
    }();
    return all[static_cast<std::size_t>(instructions)][static_cast<std::size_t>(type)];
}

}  // namespace strata::cpu
